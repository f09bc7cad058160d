#!/usr/bin/env python3
"""Trains Keras MNIST on several hosts with carole. Jobs call mnist_dist.py by this name."""

from entry import run

run("--recipe=mnist_dist")
