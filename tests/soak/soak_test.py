"""Tests of the soak's own arithmetic: a leak is found, and noise is not one."""

import os
import random
import shutil
import signal
import subprocess
import time
import unittest
from unittest import mock

import soak


def samples_of(memory_of):
    return [(float(t), {"memory": memory_of(t), "files": 20, "threads": 8 + (t % 7 == 0)}) for t in range(600)]


class Growth(unittest.TestCase):
    def test_line_is_fitted(self):
        slope, error = soak.fit_line([0, 1, 2, 3], [5, 7, 9, 11])
        self.assertAlmostEqual(slope, 2)
        self.assertAlmostEqual(error, 0)

    def test_a_leak_is_found(self):
        growth, _, allowed, _ = soak.growth_of(samples_of(lambda t: 2e8 + 5e4 * t), "memory")
        self.assertGreater(growth, allowed)

    def test_noise_is_no_leak(self):
        rng = random.Random(1)
        growth, _, allowed, _ = soak.growth_of(samples_of(lambda t: 2e8 + rng.gauss(0, 4e6)), "memory")
        self.assertLess(abs(growth), allowed)

    def test_a_copy_that_lives_longer_and_longer_is_no_leak(self):
        """A checkpoint is written more slowly each time, so its copy of the weights is there more often."""
        rng = random.Random(1)
        growth, _, allowed, _ = soak.growth_of(samples_of(lambda t: 2e8 + 3e7 * (rng.random() < t / 800)), "memory")
        self.assertLess(abs(growth), allowed)

    def test_a_leak_is_found_next_to_a_copy(self):
        rng = random.Random(1)
        growth, _, allowed, _ = soak.growth_of(samples_of(lambda t: 2e8 + 5e4 * t + 3e7 * (rng.random() < 0.5)), "memory")
        self.assertGreater(growth, allowed)

    def test_what_comes_and_goes_is_no_leak(self):
        growth, _, allowed, _ = soak.growth_of(samples_of(lambda t: 2e8), "threads")
        self.assertLess(abs(growth), allowed)


class Hang(unittest.TestCase):
    """A job hangs if trainings without faults end next to it. The yardstick is replaced by a sleep of as many seconds."""

    def setUp(self):
        self.soak = soak.Soak("carole", 1, 1)
        self.addCleanup(shutil.rmtree, self.soak.folder)

    def end_of_job(self, seconds, yardstick_seconds, freeze=False, grace=0.2):
        def run_yardstick(_):
            time.sleep(yardstick_seconds)
            return 0

        self.soak.run_yardstick = run_yardstick
        job = subprocess.Popen(["sleep", str(seconds)], start_new_session=True)
        self.addCleanup(job.kill)
        if freeze:
            os.kill(job.pid, signal.SIGSTOP)
        with mock.patch.object(soak, "GRACE", grace):
            code = self.soak.end_of(job)
        self.assertIsNotNone(job.returncode, "the job was left over")
        return code

    def test_a_job_that_ends_at_once_needs_no_yardstick(self):
        self.assertEqual(self.end_of_job(0, 0, grace=600), 0)
        self.assertEqual(self.soak.counts["yardsticks"], 0)

    def test_a_frozen_job_is_found(self):
        self.assertIsNone(self.end_of_job(600, 0.1, freeze=True))
        self.assertEqual(self.soak.counts["yardsticks"], soak.YARDSTICKS)

    def test_a_busy_machine_is_no_hang(self):
        """The job takes ten times as long as the grace, and so does everything else."""
        self.assertEqual(self.end_of_job(2, 2), 0)


if __name__ == "__main__":
    unittest.main()
