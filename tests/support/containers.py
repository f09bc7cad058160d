"""Container images for tests, where no registry can be reached: a bare Debian as base, buildah to build and to run.

Needs root and Debian's buildah and mmdebstrap. Containers share the machine's network, or that of a test's host.

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
    base = "base"  # an image: Debian's essential packages and apt, with this machine's package sources

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="carole-containers-")
        self.count = 0
        self.driver = "overlay"

    def __enter__(self):
        require("buildah", "mmdebstrap")
        try:
            try:
                self.do("from", "--name", "probe", "scratch")
            except RuntimeError:  # overlay on overlay, for one
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
            subprocess.run(self._buildah(*words), capture_output=True, check=False)
        subprocess.run(["umount", self.file(f"store/{self.driver}")], capture_output=True, check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def file(self, name):
        return os.path.join(self.folder, name)

    def _buildah(self, *words):
        return ["buildah", "--root", self.file("store"), "--runroot", self.file("run"), "--storage-driver",
                self.driver, *words]

    def do(self, *words):
        return run(*self._buildah(*words))

    def _make_base(self):
        """Packages come from where this machine's own do, and the image's apt asks there too."""
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
        # Does the kernel let a container run here, and does it reach the packages?
        run(*self.words(self.base, ["apt-get", "update"]))

    def build(self, image, containerfile, context, base):
        """Returns what the build printed; raises RuntimeError with it."""
        return self.do("bud", "--isolation", "chroot", "--build-arg", f"BASE={base}", "-f", containerfile, "-t", image,
                       context)

    def words(self, image, command, user="0:0", volumes=None, env=None, wrap=()):
        """What runs `command` in a new container; volumes are of this machine's path -> the container's."""
        self.count += 1
        name = f"c{self.count}"
        self.do("from", "--name", name, image)
        words = ["run", "--isolation", "chroot", "--user", user]
        for outside, inside in (volumes or {}).items():
            words += ["-v", f"{outside}:{inside}"]
        for variable, value in (env or {}).items():
            words += ["-e", f"{variable}={value}"]
        return [*wrap, *self._buildah(*words, name, *command)]
