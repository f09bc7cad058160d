"""What the platform's call becomes: /usr/bin/python PROGRAM --data_dir=… --output_dir=… --work_dir=… --log_dir=… --num_gpus=N

The program hands its defaults to run(), which turns into `carole launch -- train`, on one machine and on each of several.
"""

import os
import sys

CAROLE = os.environ.get("CAROLE", "/usr/local/bin/carole")


def name_user():
    """ssh and mpirun want a name for the user; a container that runs as a given number has none."""
    try:
        with open("/etc/passwd", "r+", encoding="utf-8") as file:
            users = [line.split(":") for line in file if line.count(":") == 6]
            if all(user[2] != str(os.getuid()) for user in users):
                file.write(f"carole:*:{os.getuid()}:{os.getgid()}:carole:/tmp:/bin/sh\n")
    except OSError:
        pass  # one machine needs no name; launch says so when it does


def run(*defaults):
    """Defaults come first, so that the platform's and the user's flags win. Does not return."""
    name_user()
    os.execv(CAROLE, [CAROLE, "launch", "--", "train", *defaults, *sys.argv[1:]])
