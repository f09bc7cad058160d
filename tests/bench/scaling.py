#!/usr/bin/env python3
"""Measures scaling efficiency: N ranks with one thread each, compared with N independent trainings at the same time.

    ./run bench-scaling                             2 ranks, three nets
    ./run bench-scaling --nets=resnet_v1_50 --turns=30 --json=out.json
    ./run bench-scaling --link=1gbit                each rank on a host of its own (as root, network namespaces)
    ./run bench-scaling --nets=vgg_16 --bucket_plan=fixed --beside=in_step --turns=5    a slow net, in less time

Both modes use the same cores, one for each rank, so that the ratio shows communication and waiting only. PyTorch is
measured in the same way, with DistributedDataParallel over gloo, for the nets of peer_nets.py.

A step of several ranks lasts as long as its slowest rank, even if reductions cost nothing, and a core that other
programs use is slow now and then. A third mode shows this effect: ranks that stay in step but do not reduce gradients
(local SGD).

The speed of a machine drifts by more than the effect that is measured. So all modes are started once and take turns of
some seconds: one mode runs while the processes of the others are stopped (SIGSTOP). A turn counts the steps that lie
completely inside it, except the first one, whose caches are cold. A ratio is the median over neighboring turns, with
its standard error.
"""

import argparse
import contextlib
import glob
import json
import math
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time

import peer_nets
import peers

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import hosts  # noqa: E402

# Batch size of each rank, unless --batch_size is given.
NETS = {name: net["batch"] for name, net in peer_nets.NETS.items()}
WARMUP_STEPS = 3
MIN_STEPS = 4.5  # length of a turn in steps: at least three must end in it, and other modes may be slower
TUNING_STEPS = 30  # about as many steps as the bucket tuner needs first (collectives/reducer/bucket_tuner.h)
BASELINES = {"alone": "independent trainings", "in_step": "ranks, no reductions"}  # what ranks are compared with


def torch_rank(args):
    """Trains in one PyTorch process: alone, or with --store as one of several ranks."""
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import peer_torch

    net = args.nets[0]
    parallel = lambda module: module
    if args.store:
        dist.init_process_group("gloo", init_method="file://" + args.store, rank=args.rank, world_size=args.ranks)
        parallel = lambda module: DistributedDataParallel(module, gradient_as_bucket_view=True)
    _, step = peer_torch.prepare(net, NETS[net], 1, parallel)
    print(json.dumps(peers.time_steps(step, NETS[net], args.steps, WARMUP_STEPS)), flush=True)
    if args.store:
        dist.destroy_process_group()
        os._exit(0)  # gloo's threads may abort the process at a normal exit


def descendants(pid):
    """Returns the process and all its descendants."""
    found = [pid]
    for parent in found:
        for children in glob.glob(f"/proc/{parent}/task/*/children"):
            try:
                with open(children, encoding="ascii") as file:
                    found += [int(child) for child in file.read().split()]
            except OSError:
                pass  # the thread has ended
    return found


class Group:
    """Processes that run at the same time. If there are several commands, each gets a core of its own."""

    def __init__(self, commands, env, batch):
        self.commands, self.batch, self.turns = commands, batch, []
        self.jobs = []
        for core, command in enumerate(commands):
            pin = (lambda c=core: os.sched_setaffinity(0, {peers.cores(c + 1)[c]})) if len(commands) > 1 else None
            self.jobs.append(subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE,
                                              stderr=subprocess.PIPE, preexec_fn=pin))  # fmt: skip
        self.signal(signal.SIGSTOP)

    def running(self):
        return all(job.poll() is None for job in self.jobs)

    def signal(self, number):
        for job in self.jobs:
            for pid in descendants(job.pid):
                try:
                    os.kill(pid, number)
                except ProcessLookupError:
                    pass

    def take_turn(self, seconds):
        """Lets the processes run for some seconds."""
        start = time.monotonic()
        self.signal(signal.SIGCONT)
        time.sleep(seconds)
        self.signal(signal.SIGSTOP)
        self.turns.append((start, time.monotonic()))

    def finish(self, timeout):
        """Waits for all processes. Returns the images per second of each turn, or None for a turn with too few steps."""
        self.signal(signal.SIGCONT)
        self.ends = []  # for each job, the times at which its steps ended
        for command, job in zip(self.commands, self.jobs):
            out, err = job.communicate(timeout=timeout)
            result = peers.last_json(out)
            if job.returncode != 0 or result is None:
                sys.exit(f"[bench] {' '.join(command)}: exit code {job.returncode}\n{out}{err}")
            self.ends.append(result["step_ends_s"])
        return [self.speed(*turn) for turn in self.turns]

    def speed(self, start, stop):
        total = 0
        for job_ends in self.ends:
            inside = [end for end in job_ends if start < end < stop]
            if len(inside) < 3:
                return None
            total += self.batch * (len(inside) - 1) / (inside[-1] - inside[0])
        return total


@contextlib.contextmanager
def linked_hosts(args):
    """Provides a host for each rank if --link is given, else None."""
    if not args.link:
        yield None
        return
    try:
        hosts.require("tc", "taskset")
        with hosts.Hosts(args.ranks) as machines:
            machines.set_rate(args.link)
            yield machines
    except hosts.Unavailable as error:
        sys.exit(f"[bench] --link: {error}")


def training(net, who, args, steps, warmup_steps=WARMUP_STEPS):
    """Returns the command and the environment of one training on one core."""
    if who == "carole":
        return [args.carole, "bench", "train", f"--model_name={net}", f"--batch_size={NETS[net]}", "--threads=1",
                f"--steps={steps}", f"--warmup_steps={warmup_steps}", f"--wire_dtype={args.wire_dtype}",
                f"--bucket_plan={args.bucket_plan}", f"--collective_timeout={args.timeout}",
                "--json"], peers.mpi_environment()  # fmt: skip
    env = peers.environment("torch", 1)
    env.pop("GOMP_CPU_AFFINITY")  # the group pins its processes
    return [sys.executable, os.path.abspath(__file__), f"--nets={net}", f"--batch_size={NETS[net]}",
            f"--ranks={args.ranks}", f"--steps={steps}", "--rank=0"], env  # fmt: skip


def time_step(net, who, args):
    """Returns the seconds of a step, measured by a short training."""
    train, env = training(net, who, args, 3)
    alone = Group([train], env, NETS[net])
    alone.finish(args.timeout)
    first, *_, last = alone.ends[0]
    return (last - first) / (len(alone.ends[0]) - 1)


def start(net, who, args, steps, folder, machines):
    """Starts all modes and returns them by name: ranks, independent trainings, and (carole only) ranks without reductions."""
    batch = NETS[net]
    train, env = training(net, who, args, steps)
    if who == "carole":
        def as_ranks(*command):
            mpirun = ["mpirun", "-np", str(args.ranks), *command]
            if machines:
                mpirun = machines.mpirun(command, peers.cores(args.ranks))
            return Group([mpirun], env, batch * args.ranks)
        tuning_steps = TUNING_STEPS if args.bucket_plan == "auto" else 0
        still, _ = training(net, who, args, steps, WARMUP_STEPS + tuning_steps)
        ways = {"ranks": as_ranks(*train)}
        if "alone" in args.baselines:
            ways["alone"] = Group([still] * args.ranks, env, batch)
        if "in_step" in args.baselines:
            ways["in_step"] = as_ranks(*still, f"--local_sgd_steps={10 * steps}")
        return ways
    ranks = [[*train, f"--rank={rank}"] for rank in range(args.ranks)]
    together = [[*rank, f"--store={folder}/store"] for rank in ranks]
    if machines:
        together = [machines.words(host, rank) for host, rank in enumerate(together)]
    return {"ranks": Group(together, env, batch), "alone": Group(ranks, env, batch)}


def measure(net, who, args):
    """Returns the speeds of neighboring turns, by the names that start() uses."""
    step_s = time_step(net, who, args)
    turn_s = max(args.seconds, MIN_STEPS * step_s)
    steps = math.ceil(args.turns * turn_s / step_s)
    with tempfile.TemporaryDirectory() as folder, linked_hosts(args) as machines:
        ways = start(net, who, args, steps, folder, machines)
        groups = ways.values()
        try:
            deadline = time.monotonic() + args.timeout
            while all(group.running() for group in groups):
                for group in groups:
                    group.take_turn(turn_s)
                if time.monotonic() > deadline:
                    sys.exit(f"[bench] {net} {who}: not finished after {args.timeout} s; use a longer --timeout")
            speeds = [group.finish(args.timeout) for group in groups]
        finally:
            for group in groups:
                group.signal(signal.SIGKILL)
    turns = [dict(zip(ways, turn)) for turn in zip(*speeds) if all(turn)]
    if len(turns) < 3:
        sys.exit(f"[bench] {net} {who}: got {len(turns)} turns with enough steps in all modes, want 3; use more --turns")
    return turns


def ratio(turns, above, below):
    ratios = [turn[above] / turn[below] for turn in turns]
    error = 1.25 * statistics.stdev(ratios) / math.sqrt(len(ratios))  # standard error of the median of normal values
    return {"ratio": statistics.median(ratios), "error": error}


def summarize(net, who, turns):
    row = {"net": net, "contender": who, "turns": turns}
    median = lambda way: f"{statistics.median(turn[way] for turn in turns):8.2f} images/s"
    words = lambda r: f"{r['ratio']:.3f} +- {r['error']:.3f}"
    print(f"{net:14}batch {NETS[net]:3}  {who:8}{'as ranks':22}{median('ranks')}   ({len(turns)} turns)", flush=True)
    _, *baselines = turns[0]
    for way in baselines:
        row[way] = ratio(turns, "ranks", way)
        print(f"{'':33}{BASELINES[way]:22}{median(way)}   ratio {words(row[way])}", flush=True)
    if row.keys() >= BASELINES.keys():
        row["in_step_of_alone"] = ratio(turns, "in_step", "alone")
        print(f"{'':33}no reductions / independent{'':12}   ratio {words(row['in_step_of_alone'])}", flush=True)
    return row


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", type=lambda text: text.split(","), default=["resnet_v1_50", "vgg_16", "mobilenet_v2"],
                        help="comma-separated")  # fmt: skip
    parser.add_argument("--contenders", type=lambda text: text.split(","), default=["carole", "torch"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--batch_size", type=int, help="batch size of each rank")
    parser.add_argument("--turns", type=int, default=20, help="turns of each mode")
    parser.add_argument("--seconds", type=float, default=9,
                        help="length of a turn, longer if steps are long; from 10 s on, carole reports a stall")  # fmt: skip
    parser.add_argument("--link", help="run each rank on a host of its own, with links of this rate, for example 1gbit")
    parser.add_argument("--beside", dest="baselines", type=lambda text: text.split(","), default=list(BASELINES),
                        help=f"what carole's ranks are compared with: {', '.join(BASELINES)}")  # fmt: skip
    parser.add_argument("--bucket_plan", default="auto", help="carole's --bucket_plan; fixed saves slow nets the tuning")
    parser.add_argument("--wire_dtype", default="fp32", help="type of carole's reductions between hosts: fp32 or bf16")
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    peers.add_job_arguments(parser)
    args = parser.parse_args()
    if not {*args.baselines} <= BASELINES.keys():
        parser.error(f"--beside: got {','.join(args.baselines)}, want some of {', '.join(BASELINES)}")
    if args.batch_size:
        NETS.update(dict.fromkeys(args.nets, args.batch_size))
    return args


def main():
    args = parse_arguments()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("[bench] ended by SIGTERM"))  # an exit also stops all processes
    if args.rank is not None:
        torch_rank(args)
        return
    peers.begin(args)
    peers.cores(args.ranks)
    rows = []
    for net in args.nets:
        for who in args.contenders:
            if who == "carole" or net in peer_nets.NETS:
                rows.append(summarize(net, who, measure(net, who, args)))
                peers.save(args, "scaling", rows)


if __name__ == "__main__":
    main()
