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
                file.write(f"user{os.getuid()}:*:{os.getuid()}:{os.getgid()}:carole:/tmp:/bin/sh\n")
    except OSError:
        pass  # one machine needs no name; launch says so when it does


def shared_folder(arguments):
    """Of the platform's folders only the output is common to all machines of a job: its ssh key goes there."""
    folders = [word.split("=", 1)[1] for word in arguments if word.startswith(("--output_dir=", "--output-dir="))]
    return [f"--work_dir={folders[-1]}"] if folders else []


def run(*defaults):
    """Defaults come first, so that the platform's and the user's flags win. Does not return."""
    name_user()
    arguments = sys.argv[1:]
    os.execv(CAROLE, [CAROLE, "launch", *shared_folder(arguments), "--", "train", *defaults, *arguments])
