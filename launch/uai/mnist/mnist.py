#!/usr/bin/env python3
"""Keras MNIST, by carole."""

from entry import run

run("--recipe=mnist")
