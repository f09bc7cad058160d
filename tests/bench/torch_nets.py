"""The nets of peer_nets.py for PyTorch, with the same layers and parameters as carole's nets (those of TF-Slim)."""

import torch
import torch.nn.functional as F
from torch import nn

import peer_nets


def conv_bn(c_in, c_out, kernel, stride=1, padding=0, groups=1, epsilon=1e-3, decay=0.997, gamma=True, activation=None):
    norm = nn.BatchNorm2d(c_out, eps=epsilon, momentum=1 - decay)
    norm.weight.requires_grad_(gamma)
    layers = [nn.Conv2d(c_in, c_out, kernel, stride, padding, groups=groups, bias=False), norm]
    return nn.Sequential(*layers, *([activation(inplace=True)] if activation else []))


def lenet(classes):
    relu = lambda: nn.ReLU(inplace=True)
    return nn.Sequential(
        nn.Conv2d(1, 32, 5, padding=2), relu(), nn.MaxPool2d(2),
        nn.Conv2d(32, 64, 5, padding=2), relu(), nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(7 * 7 * 64, 1024), relu(), nn.Dropout(1 - peer_nets.LENET_KEEP),
        nn.Linear(1024, classes),
    )  # fmt: skip


class Bottleneck(nn.Module):
    def __init__(self, c_in, base, stride):
        super().__init__()
        self.stride = stride
        self.shortcut = None if c_in == 4 * base else resnet_conv(c_in, 4 * base, 1, stride)
        self.conv1 = resnet_conv(c_in, base, 1)
        self.conv2 = resnet_conv(base, base, 3, stride)
        self.conv3 = resnet_conv(base, 4 * base, 1)

    def forward(self, x):
        if self.shortcut is not None:
            shortcut = self.shortcut(x)
        else:
            shortcut = x if self.stride == 1 else x[:, :, :: self.stride, :: self.stride]
        y = F.relu_(self.conv1(x))
        y = F.relu_(self.conv2(y))
        return F.relu_(self.conv3(y).add_(shortcut))


def resnet_conv(c_in, c_out, kernel, stride=1):
    return conv_bn(c_in, c_out, kernel, stride, kernel // 2, epsilon=peer_nets.BATCH_NORM_EPSILON)


def resnet_v1_50(classes):
    return nn.Sequential(
        resnet_conv(3, 64, 7, 2),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, ceil_mode=True),
        *[Bottleneck(*unit) for unit in peer_nets.resnet_units()],
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(2048, classes),
    )


def vgg_16(classes):
    layers, c_in = [], 3
    for c_out, count in peer_nets.VGG_16_STAGES:
        for _ in range(count):
            layers += [nn.Conv2d(c_in, c_out, 3, padding=1), nn.ReLU(inplace=True)]
            c_in = c_out
        layers.append(nn.MaxPool2d(2))
    return nn.Sequential(
        *layers,
        nn.Flatten(),
        nn.Linear(7 * 7 * 512, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5),
        nn.Linear(4096, 4096), nn.ReLU(inplace=True), nn.Dropout(0.5),
        nn.Linear(4096, classes),
    )  # fmt: skip


class InvertedResidual(nn.Module):
    def __init__(self, c_in, c_out, stride, factor):
        super().__init__()
        self.residual = stride == 1 and c_in == c_out
        wide = c_in * factor
        layers = [conv_bn(c_in, wide, 1, activation=nn.ReLU6)] if factor > 1 else []
        layers.append(conv_bn(wide, wide, 3, stride, 1, groups=wide, activation=nn.ReLU6))
        self.layers = nn.Sequential(*layers, conv_bn(wide, c_out, 1))

    def forward(self, x):
        y = self.layers(x)
        return x + y if self.residual else y


def mobilenet_v2(classes):
    layers = [conv_bn(3, 32, 3, 2, 1, activation=nn.ReLU6)]
    for unit in peer_nets.mobilenet_v2_units():
        layers.append(InvertedResidual(*unit))
    return nn.Sequential(
        *layers,
        conv_bn(320, 1280, 1, activation=nn.ReLU6),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(1280, classes),
    )  # fmt: skip


def conv(c_in, c_out, kernel, stride=1, same=True):
    """A convolution of Inception: batch norm without gamma, then ReLU."""
    sides = kernel if isinstance(kernel, tuple) else (kernel, kernel)
    padding = tuple(side // 2 for side in sides) if same else 0
    return conv_bn(c_in, c_out, sides, stride, padding, decay=0.9997, gamma=False, activation=nn.ReLU)


class Branches(nn.Module):
    """Applies all parts to the same input, and concatenates their results."""

    def __init__(self, *parts):
        super().__init__()
        self.parts = nn.ModuleList(parts)

    def forward(self, x):
        return torch.cat([part(x) for part in self.parts], 1)


def average():
    return nn.AvgPool2d(3, 1, 1, count_include_pad=False)


def block_a(c, projection):
    return Branches(
        conv(c, 64, 1),
        nn.Sequential(conv(c, 48, 1), conv(48, 64, 5)),
        nn.Sequential(conv(c, 64, 1), conv(64, 96, 3), conv(96, 96, 3)),
        nn.Sequential(average(), conv(c, projection, 1)),
    )


def reduction_a(c):
    return Branches(
        conv(c, 384, 3, 2, same=False),
        nn.Sequential(conv(c, 64, 1), conv(64, 96, 3), conv(96, 96, 3, 2, same=False)),
        nn.MaxPool2d(3, 2),
    )


def block_b(c, n):
    return Branches(
        conv(c, 192, 1),
        nn.Sequential(conv(c, n, 1), conv(n, n, (1, 7)), conv(n, 192, (7, 1))),
        nn.Sequential(
            conv(c, n, 1), conv(n, n, (7, 1)), conv(n, n, (1, 7)), conv(n, n, (7, 1)), conv(n, 192, (1, 7))
        ),
        nn.Sequential(average(), conv(c, 192, 1)),
    )


def reduction_b(c):
    return Branches(
        nn.Sequential(conv(c, 192, 1), conv(192, 320, 3, 2, same=False)),
        nn.Sequential(
            conv(c, 192, 1), conv(192, 192, (1, 7)), conv(192, 192, (7, 1)), conv(192, 192, 3, 2, same=False)
        ),
        nn.MaxPool2d(3, 2),
    )


def block_c(c):
    split = lambda: Branches(conv(384, 384, (1, 3)), conv(384, 384, (3, 1)))
    return Branches(
        conv(c, 320, 1),
        nn.Sequential(conv(c, 384, 1), split()),
        nn.Sequential(conv(c, 448, 1), conv(448, 384, 3), split()),
        nn.Sequential(average(), conv(c, 192, 1)),
    )


class InceptionV3(nn.Module):
    """Returns the logits of the net and of its auxiliary head."""

    def __init__(self, classes):
        super().__init__()
        self.body = nn.Sequential(
            conv(3, 32, 3, 2, same=False), conv(32, 32, 3, same=False), conv(32, 64, 3), nn.MaxPool2d(3, 2),
            conv(64, 80, 1), conv(80, 192, 3, same=False), nn.MaxPool2d(3, 2),
            block_a(192, 32), block_a(256, 64), block_a(288, 64), reduction_a(288),
            block_b(768, 128), block_b(768, 160), block_b(768, 160), block_b(768, 192),
        )  # fmt: skip
        self.top = nn.Sequential(
            reduction_b(768), block_c(1280), block_c(2048),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(2048, classes),
        )  # fmt: skip
        self.aux = nn.Sequential(
            nn.AvgPool2d(5, 3), conv(768, 128, 1), conv(128, 768, 5, same=False), nn.Flatten(), nn.Linear(768, classes)
        )

    def forward(self, x):
        x = self.body(x)
        return self.top(x), self.aux(x)


NETS = {
    "resnet_v1_50": resnet_v1_50,
    "lenet": lenet,
    "vgg_16": vgg_16,
    "inception_v3": InceptionV3,
    "mobilenet_v2": mobilenet_v2,
}


def make_net(name):
    """Returns a net with the same distribution of initial weights as carole's.

    With PyTorch's own initial weights, biases outweigh what VGG's last layers compute. A GPU draws less power if
    numbers hardly differ, and may then run at a higher clock.
    """
    net = NETS[name](peer_nets.NETS[name]["classes"])
    for module in net.modules():
        if isinstance(module, (nn.Conv2d, nn.Linear)):
            nn.init.xavier_uniform_(module.weight)
            if module.bias is not None:
                nn.init.zeros_(module.bias)
    peer_nets.check_parameters(name, sum(p.numel() for p in net.parameters() if p.requires_grad))
    return net


def loss_of(outputs, labels):
    """Returns the loss, in which an auxiliary head has the weight 0.4, as in carole."""
    if not isinstance(outputs, tuple):
        return F.cross_entropy(outputs, labels)
    return F.cross_entropy(outputs[0], labels) + 0.4 * F.cross_entropy(outputs[1], labels)
