#!/usr/bin/env python3
"""The ImageNet ResNet of TensorFlow 2.0, by carole."""

from entry import run

run("--recipe=imagenet_main")
