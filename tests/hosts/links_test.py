#!/usr/bin/env python3
"""Tests collectives over links that are slow, lose packets or are cut.

    links_test.py CAROLE_MPI_COLLECTIVES [options of unittest]

Three emulated hosts have one rank each. The test program (tests/mpi/collectives.cpp) checks its results itself.
"""

import os
import re
import subprocess
import sys
import time
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
import parallel  # noqa: E402
from hosts import Hosts, Unavailable, find_program, require, run, wait_until  # noqa: E402

PROGRAM = ""
NUM_HOSTS = 3


class LinksTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.hosts = Hosts(NUM_HOSTS)
        cls.hosts.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.hosts.__exit__()

    def run_on(self, host, *words):
        run("ip", "netns", "exec", self.hosts.space(host), *words)

    def set_rate(self, rate):
        self.hosts.set_rate(rate)
        self.addCleanup(self.hosts.set_rate, None)

    def drop(self, host, *rule):
        self.run_on(host, "iptables", "-t", "raw", "-A", "PREROUTING", *rule, "-j", "DROP")
        self.addCleanup(self.run_on, host, "iptables", "-t", "raw", "-F", "PREROUTING")

    def start(self, case, deadline):
        words = self.hosts.mpirun([PROGRAM, case, "0", str(deadline)])
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                   text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def expect_success(self, case, deadline=60):
        output, _ = (process := self.start(case, deadline)).communicate(timeout=200)
        self.assertEqual(process.returncode, 0, output)

    def test_all_reduce_over_messages(self):
        for case in ("auto", "bf16", "gather"):
            with self.subTest(case):
                self.expect_success(case)

    def test_slow_link_with_latency(self):
        """A token bucket delays packets, so the link has a low rate and a high latency."""
        self.set_rate("200mbit")
        self.expect_success("steps")

    def test_all_reduce_longer_than_the_deadline(self):
        """Each host sends 32 MB in 13 s. The operation progresses, so the deadline of 6 s does not end it."""
        self.set_rate("20mbit")
        start = time.monotonic()
        self.expect_success("large", deadline=6)
        self.assertGreater(time.monotonic() - start, 9, "the link was not slow")

    def test_lost_packets(self):
        for host in range(NUM_HOSTS):
            self.drop(host, "-i", "eth0", "-m", "statistic", "--mode", "random", "--probability", "0.01")
        self.expect_success("steps")

    def test_cut_link_between_two_workers(self):
        """The launcher can still reach all hosts and notices nothing."""
        process = self.start("endless", 8)
        self.assertTrue(any(line == "step 0\n" for line in process.stdout))
        start = time.monotonic()
        self.drop(1, "-s", self.hosts.address(2))
        self.drop(2, "-s", self.hosts.address(1))
        output, _ = process.communicate(timeout=200)
        self.assertEqual(process.returncode, 69, output)
        self.assertLess(time.monotonic() - start, 60)
        self.assertRegex(output, re.compile(r"deadline: .*rank [12] \("))
        wait_until(lambda: subprocess.run(["pgrep", "-f", PROGRAM + " endless"], stdout=subprocess.DEVNULL,
                                          check=False).returncode != 0, 30, "processes are left over")


def main():
    global PROGRAM
    PROGRAM = os.path.abspath(sys.argv.pop(1))
    try:
        require("ip", "tc", "iptables", "nsenter", "unshare", "mpirun")
        os.environ["PATH"] += ":" + os.path.dirname(find_program("iptables"))
        with Hosts(1):
            pass
    except Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    parallel.main(LinksTest, 1)


if __name__ == "__main__":
    main()
