#!/usr/bin/env python3
"""TF-Slim's train_image_classifier on ImageNet, by carole."""

from entry import run

run("--recipe=train_image_classifier")
