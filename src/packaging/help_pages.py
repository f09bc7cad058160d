"""Reads the help of the program: its commands, and the flags of each. src/commands/cli/help_format.h defines the format."""

import re
import subprocess

ENTRY = re.compile(r"^  (\S.*?)  +(\S.*)$")
ONE_OF = re.compile(r"One of: ([^.]+)\.")


class Command:
    def __init__(self, name, summary, text):
        self.name, self.summary = name, summary
        self.description, self.usage = "", ""
        self.groups = []  # [heading, [(names and type, text)]]
        self.examples = []
        self._parse(text)

    def _parse(self, text):
        head, _, rest = text.partition("\n\nUsage: ")
        self.description = " ".join(head.split())
        usage, _, rest = rest.partition("\n")
        self.usage = usage
        for line in rest.split("\n"):
            if line and not line.startswith(" ") and line.endswith(":"):
                self.groups.append([line[:-1], []])
            elif not self.groups or not line.startswith("  "):
                continue
            elif self.groups[-1][0] == "Examples":
                self.examples.append(line.strip())
            elif ENTRY.match(line) and not line.startswith("    "):
                self.groups[-1][1].append(list(ENTRY.match(line).groups()))
            elif not line.startswith("    "):
                self.groups[-1][1].append([line.strip(), ""])
            elif self.groups[-1][1]:
                self.groups[-1][1][-1][1] += " " + line.strip()
        self.groups = [group for group in self.groups if group[0] != "Examples"]

    def flags(self):
        """Yields (flag with dashes, allowed values or None, whether it takes a path, whether it takes a value)."""
        for _, entries in self.groups:
            for spec, text in entries:
                if not spec.startswith("-"):
                    continue
                names, _, kind = spec.partition(" ")
                values = ONE_OF.search(text)
                values = values.group(1).replace(",", " ").split() if values else None
                for name in names.split(","):
                    if name.startswith("--[no]"):
                        yield "--" + name[6:], None, False, False
                        yield "--no" + name[6:], None, False, False
                    elif name.startswith("--"):
                        yield name, values, kind.startswith("PATH"), bool(kind)

    def allowed_values(self):
        """Flag without dashes -> its allowed values, or None for any."""
        return {flag.removeprefix("--"): values for flag, values, _, _ in self.flags()}


def ask(carole, *words):
    return subprocess.run([carole, *words], text=True, capture_output=True, check=True).stdout


def read_commands(carole):
    commands = []
    listed = ask(carole, "--help").partition("Commands:\n")[2].partition("\n\n")[0]
    for line in listed.split("\n"):
        name, _, summary = line.strip().partition("  ")
        if name:
            commands.append(Command(name, summary.strip(), ask(carole, *name.split(), "--helpfull")))
    return commands
