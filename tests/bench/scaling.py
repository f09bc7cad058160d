#!/usr/bin/env python3
"""What training together costs: N ranks of one thread beside N trainings of one rank that run at the same time.

    ./run bench-scaling                             2 ranks, three nets, 7 rounds
    ./run bench-scaling --nets=resnet_v1_50 --rounds=3 --json=out.json

Both ways use the same cores, one for each rank, so that the ratio shows communication and waiting alone. PyTorch does
the same with DistributedDataParallel over gloo, for the nets it is written for here (peer_nets.py). Measurements are
interleaved; the ratio is that of the medians over the rounds, beside the ratios of single rounds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile

import peer_nets
import peers

NETS = {"resnet_v1_50": (16, 8), "vgg_16": (8, 6), "mobilenet_v2": (16, 25)}  # batch of each rank, timed steps
WARMUP_STEPS = 3


def torch_rank(args):
    """One process of PyTorch's: alone, or with --store one rank of several."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import peer_torch

    net = args.nets[0]
    parallel = lambda module: module
    if args.store:
        dist.init_process_group("gloo", init_method="file://" + args.store, rank=args.rank, world_size=args.ranks)
        parallel = lambda module: DistributedDataParallel(module, gradient_as_bucket_view=True)
    _, parameters, step = peer_torch.prepare(net, NETS[net][0], 1, parallel)
    if parameters != peer_nets.NETS[net]["parameters"]:
        sys.exit(f"[bench] torch {net}: got {parameters} parameters, want {peer_nets.NETS[net]['parameters']}")
    print(json.dumps(peers.time_steps(step, NETS[net][0], NETS[net][1], WARMUP_STEPS)))
    if args.store:
        dist.destroy_process_group()


def together(commands, env, timeout):
    """Runs the commands at the same time, each on a core of its own where `env` does not say; their last JSON."""
    jobs = []
    for core, command in enumerate(commands):
        pin = (lambda c=core: os.sched_setaffinity(0, {peers.cores(c + 1)[c]})) if len(commands) > 1 else None
        jobs.append(subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                     preexec_fn=pin))  # fmt: skip
    results = []
    for command, job in zip(commands, jobs):
        out, err = job.communicate(timeout=timeout)
        result = peers.last_json(out)
        if job.returncode != 0 or result is None:
            sys.exit(f"[bench] {' '.join(command)}: exit code {job.returncode}\n{out}{err}")
        results.append(result["images_per_second"])
    return results


def run_carole(net, args, ranks):
    batch, steps = NETS[net]
    train = [args.carole, "bench", "train", f"--model_name={net}", f"--batch_size={batch}", "--threads=1", "--json",
             f"--steps={steps}", f"--warmup_steps={WARMUP_STEPS}"]  # fmt: skip
    env = peers.mpi_environment()
    if ranks > 1:
        return together([["mpirun", "-np", str(ranks), *train]], env, args.timeout)[0]
    return sum(together([train] * args.ranks, env, args.timeout))


def run_torch(net, args, ranks):
    env = peers.environment("torch", 1)
    env.pop("GOMP_CPU_AFFINITY")  # `together` pins the processes
    with tempfile.TemporaryDirectory() as folder:
        store = [f"--store={folder}/store"] if ranks > 1 else []
        commands = [[sys.executable, os.path.abspath(__file__), f"--nets={net}", f"--ranks={args.ranks}",
                     f"--rank={rank}", *store] for rank in range(args.ranks)]  # fmt: skip
        return sum(together(commands, env, args.timeout))


def summarize(net, runs):
    """Prints the net's table; returns its rows."""
    rows = []
    print(f"\n{net}: batch {NETS[net][0]} on each rank, fp32, images/s, medians of {len(next(iter(runs.values())))} rounds")
    for who in sorted({who for who, _ in runs}):
        alone, ranks = runs[who, "alone"], runs[who, "ranks"]
        ratio = statistics.median(ranks) / statistics.median(alone)
        single = sorted(r / a for r, a in zip(ranks, alone))
        rows.append({"net": net, "contender": who, "alone": alone, "ranks": ranks, "ratio": ratio})
        print(f"  {who:8}alone, summed {statistics.median(alone):8.2f}   as ranks {statistics.median(ranks):8.2f}"
              f"   ratio {ratio:.3f} (rounds {single[0]:.2f} to {single[-1]:.2f})")  # fmt: skip
    return rows


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", type=lambda text: text.split(","), default=list(NETS), help="comma-separated")
    parser.add_argument("--contenders", type=lambda text: text.split(","), default=["carole", "torch"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    peers.add_job_arguments(parser)
    return parser.parse_args()


def main():
    args = parse_arguments()
    if args.rank is not None:
        torch_rank(args)
        return
    peers.begin(args)
    peers.cores(args.ranks)
    rows = []
    for net in args.nets:
        runs = {}
        for i in range(args.rounds):
            for who, run in (("carole", run_carole), ("torch", run_torch)):
                if who not in args.contenders or (who == "torch" and net not in peer_nets.NETS):
                    continue
                for how, ranks in (("alone", 1), ("ranks", args.ranks)):
                    runs.setdefault((who, how), []).append(run(net, args, ranks))
                    print(f"round {i + 1}/{args.rounds}  {net} {who} {how} {runs[who, how][-1]:.2f}", file=sys.stderr)
        rows += summarize(net, runs)
    peers.save(args, "scaling", rows)


if __name__ == "__main__":
    main()
