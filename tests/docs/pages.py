"""Reads the Markdown pages of the repository: code blocks, links, headings and code spans.

Comments in a page steer the tests of its blocks:

    <!-- given: DATA RUN -->            the page's commands find these files (the table GIVEN of run_pages.py)
    <!-- not run: needs four hosts -->  the next block is not run, for this reason
    <!-- needs: keras -->               the next block is run if Keras is installed
"""

import dataclasses
import os
import re

FENCE = re.compile(r"^(\s*)(```|~~~)\s*([\w+-]*)\s*$")
COMMENT = re.compile(r"^\s*<!-- (given|not run|needs): (.*?) -->\s*$")
LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
COMMAND_LANGUAGES = ("sh", "console")


@dataclasses.dataclass
class Block:
    page: str  # path relative to the root
    line: int  # of the first line in the block
    language: str
    lines: list
    not_run: str = ""  # the reason
    needs: str = ""

    @property
    def name(self):
        return f"{self.page}:{self.line}"

    def commands(self):
        """[(command, expected lines)]. A `sh` block is one command. In a `console` block, a command begins with "$ "."""
        if self.language == "sh":
            return [("\n".join(self.lines), [])]
        commands, continued = [], False
        for line in self.lines:
            if line.startswith("$ "):
                commands.append([line[2:], []])
            elif not commands:
                raise ValueError(f"{self.name}: a console block must begin with '$ '")
            elif continued:
                commands[-1][0] += "\n" + line
            else:
                commands[-1][1].append(line)
            continued = (line.startswith("$ ") or continued) and line.endswith("\\")
        return [tuple(command) for command in commands]


@dataclasses.dataclass
class Page:
    path: str  # relative to the root
    given: list
    blocks: list
    links: list  # (line, target)
    spans: list  # (line, text of a code span)
    anchors: set  # of its headings, as GitHub makes them


def anchor_of(heading):
    text = re.sub(r"`|\*|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def parse(path, text):
    page = Page(path, [], [], [], [], set())
    pending, block = {}, None
    prose = []  # (line, text) outside of blocks
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        comment = COMMENT.match(line)
        if block is not None:
            if fence and not fence[3]:
                page.blocks.append(block)
                block = None
            else:
                block.lines.append(line)
        elif fence:
            block = Block(path, number + 1, fence[3], [], pending.get("not run", ""), pending.get("needs", ""))
            pending = {}
        elif comment and comment[1] == "given":
            page.given += comment[2].split()
        elif comment:
            pending[comment[1]] = comment[2]
        else:
            if pending and line.strip():
                raise ValueError(f"{path}:{number}: a comment '{next(iter(pending))}' must stand right before a code block")
            prose.append((number, line))
            heading = re.match(r"#+ +(.*)", line)
            if heading:
                page.anchors.add(anchor_of(heading[1]))
    if block is not None:
        raise ValueError(f"{path}:{block.line}: a code block without an end")
    # A code span or the text of a link may go on in the next line.
    whole = "\n".join(text for _, text in prose)
    starts = [0]
    for _, text in prose:
        starts.append(starts[-1] + len(text) + 1)

    def line_at(offset):
        return prose[max(i for i, start in enumerate(starts[:-1]) if start <= offset)][0]

    page.links = [(line_at(m.start()), m[1]) for m in LINK.finditer(SPAN.sub(lambda m: "x" * len(m[0]), whole))]
    page.spans = [(line_at(m.start()), " ".join(m[1].split())) for m in SPAN.finditer(whole)]
    return page


def files_of(root):
    """All files of the repository, relative to the root, without builds."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if not f.startswith("build") and f not in (".git", "__pycache__"))
        for name in sorted(names):
            yield os.path.relpath(os.path.join(folder, name), root)


def read_pages(root):
    pages = []
    for path in files_of(root):
        if path.endswith(".md"):
            with open(os.path.join(root, path), encoding="utf-8") as file:
                pages.append(parse(path, file.read()))
    return pages
