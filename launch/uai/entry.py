"""Entry point of the UAI images. The platform calls /usr/bin/python PROGRAM --data_dir=… --output_dir=… --work_dir=… --log_dir=…
--num_gpus=N.

PROGRAM passes its default flags to run(), which replaces itself with `carole launch -- train`. This works on one host and on each
of several.
"""

import os
import sys

CAROLE = os.environ.get("CAROLE", "/usr/local/bin/carole")


def name_user():
    """Adds a name for the current user to /etc/passwd: ssh and mpirun require one. A container that runs with a numeric
    user id has none."""
    try:
        with open("/etc/passwd", "r+", encoding="utf-8") as file:
            users = [line.split(":") for line in file if line.count(":") == 6]
            if all(user[2] != str(os.getuid()) for user in users):
                file.write(f"user{os.getuid()}:*:{os.getuid()}:{os.getgid()}:carole:/tmp:/bin/sh\n")
    except OSError:
        pass  # a job on one host needs no name; on several hosts, carole launch reports the problem


def work_dir_flag(arguments):
    """Returns the flag --work_dir of launch, the folder for the job's ssh key. All hosts of a job share only the
    platform's output folder, so the key goes there."""
    folders = [word.split("=", 1)[1] for word in arguments if word.startswith(("--output_dir=", "--output-dir="))]
    return [f"--work_dir={folders[-1]}"] if folders else []


def run(*defaults):
    """Runs carole with these default flags. They come first, so the flags of the platform and the user win. Does not
    return."""
    name_user()
    arguments = sys.argv[1:]
    os.execv(CAROLE, [CAROLE, "launch", *work_dir_flag(arguments), "--", "train", *defaults, *arguments])
