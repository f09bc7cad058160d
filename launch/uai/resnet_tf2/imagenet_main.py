#!/usr/bin/env python3
"""Trains the ImageNet ResNet of TensorFlow 2.0 with carole."""

from entry import run

run("--recipe=imagenet_main")
