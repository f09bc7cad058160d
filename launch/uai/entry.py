"""Entry point of the UAI images. The platform calls /usr/bin/python PROGRAM --data_dir=… --output_dir=… --work_dir=… --log_dir=…
--num_gpus=N.

PROGRAM passes its default flags to run(), which replaces itself with `carole launch -- train`. This works on one host and on each
of several.
"""

import os
import sys

CAROLE = os.environ.get("CAROLE", "/usr/local/bin/carole")
ENTRY_POINT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "entrypoint.sh")


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


def entry_point():
    """Returns the program that becomes the user LOCAL_USER_ID and then runs a command, or nothing without LOCAL_USER_ID.
    It changes nothing if it has run already. A platform that starts Python as the entry point has not run it."""
    return [ENTRY_POINT] if os.environ.get("LOCAL_USER_ID") else []


def run(*defaults):
    """Runs carole with these default flags. They come first, so the flags of the platform and the user win. Does not
    return."""
    name_user()
    arguments = sys.argv[1:]
    words = [*entry_point(), CAROLE, "launch", *work_dir_flag(arguments), "--", "train", *defaults, *arguments]
    os.execv(words[0], words)
