#!/usr/bin/env python3
"""Runs TF-Slim's train_image_classifier on ImageNet with carole."""

from entry import run

run("--recipe=train_image_classifier")
