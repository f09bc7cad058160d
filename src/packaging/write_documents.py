#!/usr/bin/env python3
"""Writes man pages, bash completion and a Debian changelog. Asks the program for its help.

    write_documents.py CAROLE VERSION MAINTAINER FOLDER

FOLDER gets man1/carole.1.gz, man1/carole-COMMAND.1.gz for each command, carole.bash and changelog.gz. The date is that of
SOURCE_DATE_EPOCH, or today.
"""

import email.utils
import gzip
import os
import sys
import time

import help_pages

def roff(text):
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "\\(ga").replace("^", "\\(ha").replace("~", "\\(ti")
    return "\\&" + text if text.startswith((".", "'")) else text


def page_name(command):
    return "carole-" + command.replace(" ", "-")


def page(name, summary, version, date, body):
    title = name.upper().replace("-", "\\-")
    return (f'.TH {title} 1 "{date}" "carole {version}" "User Commands"\n.SH NAME\n{roff(name)} \\- {roff(summary)}\n'
            + "\n".join(body) + "\n")  # fmt: skip


def command_page(command, version, date):
    body = [".SH SYNOPSIS", ".B " + roff(command.usage), ".SH DESCRIPTION", roff(command.description)]
    for heading, entries in command.groups:
        body.append(f'.SH "{roff(heading.upper())}"')
        for spec, text in entries:
            body += [".TP", ".B " + roff(spec), roff(text) or "\\&"]
    if command.examples:
        body += [".SH EXAMPLES", ".nf", *map(roff, command.examples), ".fi"]
    body += [".SH SEE ALSO", ".BR carole (1)"]
    return page(page_name(command.name), command.summary, version, date, body)


def main_page(commands, version, date):
    body = [".SH SYNOPSIS", ".B carole", "COMMAND [FLAGS]", ".SH DESCRIPTION",
            "Trains image classifiers on many ranks that share their gradients. Each command has its own page.",
            ".SH COMMANDS"]  # fmt: skip
    for command in commands:
        body += [".TP", ".B " + roff(command.name), roff(command.summary) + ", see", f".BR {roff(page_name(command.name))} (1)"]
    body += [".SH FILES", ".TP", ".I /usr/share/doc/carole", "Documents, and batch scripts for Slurm."]
    return page("carole", "train image classifiers on many ranks", version, date, body)


def completion(commands):
    first, second, cases, values = [], {}, [], []
    for command in commands:
        word, _, rest = command.name.partition(" ")
        if word not in first:
            first.append(word)
        if rest:
            second.setdefault(word, []).append(rest)
        flags = list(command.flags())
        with_value = lambda name, takes: name + ("=" if takes else "")
        cases.append(f'    "{command.name}") flags="{" ".join(with_value(n, takes) for n, _, _, takes in flags)}" ;;')
        paths = "|".join(f'"{command.name} {name}"' for name, _, is_path, _ in flags if is_path)
        if paths:
            values.append(f"    {paths}) COMPREPLY=($(compgen -f -- \"$word\")); compopt -o filenames; return ;;")
        for name, allowed, _, _ in flags:
            if allowed:
                values.append(f'    "{command.name} {name}") allowed="{" ".join(allowed)}" ;;')
    groups = "\n".join(f'    {word}) groups="{" ".join(names)}" ;;' for word, names in second.items())
    lines = "\n".join
    return f"""# bash completion for carole: commands, flags, and the values that flags allow.
_carole() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} flag= command=${{COMP_WORDS[1]-}} groups= flags= allowed=
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    COMPREPLY=($(compgen -W "{" ".join(first)} help --help --version" -- "$word"))
    return
  fi
  case $command in
{groups}
  esac
  if [[ $groups ]]; then
    if ((COMP_CWORD == 2)); then
      COMPREPLY=($(compgen -W "$groups" -- "$word"))
      return
    fi
    command+=" ${{COMP_WORDS[2]}}"
  fi
  # --flag=value is three words for bash.
  if [[ $word == = ]]; then
    flag=${{COMP_WORDS[COMP_CWORD - 1]}} word=
  elif [[ ${{COMP_WORDS[COMP_CWORD - 1]}} == = ]]; then
    flag=${{COMP_WORDS[COMP_CWORD - 2]}}
  elif [[ ${{COMP_WORDS[COMP_CWORD - 1]}} == --* && $word != --* ]]; then
    flag=${{COMP_WORDS[COMP_CWORD - 1]}}
  fi
  case "$command $flag" in
{lines(values)}
  esac
  if [[ $allowed ]]; then
    COMPREPLY=($(compgen -W "$allowed" -- "$word"))
    return
  fi
  case $command in
{lines(cases)}
  esac
  if [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$flags" -- "$word"))
    [[ ${{COMPREPLY[*]-}} != *= ]] || compopt -o nospace
  else
    COMPREPLY=($(compgen -f -- "$word"))
    compopt -o filenames
  fi
}}
complete -F _carole carole
"""


def write_gzip(path, text):
    """The same text always gives the same bytes."""
    with open(path, "wb") as file, gzip.GzipFile("", "wb", 9, file, mtime=0) as zipped:
        zipped.write(text.encode())


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    carole, version, maintainer, folder = sys.argv[1:]
    seconds = int(os.environ.get("SOURCE_DATE_EPOCH", time.time()))
    date = time.strftime("%Y-%m-%d", time.gmtime(seconds))
    os.makedirs(os.path.join(folder, "man1"), exist_ok=True)
    commands = help_pages.read_commands(carole)
    write_gzip(os.path.join(folder, "man1", "carole.1.gz"), main_page(commands, version, date))
    for command in commands:
        write_gzip(os.path.join(folder, "man1", page_name(command.name) + ".1.gz"), command_page(command, version, date))
    with open(os.path.join(folder, "carole.bash"), "w", encoding="utf-8") as file:
        file.write(completion(commands))
    write_gzip(os.path.join(folder, "changelog.gz"),
               f"carole ({version}) unstable; urgency=medium\n\n  * Release {version}; CHANGELOG.md lists the changes.\n\n"
               f" -- {maintainer}  {email.utils.formatdate(seconds)}\n")  # fmt: skip


if __name__ == "__main__":
    main()
