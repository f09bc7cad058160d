#!/usr/bin/env python3
"""Trains Keras MNIST on several hosts with carole."""

from entry import run

run("--recipe=mnist_dist")
