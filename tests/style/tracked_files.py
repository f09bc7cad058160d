"""Lists the files of the repository that git tracks or would add."""

import os
import subprocess


def tracked_files(root):
    """Returns sorted paths relative to root, of files that exist."""
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            capture_output=True, check=True).stdout  # fmt: skip
    paths = {os.fsdecode(path) for path in listed.split(b"\0") if path}
    return sorted(path for path in paths if os.path.isfile(os.path.join(root, path)))
