"""PyTorch as fast as it goes on a CPU: eager, channels_last, fused SGD; see peers.py for threads and allocator."""

import torch
import torch.nn.functional as F
from torch import nn

import peer_nets as nets


def conv_bn(c_in, c_out, kernel, stride=1):
    return nn.Sequential(
        nn.Conv2d(c_in, c_out, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(c_out, eps=nets.BATCH_NORM_EPSILON, momentum=1 - nets.BATCH_NORM_DECAY),
    )


class Bottleneck(nn.Module):
    def __init__(self, c_in, base, stride):
        super().__init__()
        self.stride = stride
        self.shortcut = None if c_in == 4 * base else conv_bn(c_in, 4 * base, 1, stride)
        self.conv1 = conv_bn(c_in, base, 1)
        self.conv2 = conv_bn(base, base, 3, stride)
        self.conv3 = conv_bn(base, 4 * base, 1)

    def forward(self, x):
        if self.shortcut is not None:
            shortcut = self.shortcut(x)
        else:
            shortcut = x if self.stride == 1 else x[:, :, :: self.stride, :: self.stride]
        y = F.relu_(self.conv1(x))
        y = F.relu_(self.conv2(y))
        return F.relu_(self.conv3(y).add_(shortcut))


def make_net(name, spec):
    if name == "resnet_v1_50":
        return nn.Sequential(
            conv_bn(spec["channels"], 64, 7, 2),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(3, 2, ceil_mode=True),
            *[Bottleneck(*unit) for unit in nets.resnet_units()],
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(2048, spec["classes"]),
        )
    relu = lambda: nn.ReLU(inplace=True)
    pool = lambda: nn.MaxPool2d(2, 2)
    return nn.Sequential(
        nn.Conv2d(spec["channels"], 32, 5, padding=2), relu(), pool(),
        nn.Conv2d(32, 64, 5, padding=2), relu(), pool(),
        nn.Flatten(),
        nn.Linear(64 * (spec["size"] // 4) ** 2, 1024), relu(),
        nn.Dropout(1 - nets.LENET_KEEP),
        nn.Linear(1024, spec["classes"]),
    )  # fmt: skip


def prepare(name, batch, threads, parallel=lambda net: net):
    """Returns (version, parameter count, a function that runs one training step and returns its loss).

    `parallel` makes the net one of several ranks' (DistributedDataParallel)."""
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(1)
    spec = nets.NETS[name]
    net = make_net(name, spec).to(memory_format=torch.channels_last).train()
    count = sum(p.numel() for p in net.parameters())
    x = torch.randn(batch, spec["channels"], spec["size"], spec["size"])
    x = x.to(memory_format=torch.channels_last)
    labels = torch.randint(spec["classes"], (batch,))
    kernels = [p for p in net.parameters() if p.dim() > 1]
    others = [p for p in net.parameters() if p.dim() == 1]
    groups = [{"params": kernels, "weight_decay": nets.WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    sgd = torch.optim.SGD(groups, lr=nets.LEARNING_RATE, momentum=nets.MOMENTUM, fused=True)
    net = parallel(net)

    def step():
        sgd.zero_grad(set_to_none=True)
        loss = F.cross_entropy(net(x), labels)
        loss.backward()
        sgd.step()
        return loss.item()

    return torch.__version__, count, step
