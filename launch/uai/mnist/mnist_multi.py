#!/usr/bin/env python3
"""Keras MNIST on several machines, under the name that its job has, by carole."""

from entry import run

run("--recipe=mnist_dist")
