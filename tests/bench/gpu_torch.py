#!/usr/bin/env python3
"""Measures PyTorch's training speed on one GPU at its best settings, to compare with `carole bench train --backend=cuda`.

    python tests/bench/gpu_torch.py --model_name=resnet_v1_50 --precision=bf16 --batch_size=64,128,256

The settings are channels_last, torch.compile, fused SGD with momentum, autocast for bf16 and fp16 (with a gradient
scaler), and TF32 if asked for. Inputs are on the GPU. Prints one line of JSON for each batch size, for all steps after
the warm-up, which compiles; `carole bench train` counts alike. If a batch size fails (it may not fit into memory), a
line on standard error says so, and the others are still measured. With --when=FILE, the program creates FILE.ready
after the warm-up and measures once FILE exists. So several of these programs can compile at the same time.
"""

import argparse
import json
import os
import pathlib
import sys
import time

import torch

import peer_nets as nets
import torch_nets


def mark(device):
    if device == "cpu":
        return time.perf_counter()
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def seconds_between(a, b):
    return b - a if isinstance(a, float) else a.elapsed_time(b) / 1e3


def measure(args, batch):
    spec = nets.NETS[args.model_name]
    torch.manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = args.precision == "tf32"
    torch.backends.cudnn.benchmark = True
    net = torch_nets.make_net(args.model_name).to(args.device, memory_format=torch.channels_last).train()
    images = torch.randn(batch, spec["channels"], spec["size"], spec["size"], device=args.device)
    images = images.to(memory_format=torch.channels_last)
    labels = torch.randint(spec["classes"], (batch,), device=args.device)
    trained = [p for p in net.parameters() if p.requires_grad]
    sgd = torch.optim.SGD(trained, lr=1e-3, momentum=nets.MOMENTUM, fused=True)
    torch.compiler.reset()  # otherwise a second batch size would be compiled for variable sizes
    forward = net if args.eager else torch.compile(net, mode=args.mode)
    narrow = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(args.precision)
    scaler = torch.amp.GradScaler(args.device, enabled=args.precision == "fp16")

    def step():
        sgd.zero_grad(set_to_none=True)
        with torch.autocast(args.device, narrow or torch.bfloat16, enabled=narrow is not None):
            loss = torch_nets.loss_of(forward(images), labels)
        scaler.scale(loss).backward()
        scaler.step(sgd)
        scaler.update()

    def wait():
        if args.device == "cuda":
            torch.cuda.synchronize()

    for _ in range(args.warmup_steps):
        step()
    wait()
    if args.when:
        torch.cuda.empty_cache()  # other programs measure in the meantime
        pathlib.Path(args.when + ".ready").touch()
        while not os.path.exists(args.when):
            time.sleep(0.02)
    begin = mark(args.device)
    for _ in range(args.steps):
        step()
    end = mark(args.device)
    wait()
    return {
        "program": f"pytorch {torch.__version__}",
        "net": args.model_name,
        "precision": args.precision,
        "compiled": not args.eager,
        "cudnn": torch.backends.cudnn.version(),
        "batch_size": batch,
        "images_per_second": round(batch * args.steps / seconds_between(begin, end), 1),
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model_name", default="resnet_v1_50", choices=sorted(nets.NETS))
    parser.add_argument("--precision", default="bf16", choices=["fp32", "tf32", "bf16", "fp16"])
    parser.add_argument("--batch_size", default="64", help="one or more, comma-separated")
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--warmup_steps", type=int, default=10)
    parser.add_argument("--device", default="cuda", choices=["cuda", "cpu"])
    parser.add_argument("--when", default="", metavar="FILE", help="measure once this file exists")
    parser.add_argument("--mode", default="default", help="mode of torch.compile: default, reduce-overhead, max-autotune")
    parser.add_argument("--eager", action="store_true", help="do not use torch.compile")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        sys.exit("[bench] PyTorch: finds no GPU that it can use")
    measured = 0
    for batch in args.batch_size.split(","):
        try:
            print(json.dumps(measure(args, int(batch))), flush=True)
            measured += 1
        except Exception as error:  # torch.compile and the GPU may raise errors of any type
            what = str(error).strip().splitlines() or [""]
            print(f"[bench] batch {batch}: {type(error).__name__}: {what[0]}", file=sys.stderr, flush=True)
    sys.exit(measured == 0)


if __name__ == "__main__":
    main()
