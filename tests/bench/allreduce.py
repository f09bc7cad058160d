#!/usr/bin/env python3
"""Compares the speed of all-reduce on one machine: carole, Open MPI's MPI_Allreduce and PyTorch's gloo.

    ./run bench-allreduce                           2 and 4 ranks, 4 KB to 256 MB, 3 rounds
    ./run bench-allreduce --ranks=2 --sizes=4096,1048576 --json=out.json

Each measurement is a separate job, in the order A B C A B C ...; the table shows medians over the rounds. All jobs
reduce fp32 in place. Each rank writes its buffer before each reduction, and the slowest rank counts. Open MPI runs with
its default choice and with each of its algorithms; the table shows the best one for each size. `bound` is the speed of
an algorithm that reads and writes each byte once, at the speed at which all ranks together memcpy the same bytes.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time

import peers

SIZES = (4 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20)
OPEN_MPI = {0: "default", 3: "recursive doubling", 4: "ring", 5: "segmented ring", 6: "Rabenseifner"}
WARMUP_STEPS = 3


def gloo_rank(args):
    """Runs one rank of the gloo job; rank 0 prints one JSON object for each size."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + args.store, rank=args.rank, world_size=args.ranks[0])
    for size in args.sizes:
        tensor = torch.zeros(size // 4)
        seconds = torch.zeros(args.steps, dtype=torch.float64)
        for i in range(WARMUP_STEPS + args.steps):
            tensor.fill_(i)
            dist.barrier()
            start = time.perf_counter()
            dist.all_reduce(tensor)
            seconds[i - WARMUP_STEPS] = time.perf_counter() - start
        dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
        if args.rank == 0:
            print(json.dumps({"bytes": size, "time_us_median": 1e6 * statistics.median(seconds.tolist())}))
    dist.destroy_process_group()


def rows_of(text):
    return {row["bytes"]: row for row in map(json.loads, (x for x in text.splitlines() if x.startswith("{")))}


def fail(what, code, text):
    sys.exit(f"[bench] {what}: exit code {code}\n{text}")


def run_gloo(ranks, args):
    env = peers.environment("torch", 1)
    env.pop("GOMP_CPU_AFFINITY")  # the ranks would all be pinned to the same core
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, os.path.abspath(__file__), f"--ranks={ranks}", f"--steps={args.steps}",
                   "--sizes=" + ",".join(map(str, args.sizes)), f"--store={folder}/store"]  # fmt: skip
        jobs = [subprocess.Popen([*command, f"--rank={r}"], env=env, text=True, stdout=subprocess.PIPE,
                                 stderr=subprocess.STDOUT) for r in range(ranks)]  # fmt: skip
        texts = [job.communicate(timeout=args.timeout)[0] for job in jobs]
    for job, text in zip(jobs, texts):
        if job.returncode != 0:
            fail("gloo", job.returncode, text)
    return rows_of(texts[0])


def run_carole(ranks, args, all_reduce, open_mpi=0):
    command = ["mpirun", "--oversubscribe", "-np", str(ranks)]
    if open_mpi:
        command += ["--mca", "coll_tuned_use_dynamic_rules", "1"]
        command += ["--mca", "coll_tuned_allreduce_algorithm", str(open_mpi)]
    command += [args.carole, "bench", "allreduce", f"--all_reduce={all_reduce}", "--threads=1", "--json"]
    command += [f"--steps={args.steps}", f"--warmup_steps={WARMUP_STEPS}", "--sizes=" + ",".join(map(str, args.sizes))]
    done = subprocess.run(command, env=peers.mpi_environment(), text=True, capture_output=True, timeout=args.timeout)
    if done.returncode != 0:
        fail(" ".join(command), done.returncode, done.stdout + done.stderr)
    return rows_of(done.stdout)


def contenders(ranks, args):
    """Returns name -> function that measures it once."""
    jobs = {"carole": lambda: run_carole(ranks, args, "auto")}
    for number, name in OPEN_MPI.items():
        jobs[f"Open MPI, {name}"] = lambda n=number: run_carole(ranks, args, "mpi", n)
    return jobs | {"gloo": lambda: run_gloo(ranks, args)}


def summarize(ranks, rounds, args):
    """Prints the table for this number of ranks, and returns its rows."""

    def median(name, size, key="time_us_median"):
        return statistics.median(measured[name][size][key] for measured in rounds)

    rows = []
    print(f"\n{ranks} ranks, bus GB/s (2(p-1)/p * bytes / time), medians of {len(rounds)} rounds")
    print(f"  {'bytes':>11}{'carole':>9}{'Open MPI':>10}{'gloo':>8}{'ratio':>8}{'of bound':>10}   best of Open MPI")
    for size in args.sizes:
        mpi = min((name for name in rounds[0] if name.startswith("Open MPI")), key=lambda name: median(name, size))
        share = 2 * (ranks - 1) / ranks
        speed = {name: share * size * 1e-3 / median(name, size) for name in ("carole", mpi, "gloo")}
        bound = share * median("carole", size, "copy_gb_per_s")
        row = {"ranks": ranks, "bytes": size, "carole_gb_per_s": speed["carole"], "open_mpi_gb_per_s": speed[mpi],
               "gloo_gb_per_s": speed["gloo"], "ratio": speed["carole"] / max(speed[mpi], speed["gloo"]),
               "of_bound": speed["carole"] / bound, "algorithm": rounds[0]["carole"][size]["algorithm"],
               "open_mpi": mpi.removeprefix("Open MPI, ")}  # fmt: skip
        rows.append(row)
        print(f"  {size:>11,}{speed['carole']:>9.2f}{speed[mpi]:>10.2f}{speed['gloo']:>8.2f}{row['ratio']:>8.2f}"
              f"{row['of_bound']:>10.2f}   {row['open_mpi']}")  # fmt: skip
    return rows


def parse_arguments():
    def numbers(text):
        return [int(number) for number in text.split(",")]

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=numbers, default=[2, 4], help="comma-separated")
    parser.add_argument("--sizes", type=numbers, default=list(SIZES), help="bytes, comma-separated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=20, help="timed reductions of one measurement")
    peers.add_job_arguments(parser)
    return parser.parse_args()


def main():
    args = parse_arguments()
    if args.store:
        gloo_rank(args)
        return
    peers.begin(args)
    rows = []
    for ranks in args.ranks:
        rounds = []
        for i in range(args.rounds):
            rounds.append({})
            for name, measure in contenders(ranks, args).items():
                rounds[-1][name] = measure()
                print(f"round {i + 1}/{args.rounds}  {ranks} ranks  {name}", file=sys.stderr, flush=True)
        rows += summarize(ranks, rounds, args)
    peers.save(args, "sums", rows)


if __name__ == "__main__":
    main()
