#!/usr/bin/env python3
"""Tests launch/uai/entrypoint.sh, which drops root, in a mount namespace with its own /etc and /home.

    entrypoint_test.py [options of unittest]

container_test.py runs the script in an image.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.abspath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tests", "support"))
from hosts import Unavailable, require  # noqa: E402

SCRIPT = os.path.join(ROOT, "launch", "uai", "entrypoint.sh")
SHOW = 'echo "$(id -u):$(id -g):$(id -un):$(id -G):$HOME:$USER:$(stat -c %u:%g:%a "$HOME")"'
# The entry point changes accounts, so it gets a copy of them.
OWN_ETC = """
mount -t tmpfs -o mode=755 none "$FOLDER" && cp -a /etc "$FOLDER/etc" && mount --bind "$FOLDER/etc" /etc || exit 99
mount -t tmpfs -o mode=755 none /home || exit 99
exec "$@"
"""


def run(*words, env=None):
    base = {"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
    return subprocess.run(words, env={**base, **(env or {})}, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=300, check=False)


class ValuesTest(unittest.TestCase):
    def test_wrong_values(self):
        want = "want a whole number from 0 to 4294967294"
        cases = {
            "abc": f"not a number: got 'abc', {want}; pass -e LOCAL_USER_ID=$(id -u)",
            "-5": f"not a number: got '-5', {want}",
            "1e3": f"not a number: got '1e3', {want}",
            " 5": f"not a number: got ' 5', {want}",
            "1000\n[x]": f"not a number: got '1000?[x]', {want}",
            "$(id)": f"not a number: got '$(id)', {want}",
            "4294967295": f"too large: got 4294967295, {want}",
            "9" * 30: f"too large: got {'9' * 30}, {want}",
        }
        for value, text in cases.items():
            for name, others in (("LOCAL_USER_ID", {}), ("LOCAL_GROUP_ID", {"LOCAL_USER_ID": "5"})):
                with self.subTest(name=name, value=value):
                    result = run(SCRIPT, "echo", "ran", env={**others, name: value})
                    text = text.replace("LOCAL_USER_ID=$(id -u)", f"{name}=$(id -{'u' if name == 'LOCAL_USER_ID' else 'g'})")
                    self.assertEqual((result.returncode, result.stdout), (78, ""), result.stderr)
                    lines = result.stderr.splitlines()
                    self.assertTrue(lines[0].startswith(f"[entry] {name}: {text}"), lines[0])
                    self.assertEqual(lines[1:], ["entrypoint: exit 78 (bad configuration)"])

    def test_group_without_user(self):
        result = run(SCRIPT, "echo", "ran", env={"LOCAL_GROUP_ID": "5"})
        self.assertEqual((result.returncode, result.stdout), (78, ""))
        self.assertIn("[entry] LOCAL_GROUP_ID: there is no LOCAL_USER_ID: got 5", result.stderr)

    # Nothing changes: the command has the arguments, the variables and the exit code that it had.
    def test_as_before(self):
        for env in ({}, {"LOCAL_USER_ID": ""}, {"LOCAL_USER_ID": str(os.getuid())}):
            result = run(SCRIPT, "sh", "-c", 'echo "$HOME|$1"; exit 7', "sh", "a  b", env=env)
            self.assertEqual((result.returncode, result.stdout, result.stderr), (7, "/root|a  b\n", ""))


class UserTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        try:
            require("setpriv", "useradd", "groupadd", "mount")
        except Unavailable as reason:
            raise unittest.SkipTest(str(reason)) from reason

    def setUp(self):
        keeper = tempfile.TemporaryDirectory(prefix="carole-entrypoint-test-")
        self.addCleanup(keeper.cleanup)
        self.folder = keeper.name
        os.chmod(self.folder, 0o755)
        self.script = shutil.copy(SCRIPT, self.folder)  # other users can reach it there

    def shell(self, text, *before):
        """Runs a shell script with accounts of its own. In it, $E is the entry point. Returns the output."""
        os.makedirs(f"{self.folder}/own", exist_ok=True)
        result = run("unshare", "--mount", *before, "sh", "-c", OWN_ETC, "sh", "sh", "-c", text,
                     env={"FOLDER": f"{self.folder}/own", "E": self.script, "SHOW": SHOW})
        self.assertNotEqual(result.returncode, 99, result.stderr)
        return result.stdout.splitlines() + result.stderr.splitlines()

    def show(self, env, before="true"):
        return self.shell(f'{before}; env {env} "$E" sh -c "$SHOW"')

    def test_new_user(self):
        self.assertEqual(self.show("LOCAL_USER_ID=54321 LOCAL_GROUP_ID=54322"),
                         ["54321:54322:user:54322:/home/user:user:54321:54322:700"])

    def test_group_has_the_number_of_the_user(self):
        self.assertEqual(self.show("LOCAL_USER_ID=054321"), ["54321:54321:user:54321:/home/user:user:54321:54321:700"])

    def test_largest_id(self):
        most = 2**32 - 2
        self.assertEqual(self.show(f"LOCAL_USER_ID={most}"), [f"{most}:{most}:user:{most}:/home/user:user:{most}:{most}:700"])

    def test_zero_is_root(self):
        self.assertTrue(self.show("LOCAL_USER_ID=00 LOCAL_GROUP_ID=7")[0].startswith("0:0:root:"))

    # ssh needs a user with a shell, which accounts of the system do not have.
    def test_taken_by_the_system(self):
        self.assertEqual(self.shell('LOCAL_USER_ID=33 LOCAL_GROUP_ID=100 "$E" sh -c "$SHOW"; getent passwd 33 | cut -d: -f6-'),
                         ["33:100:www-data:100:/home/www-data:www-data:33:100:700", "/home/www-data:/bin/sh",
                          "[entry] LOCAL_USER_ID: the image has an account with user id 33; running as www-data"])

    def test_taken_by_a_person(self):
        make = "useradd --uid 54321 --no-log-init --create-home --shell /bin/bash anna"
        lines = self.show("LOCAL_USER_ID=54321", make)
        self.assertTrue(lines[0].startswith("54321:54321:anna:54321:/home/anna:anna:54321:"), lines)
        self.assertIn("[entry] LOCAL_USER_ID: the image has an account with user id 54321; running as anna", lines)

    def test_taken_name(self):
        self.assertEqual(self.show("LOCAL_USER_ID=54321", "useradd --uid 54000 --no-log-init user"),
                         ["54321:54321:user54321:54321:/home/user54321:user54321:54321:54321:700"])

    # A container that is started again, and a second call in the same container.
    def test_again(self):
        lines = self.shell('export LOCAL_USER_ID=54321; "$E" true; "$E" "$E" sh -c "$SHOW"; getent passwd | grep -c 54321')
        self.assertEqual(lines, ["54321:54321:user:54321:/home/user:user:54321:54321:700", "1"])

    # Group 0, which may write /etc/passwd in the image, is dropped.
    def test_groups(self):
        lines = self.shell('LOCAL_USER_ID=54321 "$E" sh -c "$SHOW; grep CapEff /proc/self/status"', "setpriv", "--groups",
                           "0,20,54000")
        self.assertEqual(lines[0].split(":")[3], "54321 20 54000")
        self.assertEqual(lines[1].split(), ["CapEff:", "0" * 16])

    # A read-only container has no name for the user. One host needs none.
    def test_read_only(self):
        lines = self.show("LOCAL_USER_ID=54321", "mount -o remount,ro,bind /etc")
        self.assertTrue(lines[0].startswith("54321:54321:54321:54321:/tmp::"), lines)
        self.assertIn("[entry] the command runs without a user name", " ".join(lines))

    def test_not_root(self):
        lines = self.shell('setpriv --reuid=5 --regid=5 --clear-groups env LOCAL_USER_ID=6 "$E" echo ran; echo $?')
        self.assertEqual(lines[0], "78")
        self.assertIn("[entry] LOCAL_USER_ID: only root can change the user: got a container that runs as user 5", lines[1])

    def test_no_capability(self):
        lines = self.shell('LOCAL_USER_ID=54321 "$E" echo ran; echo $?', "setpriv", "--bounding-set=-setuid")
        self.assertEqual(lines[0], "78")
        self.assertIn("[entry] LOCAL_USER_ID: cannot drop root: setpriv: ", lines[1])

    # Root of a rootless container is the caller outside, and other ids may be missing.
    def test_rootless(self):
        rootless = ["setpriv", "--reuid=54321", "--regid=54321", "--clear-groups", "unshare", "--user", "--map-root-user"]
        probe = run(*rootless, "true")
        if probe.returncode != 0:
            self.skipTest(f"no user namespaces: {probe.stderr.strip()}")
        result = run(*rootless, self.script, "id", "-u", env={"LOCAL_USER_ID": "54321"})
        self.assertEqual((result.stdout, result.stderr), ("0\n", ""))
        result = run(*rootless, self.script, "id", "-u", env={"LOCAL_USER_ID": "7"})
        self.assertEqual((result.returncode, result.stdout), (78, ""))
        self.assertIn("[entry] LOCAL_USER_ID: this container does not have the id: got 7, want at most 0", result.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)  # prints the reason of a skipped test
