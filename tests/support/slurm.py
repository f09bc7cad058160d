"""Runs a real Slurm for tests: munged, slurmctld and N slurmd on this machine, with their own keys, ports and folders.

Needs root and Debian's packages slurm-wlm and munge. Nodes share network and file system; each has its own host name.

GPUs are emulated: Slurm allocates device files that belong to no device.

    with Slurm(4, gpus=2) as slurm:
        job = slurm.submit("train_cpu.sbatch", "-N2", ...)
        slurm.wait(job, 60)
"""

import contextlib
import os
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile

from hosts import Unavailable, find_program, require, run, wait_until

CONFIG = """
ClusterName={tag}
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
# A requeued job waits for cred_expire seconds. The default is 120 and the minimum is 5.
AuthInfo=socket={folder}/munge/socket,cred_expire=5
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
TmpFS={folder}/tmp-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
PropagateResourceLimits=NONE
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
JobRequeue=1
KillWait=20
MessageTimeout=60
BatchStartTimeout=60
SlurmdTimeout=300
PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""


def free_ports(number):
    """Returns the first of `number` consecutive ports that are free."""
    for first in range(17100, 30000, number):
        sockets = []
        try:
            for port in range(first, first + number):
                sockets.append(socket.socket())
                sockets[-1].bind(("", port))
            return first
        except OSError:
            continue
        finally:
            for one in sockets:
                one.close()
    raise Unavailable("no free ports")


class Slurm:
    def __init__(self, nodes, gpus=0):
        self.tag = f"s{os.getpid() % 100000}"
        self.nodes = [f"{self.tag}n{i}" for i in range(nodes)]
        self.gpus = gpus  # number of GPUs of each node
        self.folder = tempfile.mkdtemp(prefix="carole-slurm-")
        os.chmod(self.folder, 0o755)
        self.config = os.path.join(self.folder, "slurm.conf")
        self.env = {**os.environ, "SLURM_CONF": self.config}

    def __enter__(self):
        require("munged", "slurmctld", "slurmd", "sbatch", "mpirun", "unshare")
        try:
            self._start_munge()
            self._write_config()
            self._daemon([find_program("slurmctld"), "-c"])
            for node in self.nodes:
                self._daemon(["unshare", "--uts", "sh", "-c", 'hostname "$1" && exec "$2" -N "$1"', "node", node,
                              find_program("slurmd")])
            wait_until(lambda: self.states().count("idle") == len(self.nodes), 200,
                       lambda: f"nodes are {self.states()}")
        except (RuntimeError, TimeoutError) as error:
            reason = f"{error}: {self._tail('slurmctld.log')}"
            self.__exit__()
            raise Unavailable(reason) from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self._processes():
                try:
                    os.kill(process, number)
                except ProcessLookupError:
                    pass
            try:
                wait_until(lambda: not self._processes(), 8, "")
            except TimeoutError:
                pass
        for node in self.nodes:
            shutil.rmtree(f"/tmp/ompi.{node}.0", ignore_errors=True)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _start_munge(self):
        folder = os.path.join(self.folder, "munge")
        os.mkdir(folder, 0o711)
        with open(f"{folder}/key", "wb", opener=lambda path, flags: os.open(path, flags, 0o600)) as file:
            file.write(os.urandom(128))
        # Without --force, munged refuses the modes of parent folders such as /tmp.
        run(find_program("munged"), "--force", f"--key-file={folder}/key", f"--socket={folder}/socket",
            f"--pid-file={folder}/pid", f"--log-file={folder}/log", f"--seed-file={folder}/seed")

    def _write_config(self):
        port = free_ports(len(self.nodes) + 1)
        text = CONFIG.format(tag=self.tag, host=socket.gethostname(), port=port, folder=self.folder)
        gres = ""
        if self.gpus:
            gres = f"Gres=gpu:{self.gpus} "
            text += "GresTypes=gpu\n"
            self._make_gpus()
        for i, node in enumerate(self.nodes):
            for name in ("spool", "tmp"):
                os.mkdir(f"{self.folder}/{name}-{node}")
            text += (f"NodeName={node} NodeHostname={node} NodeAddr=127.0.0.1 Port={port + 1 + i} CPUs=2 "
                     f"RealMemory=500 {gres}State=UNKNOWN\n")
        os.mkdir(f"{self.folder}/state")
        with open(self.config, "w", encoding="ascii") as file:
            file.write(text)

    def _make_gpus(self):
        for gpu in range(self.gpus):
            os.mknod(f"{self.folder}/gpu{gpu}", 0o600 | stat.S_IFCHR, os.makedev(1, 3))
        with open(f"{self.folder}/gres.conf", "w", encoding="ascii") as file:
            file.write(f"Name=gpu File={self.folder}/gpu[0-{self.gpus - 1}]\n")

    def _daemon(self, words):
        result = subprocess.run(words, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
                                check=False)
        if result.returncode != 0:
            raise RuntimeError(f"{words[0]}: {result.stderr.strip()}")

    def _tail(self, name):
        try:
            with open(f"{self.folder}/{name}", encoding="utf-8") as file:
                return file.read()[-400:]
        except FileNotFoundError:
            return "no log"

    def _processes(self, *names):
        """Returns the ids of all processes of this Slurm: daemons and jobs. They have the folder of this object in
        their environment or arguments. `names` restricts the result to programs with these names."""
        found = []
        mark = self.folder.encode()
        for number in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{number}/environ", "rb") as file:
                    is_ours = b"SLURM_CONF=" + mark in file.read()
                with open(f"/proc/{number}/cmdline", "rb") as file:
                    words = file.read()
                if names and os.path.basename(words.split(b"\0")[0]).decode() not in names:
                    continue
                if (is_ours or mark + b"/munge" in words) and int(number) != os.getpid():
                    found.append(int(number))
            except (FileNotFoundError, ProcessLookupError, PermissionError):
                continue
        return found

    def processes_on(self, node, name):
        """Returns the ids of all processes of jobs on a node that run the program `name`."""
        found = []
        for number in self._processes(name):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError), \
                    open(f"/proc/{number}/environ", "rb") as file:
                if f"SLURMD_NODENAME={node}".encode() in file.read().split(b"\0"):
                    found.append(number)
        return found

    def do(self, *words):
        result = subprocess.run(words, env=self.env, capture_output=True, text=True, timeout=120, check=False)
        if result.returncode != 0:
            raise RuntimeError(f"{' '.join(words)}: {result.stderr.strip()}")
        return result.stdout

    def states(self):
        try:
            return self.do("sinfo", "-h", "-N", "-o", "%T").split()
        except RuntimeError:
            return []

    def submit(self, *words, env=None):
        result = subprocess.run(["sbatch", "--parsable", *words], env={**self.env, **(env or {})}, capture_output=True,
                                text=True, timeout=120, check=False)
        if result.returncode != 0:
            raise RuntimeError(f"sbatch: {result.stderr.strip()}")
        return result.stdout.strip()

    def job(self, job):
        """Returns state, exit code of the batch script, restarts and nodes of a job. `states` has one state for each
        task of a job array."""
        text = self.do("scontrol", "show", "job", job)
        states = re.findall(r"JobState=(\w+)", text)
        return {"state": states[0], "states": states, "code": int(re.search(r"ExitCode=(\d+):", text).group(1)),
                "restarts": int(re.search(r"Restarts=(\d+)", text).group(1)),
                "nodes": re.search(r" NodeList=(\S*)", text).group(1)}

    def wait(self, job, seconds, what=""):
        """Waits until the job is over and returns job(job). After `seconds`, raises TimeoutError with `what`."""
        ends = {"COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL"}
        last = {"states": ["unknown"]}

        def is_over():
            with contextlib.suppress(RuntimeError):  # slurmctld may be busy
                last.update(self.job(job))
            return set(last["states"]) <= ends

        wait_until(is_over, seconds, lambda: f"job {job}: {last}: {what() if callable(what) else what}")
        return last
