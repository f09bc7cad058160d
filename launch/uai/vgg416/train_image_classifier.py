#!/usr/bin/env python3
"""VGG-416, from the slim collection, by carole."""

from entry import run

run("--recipe=train_image_classifier", "--model_name=vgg_416")
