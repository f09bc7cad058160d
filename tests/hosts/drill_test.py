#!/usr/bin/env python3
"""Runs `carole drill` on two emulated hosts of two ranks (tests/support/hosts.py).

    drill_test.py CAROLE [options of unittest]
"""

import os
import socket
import subprocess
import sys
import tempfile
import threading
import unittest

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "support"))
from hosts import Hosts, Unavailable, require  # noqa: E402

CAROLE = ""
LONG = 900  # seconds, enough for a busy machine
# Replaces ssh for the mpirun of the drill, which runs on a host and cannot enter another one. AGENT HOST COMMAND... sends the
# command to Doors, outside of the hosts, and waits until it has ended.
AGENT = """#!/usr/bin/env python3
import socket
import sys
with socket.socket(socket.AF_UNIX) as door:
    door.connect({path!r})
    door.sendall("\\0".join(sys.argv[1:]).encode() + b"\\n")
    sys.exit(int(door.makefile().readline() or 255))
"""


class Doors:
    """Runs commands on hosts for mpirun's on other hosts."""

    def __init__(self, hosts):
        self.hosts = hosts
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.bind(hosts.file("doors"))
        self.socket.listen(16)
        with open(hosts.file("agent"), "w", encoding="ascii") as file:
            file.write(AGENT.format(path=hosts.file("doors")))
        os.chmod(hosts.file("agent"), 0o755)
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            try:
                client, _ = self.socket.accept()
            except OSError:
                return
            threading.Thread(target=self.run, args=(client,), daemon=True).start()

    def run(self, client):
        with client, client.makefile() as stream:
            name, *words = stream.readline().rstrip("\n").split("\0")
            host = next(h for h in range(self.hosts.number) if name in (self.hosts.name(h), self.hosts.address(h)))
            result = subprocess.run(self.hosts.words(host, ["sh", "-c", " ".join(words)]), stdin=subprocess.DEVNULL,
                                    stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
            try:
                client.sendall(f"{result.returncode & 255}\n".encode())
            except OSError:
                pass  # mpirun has ended

    def close(self):
        self.socket.close()


class DrillTest(unittest.TestCase):
    def test_kill_and_lost_host(self):
        with Hosts(2) as hosts, tempfile.TemporaryDirectory(prefix="carole-drill-test-") as folder:
            doors = Doors(hosts)
            self.addCleanup(doors.close)
            subnet = f"{hosts.net}.0/24"
            command = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-np", "4", "--host",
                       ",".join(f"{hosts.name(host)}:2" for host in range(2)),
                       "--mca", "plm_rsh_agent", hosts.file("agent"), "--mca", "btl", "tcp,self",
                       "--mca", "btl_tcp_if_include", subnet, "--mca", "oob_tcp_if_include", subnet,
                       CAROLE, "drill", f"--work_dir={folder}/drill",
                       "--faults=kill,lost_host", "--phases=start,backward"]  # fmt: skip
            process = hosts.start(0, command, "drill.log",
                                  {"OMPI_MCA_mpi_yield_when_idle": "1", "OMP_WAIT_POLICY": "passive"})
            code = process.wait(LONG)
            log = hosts.log("drill.log")
            print(log)
            self.assertEqual(code, 0, log)
            self.assertIn("4 ranks on", log)
            self.assertRegex(log, r"lost_host +backward +2 .* pass .*same weights")
            self.assertRegex(log, r"kill +start +3 .* pass .*same weights")
            self.assertTrue(os.path.exists(f"{folder}/drill/drill.html"))


def main():
    global CAROLE
    CAROLE = os.path.abspath(sys.argv.pop(1))
    try:
        require("ip", "nsenter", "unshare", "mpirun", "setpriv")
        with Hosts(1):
            pass
    except Unavailable as reason:
        print(f"skipped: {reason}")
        sys.exit(77)
    unittest.main()


if __name__ == "__main__":
    main()
