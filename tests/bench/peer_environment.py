"""Fills the virtual environment whose interpreter runs this with the peers that peers.py measures.

PyTorch's wheel is the CUDA build; it runs on a CPU, but its CUDA libraries must load. Where a CUDA 13 toolkit lies
in /usr/local, only the libraries that the toolkit lacks are installed; elsewhere PyTorch brings all of them.
"""

import glob
import importlib.metadata
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
TORCH = "torch==2.15.0"
WHEEL_OF = {  # library that PyTorch needs -> start of the wheel's name
    "libcufile": "nvidia-cufile",
    "libcusparseLt": "nvidia-cusparselt",
    "libnvshmem": "nvidia-nvshmem",
    "libcudnn": "nvidia-cudnn",
}


def pip(*arguments):
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", *arguments], check=True)


def cuda_folder():
    """The folder of a CUDA 13 toolkit's libraries, or None."""
    found = sorted(glob.glob("/usr/local/cuda*/lib*/libcudart.so.13"))
    return os.path.dirname(found[0]) if found else None


def missing_libraries(torch_folder, cuda):
    """Names of shared libraries that PyTorch's own do not find; the GPU driver's is not needed on a CPU."""
    libraries = glob.glob(os.path.join(torch_folder, "lib", "*.so"))
    env = dict(os.environ, LD_LIBRARY_PATH=f"{cuda}:{os.path.join(torch_folder, 'lib')}")
    text = subprocess.run(["ldd", *libraries], env=env, text=True, capture_output=True, check=True).stdout
    names = {line.split()[0] for line in text.splitlines() if "not found" in line}
    return sorted(name for name in names if not name.startswith("libcuda.so"))


def wheel_with(start):
    """The requirement of PyTorch whose name begins with `start`, with its version where PyTorch pins one."""
    for requirement in importlib.metadata.requires("torch"):
        if requirement.startswith(start):
            return requirement.split(";")[0].strip()
    return start


def main():
    pip("-r", os.path.join(HERE, "requirements.txt"))
    cuda = cuda_folder()
    if cuda is None:
        pip(TORCH)
        return
    pip("--no-deps", TORCH)
    folder = os.path.join(os.path.dirname(importlib.metadata.distribution("torch").locate_file("torch/version.py")))
    wheels = [wheel_with("nvidia-nccl")]  # PyTorch calls functions that a toolkit's older NCCL may lack
    for library in missing_libraries(folder, cuda):
        stem = re.match(r"[^.]+?(?=_|\.)", library).group()
        if stem not in WHEEL_OF:
            pip(TORCH)
            return
        wheels.append(wheel_with(WHEEL_OF[stem]))
    pip("--no-deps", *wheels)


if __name__ == "__main__":
    main()
