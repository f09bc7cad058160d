"""Builds and runs container images for tests without a registry: the base image is a bare Debian.

Needs root and Debian's packages buildah and mmdebstrap. Containers share the network of this machine, or that of an
emulated host (hosts.py).

    with Containers() as containers:
        containers.build("image", "path/Containerfile", "context", base=containers.base)
        subprocess.run(containers.words("image", ["id"], user="1000:0", volumes={"/tmp/x": "/data"}))
"""

import glob
import os
import shutil
import subprocess
import tempfile

from hosts import Unavailable, require, run


class Containers:
    base = "base"  # image with Debian's essential packages, apt, and the package sources of this machine

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="carole-containers-")
        self.count = 0
        self.driver = "overlay"

    def __enter__(self):
        require("buildah", "mmdebstrap")
        try:
            try:
                self.do("from", "--name", "probe", "scratch")
            except RuntimeError:  # for example because this machine itself is on an overlay
                self.driver = "vfs"
                self.do("from", "--name", "probe", "scratch")
            self._make_base()
        except RuntimeError as error:
            self.__exit__()
            raise Unavailable(str(error)) from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for words in (["rm", "--all"], ["rmi", "--all", "--force"]):
            subprocess.run(self.do_words(*words), capture_output=True, check=False)
        subprocess.run(["umount", self.file(f"store/{self.driver}")], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def file(self, name):
        return os.path.join(self.folder, name)

    def do_words(self, *words):
        """Returns the command line of do()."""
        return ["buildah", "--root", self.file("store"), "--runroot", self.file("run"), "--storage-driver",
                self.driver, *words]

    def do(self, *words):
        return run(*self.do_words(*words))

    def _make_base(self):
        """Makes the base image. It uses the package sources and apt settings of this machine."""
        with open(self.file("apt.conf"), "w", encoding="utf-8") as file:
            settings = run("apt-config", "dump").splitlines()
            file.writelines(line + "\n" for line in settings if line.startswith("Acquire::"))
        sources = glob.glob("/etc/apt/sources.list") + glob.glob("/etc/apt/sources.list.d/*.list")
        sources += glob.glob("/etc/apt/sources.list.d/*.sources")
        with open("/etc/os-release", encoding="utf-8") as file:
            release = dict(line.strip().split("=", 1) for line in file if "=" in line)
        run("mmdebstrap", "--quiet", "--variant=minbase", f"--aptopt={self.file('apt.conf')}",
            release["VERSION_CODENAME"], self.file("base.tar"), *sources)
        self.do("add", "probe", self.file("base.tar"), "/")
        os.remove(self.file("base.tar"))
        self.do("commit", "--rm", "probe", self.base)
        # Fails if the kernel does not allow containers here, or if they cannot reach the package sources.
        run(*self.words(self.base, ["apt-get", "update"]))

    def build(self, image, containerfile, context, base):
        """Builds an image and returns the output. Raises RuntimeError, with the output, if the build fails."""
        return self.do("bud", "--isolation", "chroot", "--build-arg", f"BASE={base}", "-f", containerfile, "-t", image,
                       context)

    def words(self, image, command, user="0:0", volumes=None, env=None, wrap=()):
        """Makes a new container and returns the command line that runs `command` in it. `volumes` maps paths of this
        machine to paths in the container."""
        self.count += 1
        name = f"c{self.count}"
        self.do("from", "--name", name, image)
        words = ["run", "--isolation", "chroot", "--user", user]
        for outside, inside in (volumes or {}).items():
            words += ["-v", f"{outside}:{inside}"]
        for variable, value in (env or {}).items():
            words += ["-e", f"{variable}={value}"]
        return [*wrap, *self.do_words(*words, name, *command)]
