#!/usr/bin/env python3
"""Trains a small net again and again while faults happen, and watches what a long training holds.

    soak.py CAROLE MINUTES [SEED]

Two jobs run at the same time until the minutes are over.

- The chapters. Each is a training of STEPS steps with --reproducible. Its ranks are killed, frozen or asked to stop at
  random moments. Then the same training is started again, with another number of ranks. At the end its weights must be
  those of a run without faults, to the bit.
- The long training of two ranks. It saves and evaluates all the time, and is frozen now and then. Each second, the memory,
  the open files and the threads of its ranks are read. A line is fitted to what they hold (held_in_parts). It is flat if
  it grows by no more than a bound over the whole run (GROWTH, MEMORY_SHARE). On a slow machine the soak takes longer than
  the minutes, until there are enough samples.

A job that does not end after a fault is killed and counted. Seconds alone cannot tell that, because on a busy machine each
job takes longer. So after GRACE seconds, YARDSTICKS trainings without faults run next to it, one after another. The job
hangs if they have all run from start to end, and it has still not ended. If its ranks were still connecting, that is not
an error of carole: MPI has no deadline there, and carole's own is 5 minutes. The exit code is 0 or 1.
"""

import collections
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

STEPS = 60
GLOBAL_BATCH = 16
RANKS = (1, 2, 4)
GRACE = 120  # seconds for a job to end after a fault, on any machine; the deadline of its collectives is 20
YARDSTICKS = 4  # trainings without faults; more than one, as a job may have twice their ranks, and saves more often
LONGEST_YARDSTICK = 1800  # seconds
YARDSTICK_DEADLINE = 600  # seconds; a rank of a yardstick that comes later on a busy machine is not lost
POLL = 0.1  # seconds
MAX_FAULTS = 6  # in one chapter; then it may end
FAULTS = ("kill", "kill", "freeze", "freeze and return", "sigterm", "sigusr1", "none")
GOOD_CODES = {0, 69, 75, 128 + 9, 128 + 10, 128 + 15, 1, 205}  # with and after a fault; 1: mpirun was asked to stop
MIN_SAMPLES = 30  # of a process
LONGEST_WAIT_FOR_SAMPLES = 900  # seconds after the minutes
PART, MAX_PARTS = 5, 60  # samples of a part, at least, and parts of a run
SETTLING = 0.3  # the part of the samples at the start that is left out: caches and pools are still growing
GROWTH = {"memory": 8e6, "files": 1.0, "threads": 1.0}  # bytes, files, threads over the whole run
MEMORY_SHARE = 0.02  # or this part of the mean memory, if that is more
ENV = {**os.environ, "OMP_WAIT_POLICY": "passive", "OMPI_MCA_mpi_yield_when_idle": "1",
       "OMPI_MCA_odls_base_sigkill_timeout": "3"}  # fmt: skip


def write_images(folder, stem, count, rng):
    with open(os.path.join(folder, f"{stem}-images-idx3-ubyte"), "wb") as file:
        file.write(struct.pack(">4I", 0x803, count, 28, 28) + rng.randbytes(count * 28 * 28))
    with open(os.path.join(folder, f"{stem}-labels-idx1-ubyte"), "wb") as file:
        file.write(struct.pack(">2I", 0x801, count) + bytes(i % 10 for i in range(count)))


def fit_line(times, values):
    """Returns slope and standard error of the slope of a least-squares line."""
    n = len(times)
    mean_t, mean_v = sum(times) / n, sum(values) / n
    spread = sum((t - mean_t) ** 2 for t in times)
    slope = sum((t - mean_t) * (v - mean_v) for t, v in zip(times, values)) / spread
    squares = sum((v - mean_v - slope * (t - mean_t)) ** 2 for t, v in zip(times, values))
    return slope, (squares / max(1, n - 2) / spread) ** 0.5


def held_in_parts(samples, what):
    """Returns what is held in each part of the run, as (mean time, least value). samples: (time, {name: value}).

    A copy of the weights lives while a checkpoint is written, and that takes longer if other programs use the disk. So a
    mean would grow with the load of the machine. The least value grows only with what is never given back.
    """
    kept = samples[int(len(samples) * SETTLING):]
    size = max(PART, len(kept) // MAX_PARTS)
    parts = [kept[i:i + size] for i in range(0, len(kept) - size + 1, size)]
    return [(sum(t for t, _ in part) / size, min(v[what] for _, v in part)) for part in parts]


def growth_of(samples, what):
    """Returns growth over the run, its standard error, the allowed growth, and the mean of what is held."""
    times, values = zip(*held_in_parts(samples, what))
    slope, error = fit_line(times, values)
    seconds, mean = times[-1] - times[0], sum(values) / len(values)
    allowed = max(GROWTH[what], MEMORY_SHARE * mean if what == "memory" else 0)
    return slope * seconds, error * seconds, allowed, mean


def processes_with(program, text):
    """Returns the processes of this program whose command line has the text."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
            if words[0] == program.encode() and any(text.encode() in word for word in words):
                found.append(int(name))
        except OSError:
            pass  # it has ended
    return sorted(found)


def parent_of(process):
    """Returns the parent of a process, or 0 if the process has ended."""
    try:
        with open(f"/proc/{process}/stat", encoding="ascii", errors="replace") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def ranks_with(program, text):
    """Returns the ranks of a job. Processes that a rank has started are left out."""
    found = processes_with(program, text)
    return [process for process in found if parent_of(process) not in found]


def holdings_of(process):
    """Returns what a process holds, or None if it has ended."""
    try:
        with open(f"/proc/{process}/statm", encoding="ascii") as file:
            memory = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        return {"memory": memory, "files": len(os.listdir(f"/proc/{process}/fd")),
                "threads": len(os.listdir(f"/proc/{process}/task"))}  # fmt: skip
    except OSError:
        return None


def send(process, number):
    try:
        os.kill(process, number)
    except ProcessLookupError:
        pass


class Soak:
    def __init__(self, carole, minutes, seed):
        self.carole, self.seconds = carole, minutes * 60
        self.rng, self.seed = random.Random(seed), seed
        self.folder = tempfile.mkdtemp(prefix="carole-soak-")
        self.counts = collections.Counter()
        self.codes = collections.Counter()
        self.errors = []
        self.samples = collections.defaultdict(list)  # process -> [(seconds, holdings)]

    def run(self):
        try:
            self.build_data()
            start = time.monotonic()
            if self.run_yardstick("undisturbed") != 0:
                raise RuntimeError(self.log("undisturbed.log"))
            seconds = time.monotonic() - start
            self.undisturbed = self.digest(self.file("undisturbed"))
            self.end = time.monotonic() + self.seconds
            watcher = threading.Thread(target=self.watch_long_training)
            watcher.start()
            try:
                while not self.is_over() and len(self.errors) < 5:
                    self.run_chapter(seconds)
            finally:
                watcher.join()
            return self.report()
        finally:
            shutil.rmtree(self.folder, ignore_errors=True)

    def is_over(self):
        late = time.monotonic() - self.end
        samples = list(self.samples.values())  # another thread adds to them
        is_sampled = samples and min(map(len, samples)) >= MIN_SAMPLES
        return late >= (0 if is_sampled else LONGEST_WAIT_FOR_SAMPLES)

    def file(self, name):
        return os.path.join(self.folder, name)

    def build_data(self):
        raw = self.file("raw")
        os.mkdir(raw)
        write_images(raw, "train", 300, self.rng)
        write_images(raw, "t10k", 60, self.rng)
        subprocess.run([self.carole, "dataset", "build", "--dataset_name=mnist", f"--raw_dir={raw}",
                        f"--dataset_dir={self.file('data')}"], check=True, capture_output=True)  # fmt: skip

    def command(self, train_dir, ranks, steps, *more):
        words = [self.carole, "train", "--dataset_name=mnist", f"--dataset_dir={self.file('data')}",
                 f"--train_dir={train_dir}", "--model_name=lenet", "--backend=cpu", "--threads=1",
                 "--num_preprocessing_threads=1", f"--batch_size={GLOBAL_BATCH // ranks}", "--optimizer=momentum",
                 "--learning_rate=0.01", "--learning_rate_decay_type=fixed", f"--max_number_of_steps={steps}",
                 "--eval_every=20", "--eval_batch_size=20", "--collective_timeout=20", *more]  # fmt: skip
        if ranks == 1:
            return words
        return ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "-np", str(ranks), *words]

    def start(self, words, log):
        with open(self.file(log), "wb") as file:
            return subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT, env=ENV,
                                    start_new_session=True)

    def log(self, name):
        with open(self.file(name), encoding="utf-8", errors="replace") as file:
            return file.read()

    def digest(self, train_dir):
        result = subprocess.run([self.carole, "checkpoint", "inspect", "--json", train_dir], capture_output=True,
                                text=True, check=False)
        return json.loads(result.stdout)["state_digest"] if result.returncode == 0 else result.stderr.strip()

    def run_yardstick(self, name):
        """Trains with two ranks, without faults. Returns the exit code."""
        words = self.command(self.file(name), 2, STEPS, "--reproducible", f"--collective_timeout={YARDSTICK_DEADLINE}")
        job = self.start(words, f"{name}.log")
        try:
            return job.wait(LONGEST_YARDSTICK)
        except subprocess.TimeoutExpired:
            os.killpg(job.pid, signal.SIGKILL)
            return job.wait()

    def comes_true(self, condition):
        """Waits until the condition is true. Returns False if it is not after GRACE seconds and YARDSTICKS trainings."""
        end = time.monotonic() + GRACE
        while time.monotonic() < end:
            if condition():
                return True
            time.sleep(POLL)
        if condition():
            return True
        for _ in range(YARDSTICKS):
            self.counts["yardsticks"] += 1
            name = f"yardstick-{threading.get_ident()}"
            shutil.rmtree(self.file(name), ignore_errors=True)
            code = self.run_yardstick(name)
            if condition():
                return True
            if code != 0:
                self.errors.append(f"a training without faults ended with {code}: " + self.log(f"{name}.log")[-2000:])
        return False

    def end_of(self, job):
        """Returns the exit code of a job, or None if it hangs. Then it is killed."""
        if self.comes_true(lambda: job.poll() is not None):
            return job.returncode
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        return None

    # Chapters

    def run_chapter(self, seconds):
        self.counts["chapters"] += 1
        train_dir = self.file("chapter")
        shutil.rmtree(train_dir, ignore_errors=True)
        for attempt in range(3 * MAX_FAULTS):
            fault = self.rng.choice(FAULTS) if attempt < MAX_FAULTS else "none"
            code = self.run_with_fault(train_dir, fault, seconds)
            if code == 0:
                break
            if len(self.errors) >= 5:
                return
        else:
            return self.errors.append("a chapter did not end without faults: " + self.log("chapter.log")[-2000:])
        if (digest := self.digest(train_dir)) != self.undisturbed:
            self.errors.append(f"the weights of a chapter differ: got {digest}, want {self.undisturbed}")

    def run_with_fault(self, train_dir, fault, seconds):
        """Runs the job once and returns its exit code, or None if it was killed because it did not end."""
        ranks = self.rng.choice(RANKS)
        words = self.command(train_dir, ranks, STEPS, "--reproducible", "--save_interval_secs=0.2")
        job = self.start(words, "chapter.log")
        self.counts["jobs"] += 1
        try:
            job.wait(self.rng.uniform(0, 1.2 * seconds))
        except subprocess.TimeoutExpired:
            self.inject(fault, train_dir)
        code = self.end_of(job)
        connecting = "Starting Session" not in self.log("chapter.log")
        self.remove_left_processes(train_dir, code is None)
        if code is None:
            self.count_hang(fault, connecting)
            return None
        if code < 0:
            code = 128 - code
        self.codes[code] += 1
        if code not in GOOD_CODES:
            self.errors.append(f"exit code {code} with the fault {fault}: " + self.log("chapter.log")[-2000:])
        return code

    def inject(self, fault, train_dir):
        processes = ranks_with(self.carole, train_dir)
        if not processes or fault == "none":
            return
        self.counts["fault " + fault] += 1
        process = self.rng.choice(processes)
        if fault == "kill":
            send(process, signal.SIGKILL)
        elif fault == "freeze":
            send(process, signal.SIGSTOP)
            if len(processes) == 1:  # nobody is there to notice it
                send(process, signal.SIGKILL)
        elif fault == "freeze and return":
            send(process, signal.SIGSTOP)
            time.sleep(self.rng.uniform(0.1, 2))
            send(process, signal.SIGCONT)
        else:
            for each in processes if fault == "sigterm" else [process]:
                send(each, signal.SIGTERM if fault == "sigterm" else signal.SIGUSR1)

    def count_hang(self, fault, connecting):
        self.counts["jobs that did not end" + (", ranks were connecting" if connecting else "")] += 1
        if not connecting:
            self.errors.append(f"no end after the fault {fault}: " + self.log("chapter.log")[-2000:])

    def remove_left_processes(self, train_dir, expected):
        """mpirun does not wait for ranks that it killed, so they may end a little later."""
        if not expected and self.comes_true(lambda: not processes_with(self.carole, train_dir)):
            return
        left = processes_with(self.carole, train_dir)
        for process in left:
            send(process, signal.SIGKILL)
        if left and not expected:
            self.errors.append(f"processes were left over: {left}")

    # The long training

    def watch_long_training(self):
        train_dir = self.file("long")
        job = self.start(self.command(train_dir, 2, 10**9, "--save_interval_secs=1"), "long.log")
        code = None
        try:
            self.sample_long_training(job, train_dir)
            for process in ranks_with(self.carole, train_dir):
                send(process, signal.SIGUSR1)
            code = self.end_of(job)
        except Exception:  # of this thread, which nobody else would see
            self.errors.append(traceback.format_exc())
            os.killpg(job.pid, signal.SIGKILL)
            job.wait()
        self.remove_left_processes(train_dir, code is None)
        if code != 75:
            self.errors.append(f"the long training ended with {code}, want 75: " + self.log("long.log")[-2000:])

    def sample_long_training(self, job, train_dir):
        """Notes what the ranks hold until the soak is over."""
        rng = random.Random(self.seed + 1)
        start, has_started = time.monotonic(), False
        while not self.is_over() and job.poll() is None:
            time.sleep(1)
            has_started = has_started or "global step 100:" in self.log("long.log")
            if not has_started:
                continue
            for process in ranks_with(self.carole, train_dir):
                if holdings := holdings_of(process):
                    self.samples[process].append((time.monotonic() - start, holdings))
            if rng.random() < 0.02 and (processes := ranks_with(self.carole, train_dir)):
                self.counts["long training frozen"] += 1
                process = rng.choice(processes)
                send(process, signal.SIGSTOP)
                time.sleep(rng.uniform(0.1, 2))
                send(process, signal.SIGCONT)

    def report(self):
        print(f"seed {self.seed}, {self.seconds / 60:g} minutes")
        for name, count in sorted(self.counts.items()):
            print(f"  {count:5d} {name}")
        print("  exit codes: " + ", ".join(f"{code}: {count}" for code, count in sorted(self.codes.items())))
        for process, samples in sorted(self.samples.items()):
            if len(samples) < MIN_SAMPLES:
                self.errors.append(f"process {process}: got {len(samples)} samples, want at least {MIN_SAMPLES}")
                continue
            for what in GROWTH:
                growth, error, allowed, mean = growth_of(samples, what)
                unit = 1e6 if what == "memory" else 1
                print(f"  process {process}: {what} grows by {growth / unit:.2f} +- {error / unit:.2f} of "
                      f"{mean / unit:.1f}{' MB' if unit > 1 else ''} in {len(samples)} samples")
                if growth > allowed:
                    self.errors.append(f"process {process}: {what} grows by {growth:.3g}, want at most {allowed:.3g}")
        if not self.samples:
            self.errors.append("the long training was never sampled")
        for error in self.errors:
            print("error: " + error)
        print("soak: " + ("FAILED" if self.errors else "passed"))
        return 1 if self.errors else 0


def main():
    if len(sys.argv) not in (3, 4):
        sys.exit(__doc__)
    seed = int(sys.argv[3]) if len(sys.argv) == 4 else 1
    sys.exit(Soak(os.path.realpath(sys.argv[1]), float(sys.argv[2]), seed).run())


if __name__ == "__main__":
    main()
