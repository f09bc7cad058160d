"""PyTorch with its fastest settings for a CPU: eager, channels_last, fused SGD. peers.py sets threads and allocator."""

import torch

import peer_nets as nets
import torch_nets

NETS = torch_nets.NETS


def prepare(name, batch, threads, parallel=lambda net: net, bf16=False):
    """Returns (version, a function that runs one training step and returns its loss).

    `parallel` wraps the net for training on several ranks (DistributedDataParallel). `bf16` uses autocast, which keeps
    weights and losses in fp32.
    """
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    torch.manual_seed(1)
    spec = nets.NETS[name]
    net = torch_nets.make_net(name).to(memory_format=torch.channels_last).train()
    x = torch.randn(batch, spec["channels"], spec["size"], spec["size"])
    x = x.to(memory_format=torch.channels_last)
    labels = torch.randint(spec["classes"], (batch,))
    trained = [p for p in net.parameters() if p.requires_grad]
    kernels = [p for p in trained if p.dim() > 1]
    others = [p for p in trained if p.dim() == 1]
    groups = [{"params": kernels, "weight_decay": nets.WEIGHT_DECAY}, {"params": others, "weight_decay": 0.0}]
    sgd = torch.optim.SGD(groups, lr=nets.LEARNING_RATE, momentum=nets.MOMENTUM, fused=True)
    net = parallel(net)

    def step():
        sgd.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=bf16):
            loss = torch_nets.loss_of(net(x), labels)
        loss.backward()
        sgd.step()
        return loss.item()

    return torch.__version__, step
