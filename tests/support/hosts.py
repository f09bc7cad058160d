"""Emulates hosts on this machine: network namespaces on a bridge, each with its own host name, processes and shared
memory.

Needs root and Debian's packages iproute2 and util-linux. All hosts share the file system, as if it were an NFS.

    with Hosts(3) as hosts:
        hosts.start(1, ["carole", "launch", ...], log="worker.log")
        hosts.power_off(2)
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time


class Unavailable(Exception):
    """This machine cannot emulate hosts; the text is the reason."""


def find_program(name):
    return shutil.which(name, path=os.environ.get("PATH", "") + ":/usr/sbin:/sbin")


def require(*programs):
    """Raises Unavailable unless this is root on a machine with namespaces and these programs."""
    if os.geteuid() != 0:
        raise Unavailable("not root")
    for program in programs:
        if find_program(program) is None:
            raise Unavailable(f"no {program}")
    probe = subprocess.run(["unshare", "--net", "--uts", "--pid", "--mount", "--fork", "true"],
                           capture_output=True, text=True, check=False)
    if probe.returncode != 0:
        raise Unavailable(f"no namespaces: {probe.stderr.strip()}")


def run(*words):
    """Runs a command and returns its output. Raises RuntimeError if it fails."""
    result = subprocess.run(words, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise RuntimeError(f"{' '.join(words)}: {result.stderr.strip() or result.stdout.strip()}")
    return result.stdout


# The first process of a host. It prepares the host and then sleeps until it is killed.
INIT = """
set -e
hostname "$1"
mount --bind "$2" /etc/hosts
mount -t tmpfs -o mode=1777 tmpfs /dev/shm
mount -t proc proc /proc
echo ready
exec sleep infinity
"""

# Replaces ssh for mpirun. AGENT ADDRESS COMMAND... runs the command on the host with this address, on its cores.
AGENT = """#!/bin/sh
read -r first cores <"${0%/*}/$1"
shift
exec nsenter -t "$first" --net --uts --ipc --mount --pid taskset -c "$cores" sh -c "$*"
"""


class Hosts:
    def __init__(self, number, group=0):
        """Emulates `number` hosts. `group`, from 0 to 9, distinguishes several objects in one process."""
        self.number = number
        self.tag = f"c{os.getpid() % 100000}{'abcdefghij'[group]}"  # prefix of link names (at most 15 letters)
        self.net = None
        self.folder = tempfile.mkdtemp(prefix="carole-hosts-")
        self.inits = {}  # host -> the process of unshare whose child is the first process of the host
        self.first = {}  # host -> process id of its first process
        self.started = []

    def __enter__(self):
        require("ip", "unshare", "nsenter", "mount")
        try:
            self._make_bridge()
            with open(self.file("hosts"), "w", encoding="ascii") as file:
                file.write("127.0.0.1 localhost\n::1 localhost\n")
                for host in range(self.number):
                    file.write(f"{self.address(host)} {self.name(host)}\n")
            for host in range(self.number):
                self._make_link(host)
                self.power_on(host)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for process in self.started:
            if process.poll() is None:
                process.kill()
        for host in list(self.inits):
            self._kill_processes(host)
        for process in self.started:
            process.wait()
        for host in range(self.number):
            subprocess.run(["ip", "netns", "del", self.space(host)], capture_output=True, check=False)
            shutil.rmtree(f"/tmp/ompi.{self.name(host)}.0", ignore_errors=True)
        subprocess.run(["ip", "link", "del", self.tag], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def file(self, name):
        return os.path.join(self.folder, name)

    def name(self, host):
        return f"{self.tag}h{host}"

    space = name  # the network namespace has the same name

    def address(self, host):
        return f"{self.net}.{host + 1}"

    def _make_bridge(self):
        try:
            run("ip", "link", "add", self.tag, "type", "bridge")
            run("ip", "link", "set", self.tag, "up")
        except RuntimeError as error:
            raise Unavailable(f"no bridge: {error}") from error
        taken = run("ip", "-o", "addr")
        subnet = next(n for n in range(50, 250) if f" 10.197.{n}." not in taken)
        self.net = f"10.197.{subnet}"
        run("ip", "addr", "add", f"{self.net}.254/24", "dev", self.tag)

    def _make_link(self, host):
        port = f"{self.tag}p{host}"
        run("ip", "netns", "add", self.space(host))
        for attempts_left in range(40, -1, -1):
            try:
                run("ip", "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", self.space(host))
                break
            except RuntimeError as error:  # the kernel is still removing the links of other hosts
                if not attempts_left or "File exists" not in str(error):
                    raise
                time.sleep(0.25)
        run("ip", "link", "set", port, "master", self.tag, "up")
        run("ip", "-n", self.space(host), "link", "set", "lo", "up")
        run("ip", "-n", self.space(host), "addr", "add", f"{self.address(host)}/24", "dev", "eth0")
        # Reno, because this machine may use BBR, whose timers for pacing packets would take CPU time from the ranks.
        run("ip", "netns", "exec", self.space(host), "sh", "-c", "echo reno >/proc/sys/net/ipv4/tcp_congestion_control")

    def power_on(self, host):
        run("ip", "-n", self.space(host), "link", "set", "eth0", "up")
        init = subprocess.Popen(
            ["nsenter", f"--net=/run/netns/{self.space(host)}", "unshare", "--uts", "--ipc", "--mount", "--pid",
             "--fork", "--kill-child", "--propagation", "private", "sh", "-c", INIT, "init", self.name(host),
             self.file("hosts")],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        if init.stdout.readline() != "ready\n":
            raise Unavailable(f"host {host} does not start")
        self.inits[host] = init
        with open(f"/proc/{init.pid}/task/{init.pid}/children", encoding="ascii") as file:
            self.first[host] = int(file.read())

    def _kill_processes(self, host):
        """Kills the first process of the host's PID namespace. This ends all its processes."""
        try:
            os.kill(self.first[host], signal.SIGKILL)
        except (KeyError, ProcessLookupError):
            pass
        init = self.inits.pop(host)
        init.stdout.close()
        init.wait()

    def power_off(self, host):
        """Takes the link down, so no packet leaves the host any more, and kills all processes."""
        run("ip", "-n", self.space(host), "link", "set", "eth0", "down")
        self._kill_processes(host)

    def set_rate(self, rate):
        """Limits the rate of every host's link in both directions, for example to "1gbit". None removes the limit."""
        bucket = ["root", "tbf", "rate", rate, "burst", "128kb", "latency", "50ms"]
        for host in range(self.number):
            for prefix, device in ((["-n", self.space(host)], "eth0"), ([], f"{self.tag}p{host}")):
                change = ["replace", "dev", device, *bucket] if rate else ["del", "dev", device, "root"]
                run("tc", *prefix, "qdisc", *change)

    def mpirun(self, command, cores=None):
        """Returns the command line, to be run outside of the hosts, that starts a rank on each host. `cores` has one
        core for each host; without it, every host uses all cores."""
        everywhere = ",".join(str(core) for core in sorted(os.sched_getaffinity(0)))
        for host in range(self.number):
            with open(self.file(self.address(host)), "w", encoding="ascii") as file:
                file.write(f"{self.first[host]} {cores[host] if cores else everywhere}\n")
        with open(self.file("agent"), "w", encoding="ascii") as file:
            file.write(AGENT)
        os.chmod(self.file("agent"), 0o755)
        subnet = f"{self.net}.0/24"
        return ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-np", str(self.number), "--host",
                ",".join(f"{self.address(host)}:1" for host in range(self.number)),
                "--mca", "plm_rsh_agent", self.file("agent"), "--mca", "mpi_yield_when_idle", "1",
                "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", subnet,
                "--mca", "oob_tcp_if_include", subnet, *command]  # fmt: skip

    def words(self, host, command):
        return ["nsenter", "-t", str(self.first[host]), "--net", "--uts", "--ipc", "--mount", "--pid",
                f"--wd={os.getcwd()}", "setpriv", "--pdeathsig", "TERM", *command]

    def start(self, host, command, log, env=None):
        """Starts a command on a host. Its output is appended to the file `log` in the folder of this object."""
        with open(self.file(log), "ab") as file:
            process = subprocess.Popen(self.words(host, command), stdin=subprocess.DEVNULL, stdout=file,
                                       stderr=subprocess.STDOUT, env={**os.environ, **(env or {})})
        self.started.append(process)
        return process

    @staticmethod
    def signal(process, number):
        """Sends a signal to a command that start() started. It is the child of the process that entered the host."""
        os.kill(int(Hosts.child(process)), number)

    @staticmethod
    def blocks(process, number):
        """Whether a command that start() started has blocked a signal or waits for signals."""
        try:
            folder = f"/proc/{Hosts.child(process)}"
            with open(f"{folder}/syscall", encoding="ascii") as file:
                if file.read().startswith("128 "):  # rt_sigtimedwait, which lifts the block while it waits
                    return True
            with open(f"{folder}/status", encoding="ascii") as file:
                return int(re.search(r"^SigBlk:\s*(\w+)", file.read(), re.MULTILINE)[1], 16) >> (number - 1) & 1 == 1
        except OSError:
            return False  # it has not begun

    @staticmethod
    def child(process):
        with open(f"/proc/{process.pid}/task/{process.pid}/children", encoding="ascii") as file:
            return file.read().strip()

    def log(self, name):
        with open(self.file(name), encoding="utf-8", errors="replace") as file:
            return file.read()


def wait_until(condition, seconds, what):
    """Polls until condition() is true. After `seconds`, raises TimeoutError with the text `what` (or what())."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError(what() if callable(what) else what)
        time.sleep(0.1)
