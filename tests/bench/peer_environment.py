"""Installs the peers that peers.py measures into the virtual environment whose interpreter runs this script.

PyTorch's wheel is the CUDA build. It runs on a CPU, but its CUDA libraries must be loadable. If /usr/local has a CUDA
13 toolkit, only the libraries that the toolkit lacks are installed. Otherwise PyTorch's wheels bring all of them.
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
    """Returns the folder with the libraries of a CUDA 13 toolkit, or None."""
    found = sorted(glob.glob("/usr/local/cuda*/lib*/libcudart.so.13"))
    return os.path.dirname(found[0]) if found else None


def missing_libraries(torch_folder, cuda):
    """Returns the shared libraries that PyTorch needs and that are missing, except the driver's, which a CPU needs not."""
    libraries = glob.glob(os.path.join(torch_folder, "lib", "*.so"))
    env = dict(os.environ, LD_LIBRARY_PATH=f"{cuda}:{os.path.join(torch_folder, 'lib')}")
    text = subprocess.run(["ldd", *libraries], env=env, text=True, capture_output=True, check=True).stdout
    names = {line.split()[0] for line in text.splitlines() if "not found" in line}
    return sorted(name for name in names if not name.startswith("libcuda.so"))


def wheel_with(start):
    """Returns PyTorch's requirement whose name begins with `start`, including the version if PyTorch pins one."""
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
    wheels = [wheel_with("nvidia-nccl")]  # the toolkit's NCCL may be too old for PyTorch
    for library in missing_libraries(folder, cuda):
        stem = re.match(r"[^.]+?(?=_|\.)", library).group()
        if stem not in WHEEL_OF:
            pip(TORCH)
            return
        wheels.append(wheel_with(WHEEL_OF[stem]))
    pip("--no-deps", *wheels)


if __name__ == "__main__":
    main()
