#!/usr/bin/env python3
"""Compares the training speed of carole, PyTorch and TensorFlow: same nets, same machine, same threads, interleaved.

    ./run bench                                     five nets, 2 threads, 5 rounds
    ./run bench --nets=lenet --rounds=9 --json=out.json
    ./run bench --precision=bf16                    compares with PyTorch's autocast

Each measurement is a separate process, in the order A B C A B C ...; the table shows medians over the rounds. Input is
synthetic and made once. The optimizer is momentum with L2 regularization of weights; batch norm is in training mode.
Each contender runs with the settings that its makers recommend for a CPU (see `environment` below), on the same cores.
A contender whose net has another number of parameters is refused, since it would not do the same work.
"""

import argparse
import glob
import importlib
import itertools
import json
import math
import os
import platform
import re
import statistics
import subprocess
import sys
import time

import peer_environment
import peer_nets

HERE = os.path.dirname(os.path.abspath(__file__))
CONTENDERS = ("carole", "torch", "tensorflow")
NOT_IMPLEMENTED = {("inception_v3", "tensorflow")}  # skipped
STEPS = {"lenet": (200, 20)}  # timed, warm-up
LARGE_NET_STEPS = (8, 2)


def time_steps(step, batch, steps, warmup):
    """Returns the median time of a training step in this process, the speed, and the time of each step's end."""
    for _ in range(max(warmup, 1)):
        loss = step()
    seconds, ends = [], []
    for _ in range(steps):
        start = time.monotonic()
        loss = step()
        ends.append(time.monotonic())
        seconds.append(ends[-1] - start)
    if not math.isfinite(loss):
        sys.exit(f"[bench] loss: got {loss}, want a finite number")
    median = statistics.median(seconds)
    return {"step_ms_median": 1000 * median, "images_per_second": batch / median, "step_ends_s": ends}


def worker(args):
    """Times one peer in this process and prints one JSON object."""
    net = args.nets[0]
    batch = peer_nets.NETS[net]["batch"]
    options = {"bf16": True} if args.precision == "bf16" else {}
    version, step = importlib.import_module("peer_" + args.worker).prepare(net, batch, args.threads, **options)
    print(json.dumps({"version": version} | time_steps(step, batch, args.steps, args.warmup_steps)))


def cores(threads):
    """Returns the cores for this many threads."""
    allowed = sorted(os.sched_getaffinity(0))
    if len(allowed) < threads:
        sys.exit(f"[bench] --threads: got {threads}, want at most {len(allowed)}, the cores this process may use")
    return allowed[:threads]


def environment(contender, threads):
    """Returns the environment in which a contender is fastest; carole needs no settings."""
    env = dict(os.environ)
    if contender == "carole":
        return env
    env["TF_CPP_MIN_LOG_LEVEL"] = "3"
    env["OMP_NUM_THREADS"] = str(threads)
    env["GOMP_CPU_AFFINITY"] = " ".join(str(c) for c in cores(threads))
    tcmalloc = sorted(glob.glob("/usr/lib/*-linux-gnu/libtcmalloc_minimal.so.4"))
    if not tcmalloc:
        sys.exit("[bench] libtcmalloc_minimal.so.4: not found; run apt-get install libtcmalloc-minimal4")
    env["LD_PRELOAD"] = tcmalloc[0]
    cuda = peer_environment.cuda_folder()
    if contender == "torch" and cuda:
        env["LD_LIBRARY_PATH"] = cuda
    return env


def command(contender, net, args):
    steps, warmup = STEPS.get(net, LARGE_NET_STEPS)
    steps, warmup = args.steps or steps, args.warmup_steps or warmup
    batch = peer_nets.NETS[net]["batch"]
    if contender == "carole":
        return [args.carole, "bench", "train", f"--model_name={net}", f"--batch_size={batch}", "--json",
                f"--threads={args.threads}", f"--precision={args.precision}", f"--steps={steps}",
                f"--warmup_steps={warmup}"]  # fmt: skip
    return [sys.executable, os.path.abspath(__file__), "--worker", contender, "--nets", net, "--threads",
            str(args.threads), "--precision", args.precision, "--steps", str(steps),
            "--warmup_steps", str(warmup)]  # fmt: skip


def is_implemented(net, contender, precision):
    return (net, contender) not in NOT_IMPLEMENTED and (contender != "tensorflow" or precision == "fp32")


def contenders_of(net, args):
    return [contender for contender in args.contenders if is_implemented(net, contender, args.precision)]


def mpi_environment():
    """Returns the environment for mpirun. Open MPI runs as root only if both variables are set."""
    return dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1")


def add_job_arguments(parser):
    """Adds the flags of benchmarks whose measurements are jobs with several ranks."""
    parser.add_argument("--timeout", type=int, default=600, help="time limit of one measurement, in seconds")
    parser.add_argument("--json", metavar="FILE", help="write all measurements to this file")
    parser.add_argument("--carole", default=os.path.join(HERE, "..", "..", "build", "carole"))
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)


def begin(args):
    """Checks that the program exists, and prints what machine this is."""
    if not os.access(args.carole, os.X_OK):
        sys.exit(f"[bench] --carole={args.carole}: not found; run ./run build")
    print(f"{processor()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f} before the start", flush=True)


def save(args, name, rows):
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"processor": processor(), name: rows}, file, indent=1)


def last_json(text):
    lines = [line for line in text.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else None


def measure(contender, net, args):
    done = subprocess.run(
        command(contender, net, args), env=environment(contender, args.threads), text=True, capture_output=True,
        timeout=args.timeout, preexec_fn=lambda: os.sched_setaffinity(0, cores(args.threads)))  # fmt: skip
    result = last_json(done.stdout)
    if done.returncode != 0 or result is None:
        sys.exit(f"[bench] {contender} {net}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    if contender == "carole":
        peer_nets.check_parameters(net, parameters_in_summary(args.carole, net))
    return {"net": net, "contender": contender, "version": result.get("version", ""),
            "images_per_second": result["images_per_second"], "step_ms_median": result["step_ms_median"]}  # fmt: skip


def parameters_in_summary(carole, net):
    """Returns the number of parameters of the net, including the auxiliary head that it has in training."""
    command = [carole, "model", "summary", net, f"--num_classes={peer_nets.NETS[net]['classes']}"]
    text = subprocess.run(command, text=True, capture_output=True, check=True).stdout
    return sum(int(count) for count in re.findall(r"(\d+) trainable parameters", text))


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        names = [line.split(":", 1)[1].strip() for line in file if line.startswith("model name")]
    return names[0] if names else platform.machine()


def summarize(results, net, args):
    """Prints the table of a net, and returns its rows."""
    spec, rows = peer_nets.NETS[net], []
    for contender in contenders_of(net, args):
        runs = [r for r in results if r["net"] == net and r["contender"] == contender]
        speeds = [r["images_per_second"] for r in runs]
        rows.append({"net": net, "contender": contender, "version": runs[0]["version"], "rounds": len(runs),
                     "images_per_second": statistics.median(speeds), "lowest": min(speeds), "highest": max(speeds),
                     "step_ms_median": statistics.median(r["step_ms_median"] for r in runs)})  # fmt: skip
    size = f"{spec['size']}x{spec['size']}x{spec['channels']}"
    print(f"\n{net}: batch {spec['batch']}, {size}, {args.precision}, {spec['parameters']:,} parameters")
    print(f"  {'':12}{'version':16}{'images/s':>11}{'lowest':>10}{'highest':>10}{'ms/step':>10}")
    for r in rows:
        print(f"  {r['contender']:12}{r['version']:16}{r['images_per_second']:>11,.1f}"
              f"{r['lowest']:>10,.1f}{r['highest']:>10,.1f}{r['step_ms_median']:>10,.1f}")  # fmt: skip
    peers = [r for r in rows if r["contender"] != "carole"]
    ours = [r for r in rows if r["contender"] == "carole"]
    if ours and peers:
        best = max(peers, key=lambda r: r["images_per_second"])
        ratio = ours[0]["images_per_second"] / best["images_per_second"]
        print(f"  carole / best peer ({best['contender']}): {ratio:.2f}")
    return rows


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nets", default=",".join(peer_nets.NETS), help="comma-separated")
    parser.add_argument("--contenders", default=",".join(CONTENDERS), help="comma-separated")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--precision", choices=("fp32", "bf16"), default="fp32")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, help="timed steps of one measurement")
    parser.add_argument("--warmup_steps", type=int, help="steps before the timed steps, at least 1")
    parser.add_argument("--timeout", type=int, default=600, help="time limit of one measurement, in seconds")
    parser.add_argument("--json", metavar="FILE", help="write all measurements and medians to this file")
    parser.add_argument("--carole", default=os.path.join(HERE, "..", "..", "build", "carole"))
    parser.add_argument("--worker", choices=CONTENDERS[1:], help=argparse.SUPPRESS)
    args = parser.parse_args()
    for flag, allowed in (("nets", peer_nets.NETS), ("contenders", CONTENDERS)):
        setattr(args, flag, getattr(args, flag).split(","))
        unknown = [name for name in getattr(args, flag) if name not in allowed]
        if unknown:
            parser.error(f"--{flag}: got {unknown[0]}, want one of {', '.join(allowed)}")
    return args


def main():
    args = parse_arguments()
    if args.worker:
        worker(args)
        return
    if "carole" in args.contenders and not os.access(args.carole, os.X_OK):
        sys.exit(f"[bench] --carole={args.carole}: not found; run ./run build")
    print(f"{processor()}, {args.threads} of {os.cpu_count()} cores, load {os.getloadavg()[0]:.2f} before the start")
    for net, contender in itertools.product(args.nets, args.contenders):
        if not is_implemented(net, contender, args.precision):
            print(f"skipped: {net} in {args.precision} by {contender}: not implemented here")
    results, rows = [], []
    for net in args.nets:
        for i in range(args.rounds):
            for contender in contenders_of(net, args):
                results.append(measure(contender, net, args))
                speed = results[-1]["images_per_second"]
                print(f"round {i + 1}/{args.rounds}  {net:14}{contender:12}{speed:10,.1f} images/s", flush=True)
    for net in args.nets:
        rows += summarize(results, net, args)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as file:
            json.dump({"processor": processor(), "threads": args.threads, "precision": args.precision,
                       "medians": rows, "runs": results}, file, indent=1)  # fmt: skip


if __name__ == "__main__":
    main()
