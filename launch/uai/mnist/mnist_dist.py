#!/usr/bin/env python3
"""Keras MNIST on several machines, by carole."""

from entry import run

run("--recipe=mnist_dist")
