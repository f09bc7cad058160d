#!/usr/bin/env python3
"""Trains VGG-416 of TF-Slim with carole."""

from entry import run

run("--recipe=vgg416")
