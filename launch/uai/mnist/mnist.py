#!/usr/bin/env python3
"""Trains Keras MNIST with carole."""

from entry import run

run("--recipe=mnist")
