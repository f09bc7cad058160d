#!/usr/bin/env python3
"""Installs carole's packages in bare Debian systems, uses them, and removes them.

    package_test.py PACKAGES [RELEASE...]     PACKAGES is a folder with .deb files; the releases are bookworm and trixie

Needs root, mmdebstrap, and the package sources of this machine. For each release it
  - makes a system of essential packages in a new folder,
  - checks the packages with lintian, which must not report errors,
  - installs carole with apt, and the module package with dpkg if it was built,
  - runs `carole --version`, `carole doctor`, a training on two ranks and an evaluation, and reads the man page,
  - removes everything and compares the list of files with the one before.
Exits with 77 if the test cannot run here.
"""

import glob
import os
import re
import shutil
import subprocess
import sys
import tempfile

SKIPPED = 77
SETTINGS = {"HOME": "/root", "LANG": "C.UTF-8", "DEBIAN_FRONTEND": "noninteractive",
            "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}  # fmt: skip
IGNORED = ("var/", "run/", "tmp/", "root/", "etc/ld.so.cache", "etc/group", "etc/passwd", "etc/shadow", "etc/gshadow")
NET = "--model_name=lenet --backend=onednn --dataset_name=synthetic --dataset_dir=/tmp/data"
MPIRUN = "mpirun --allow-run-as-root --oversubscribe --bind-to none -np 2"


class Failed(Exception):
    pass


def run(*words, **options):
    done = subprocess.run(words, text=True, capture_output=True, check=False, **options)
    if done.returncode != 0:
        raise Failed(f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}")
    return done.stdout + done.stderr


def package_sources(release):
    """The lines of this machine's package sources, for another release."""
    with open("/etc/os-release", encoding="utf-8") as file:
        here = re.search(r"^VERSION_CODENAME=(\S+)", file.read(), re.MULTILINE)
    text = ""
    for path in ("/etc/apt/sources.list", *sorted(glob.glob("/etc/apt/sources.list.d/*"))):
        if os.path.isfile(path):
            with open(path, encoding="utf-8") as file:
                text += file.read() + "\n"
    lines = [line for line in text.splitlines() if re.match(rf"deb .*\b{here.group(1)}\b", line)]
    for stanza in re.split(r"\n\s*\n", text):  # the newer format
        fields = dict(re.findall(r"^(URIs|Suites|Components): *(.*)$", stanza, re.MULTILINE))
        for uri in fields.get("URIs", "").split():
            lines += [f"deb {uri} {suite} {fields.get('Components', 'main')}" for suite in fields.get("Suites", "").split()]
    ours = re.compile(rf"deb (\[.*\] )?\S+ {here.group(1)}(-updates)? ")  # not those of other projects
    return [re.sub(rf"\b{here.group(1)}\b", release, line) for line in lines if ours.match(line)]


class Root:
    def __init__(self, release):
        self.release = release
        self.folder = tempfile.mkdtemp(prefix=f"carole-package-{release}-")
        self.mounted = []

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.__exit__()
            raise
        return self

    def _make(self):
        settings = subprocess.run(["apt-config", "dump"], text=True, capture_output=True, check=True).stdout
        with tempfile.NamedTemporaryFile("w", suffix=".conf") as file:
            file.writelines(line + "\n" for line in settings.splitlines() if line.startswith("Acquire::"))
            file.flush()
            run("mmdebstrap", "--quiet", "--variant=minbase", f"--aptopt={file.name}", self.release, self.folder,
                *package_sources(self.release))
            shutil.copy(file.name, f"{self.folder}/etc/apt/apt.conf.d/99host")
        # Minimal systems of mmdebstrap keep documents and man pages. That of a container image may not.
        for path in glob.glob(f"{self.folder}/etc/dpkg/dpkg.cfg.d/*"):
            os.remove(path)
        for path in ("/etc/resolv.conf", "/etc/hosts"):
            shutil.copy(path, self.folder + path)
        for kind, source, place in (("proc", "proc", "proc"), ("bind", "/sys", "sys"), ("bind", "/dev", "dev"),
                                    ("tmpfs", "tmpfs", "dev/shm")):  # fmt: skip
            place = f"{self.folder}/{place}"
            run("mount", *(["--bind"] if kind == "bind" else ["-t", kind]), source, place)
            self.mounted.append(place)
        self.do("apt-get update -q")

    def __exit__(self, *_):
        for place in reversed(self.mounted):
            subprocess.run(["umount", "--lazy", place], capture_output=True, check=False)
        if not any(os.path.ismount(place) for place in self.mounted):
            shutil.rmtree(self.folder, ignore_errors=True)

    def do(self, command):
        """Runs a shell command in the system and returns its output."""
        return run("chroot", self.folder, "sh", "-c", command, env=SETTINGS)

    def files(self):
        listed = run("find", self.folder, "-xdev", "-printf", "%P\\n").splitlines()
        return {path for path in listed if path and not path.startswith(IGNORED)}

    def owned_files(self):
        """The files of all packages that are still installed. apt keeps some that others suggest."""
        listed = self.do("cat /var/lib/dpkg/info/*.list").splitlines()
        return {path.lstrip("/") for path in listed} | {"usr" + path for path in listed}


def expect(text, *patterns):
    for pattern in patterns:
        if not re.search(pattern, text):
            raise Failed(f"no text like {pattern} in:\n{text[-3000:]}")


def check_release(release, packages):
    with Root(release) as root:
        main = next(p for p in packages if os.path.basename(p).startswith("carole_"))
        modules = [p for p in packages if os.path.basename(p).startswith("carole-cuda_")]
        os.makedirs(f"{root.folder}/tmp/packages")
        for package in packages:
            shutil.copy(package, f"{root.folder}/tmp/packages/")
        root.do("apt-get install -q -y --no-install-recommends man-db")
        before = root.files()
        root.do(f"apt-get install -q -y --no-install-recommends /tmp/packages/{os.path.basename(main)}")
        for package in modules:
            root.do(f"dpkg -i /tmp/packages/{os.path.basename(package)}")

        version = re.search(r"_(\S+?)_", os.path.basename(main)).group(1)
        expect(root.do("carole --version"), f"carole {re.escape(version)} ", r"MPI +Open MPI", r"oneDNN +3")
        expect(root.do("carole doctor; echo code $?"), r"code [01]\b")
        root.do("carole dataset build --dataset_name=synthetic --dataset_dir=/tmp/data --num_images=64 --num_classes=4 "
                "--image_width=32 --train_shards=2 --validation_shards=1")  # fmt: skip
        expect(root.do(f"{MPIRUN} carole train {NET} --train_dir=/tmp/run --batch_size=8 --max_number_of_steps=4 "
                       "--log_every_n_steps=1"), r"step 4\b")  # fmt: skip
        root.do(f"carole eval {NET} --dataset_split_name=validation --checkpoint_path=/tmp/run --batch_size=4")
        expect(root.do("man carole | cat"), "COMMANDS", "carole-train")
        expect(root.do("man carole-dataset-build | cat"), "--raw_dir")
        expect(root.do("ldd /usr/bin/carole"), r"libhdf5\S* => /usr/(bin/\.\./)?lib/carole/")
        if modules:
            expect(root.do("carole bench train --backend=cuda --model_name=lenet 2>&1 || true"),
                   r"no GPU|libcarole_cuda\.so|driver")  # fmt: skip

        root.do("apt-get purge -q -y carole" + (" carole-cuda" if modules else "") + " && apt-get autoremove --purge -q -y")
        left = root.files() - before - root.owned_files()
        if left:
            raise Failed(f"files are left after removal: {sorted(left)[:20]}")

        root.do("apt-get install -q -y --no-install-recommends lintian")
        report = subprocess.run(["chroot", root.folder, "sh", "-c", "lintian --allow-root --tag-display-limit 0 /tmp/packages/*.deb"],
                                env=SETTINGS, text=True, capture_output=True, check=False).stdout  # fmt: skip
        errors = [line for line in report.splitlines() if line.startswith("E:")]
        print("\n".join(report.splitlines()[:20]))
        if errors:
            raise Failed("lintian:\n" + "\n".join(errors))


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    packages = sorted(glob.glob(os.path.join(sys.argv[1], "*.deb")))
    missing = [tool for tool in ("mmdebstrap", "chroot", "dpkg-deb") if shutil.which(tool) is None]
    if not packages or os.geteuid() != 0 or missing:
        print(f"skipped: {'needs root' if packages and not missing else 'not found: ' + (' '.join(missing) or 'packages')}")
        sys.exit(SKIPPED)
    failed = False
    for release in sys.argv[2:] or ["bookworm", "trixie"]:
        try:
            check_release(release, packages)
            print(f"{release}: installed, used and removed: {', '.join(map(os.path.basename, packages))}", flush=True)
        except Failed as error:
            failed = True
            print(f"{release}: {error}", flush=True)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
