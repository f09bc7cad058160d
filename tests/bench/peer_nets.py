"""What the peers train: the same nets, sizes and hyper-parameters as `carole bench train`.

TF-Slim's ResNet has the stride of a block in its last unit, on the 3x3 convolution. The shortcut there takes every
second pixel. The peers build exactly the same, so that all programs do the same arithmetic.
"""

import sys

LEARNING_RATE = 0.01
MOMENTUM = 0.9
WEIGHT_DECAY = 4e-5  # of convolution and matrix weights only
BATCH_NORM_DECAY = 0.997
BATCH_NORM_EPSILON = 1.001e-5
LENET_KEEP = 0.5

# `batch` is the batch size for trainings on CPUs.
NETS = {
    "resnet_v1_50": {"size": 224, "channels": 3, "classes": 1000, "batch": 16, "parameters": 25_557_032},
    "lenet": {"size": 28, "channels": 1, "classes": 10, "batch": 64, "parameters": 3_274_634},
    "vgg_16": {"size": 224, "channels": 3, "classes": 1000, "batch": 8, "parameters": 138_357_544},
    "inception_v3": {"size": 299, "channels": 3, "classes": 1000, "batch": 16, "parameters": 27_143_152},
    "mobilenet_v2": {"size": 224, "channels": 3, "classes": 1000, "batch": 16, "parameters": 3_504_872},
}

VGG_16_STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # channels, convolutions


def check_parameters(name, count):
    """Exits if a peer's net has not as many parameters as carole's."""
    if count != NETS[name]["parameters"]:
        sys.exit(f"[bench] {name}: wrong net: got {count} parameters, want {NETS[name]['parameters']}")


def resnet_units():
    """Yields (input channels, base channels, stride) of every bottleneck of resnet_v1_50."""
    channels = 64
    for base, units, block_stride in ((64, 3, 2), (128, 4, 2), (256, 6, 2), (512, 3, 1)):
        for unit in range(units):
            yield channels, base, block_stride if unit == units - 1 else 1
            channels = 4 * base


def mobilenet_v2_units():
    """Yields (input channels, output channels, stride, expansion) of every inverted residual of mobilenet_v2."""
    channels = 32
    for factor, c_out, block_stride, units in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 2, 3), (6, 64, 2, 4), (6, 96, 1, 3), (6, 160, 2, 3), (6, 320, 1, 1),
    ):  # fmt: skip
        for unit in range(units):
            yield channels, c_out, block_stride if unit == 0 else 1, factor
            channels = c_out
