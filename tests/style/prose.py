#!/usr/bin/env python3
"""Fails on prose that is hard to read: long sentences, British spelling, and words that have a standard term.

    prose.py ROOT [PATH ...]     checks the tracked files of ROOT, or only those below these paths (relative to ROOT)

Prose is: comments of C++, CUDA, CMake, Python and shell sources, docstrings, messages (string literals of six words or
more), and the text of Markdown pages without code blocks and tables. The rules are in CONTRIBUTING.md, "How we write".
A check is a help, not the goal: a text that passes can still be hard to read.
"""

import io
import os
import re
import sys
import tokenize

from tracked_files import tracked_files

MAX_WORDS = 32  # aim at 25; a list of names or values may need a few more

# Pattern (case does not matter) -> what to write instead.
TERMS = {
    r"(colour|grey|neighbour|behaviour|favour|licen[c]e|labell|modell|signall|travell|centre)\w*": "American spelling",
    r"\w+(alis|initialis|recognis|minimis|maximis|optimis|synchronis|serialis|organis|vectoris|summaris|quantis|regularis)"
    r"(e|es|ed|ing|ation|er)\b": "American spelling",
    r"beside": '"next to", "compared with" or "as well as"',
    r"besides": '"in addition to", "as well as" or "also"',
    r"otherwise than": '"unlike"',
    r"so many|as many as one": '"this many", or a number',
    r"under way": '"in flight"',
    r"troubles?": '"problem" or "finding"',
    r"pictures?": '"image"',
    r"for ever": '"forever"',
    r"roll calls?": '"stall inspection"',
    r"in its stead|in their stead|in whose stead": '"instead"',
    r"whoever|whomever": "a subject: the rank, the caller, the user",
    r"goes? by way of": '"uses" or "through"',
    r"keeps? (everybody|the others) waiting": '"stalls"',
    r"speaks? for (itself|himself)": "what it says or sets",
    r"is wont to|of its own accord|to that end|hitherto|thereof|therein|hence": "plain words",
}
TERM = re.compile(r"(?<![\w-])(?:" + "|".join(f"(?P<t{i}>{p})" for i, p in enumerate(TERMS)) + r")(?![\w-])", re.IGNORECASE)

NO_SUBJECT = re.compile(r"^(Of|Whom|Whose|Who) (?!\w+ (is|are)\b.*\?$)")  # "Of the step in progress, in memory."
WORD = re.compile(r"[A-Za-z][\w'’-]*")
SENTENCE_END = re.compile(r"(?<=[.!?:;])(?:\s+)(?=[A-Z0-9\"'`(\[<–-])|\n\n+|\n\s*(?=[-*] )|(?<=[:;])\s*\n")

CODE = (".h", ".cpp", ".cu", ".cuh")
SKIPPED = ("tests/data/", "tests/fuzz/corpus/", "io/datasets/imagenet/", "tests/style/prose.py", "tests/style/style_test.py")

CPP_TOKEN = re.compile(
    r'R"(?P<d>[^(\s]*)\((?P<raw>.*?)\)(?P=d)"|"(?P<text>(?:[^"\\\n]|\\.)*)"|\'(?:[^\'\\\n]|\\.)+\'|//(?P<line>[^\n]*)|/\*(?P<block>.*?)\*/',
    re.DOTALL,
)


class Chunks:
    """Collects pieces of prose; lines of one comment that follow each other make one piece."""

    def __init__(self):
        self.pieces = []  # [first line, last line, text, kind]

    def add(self, line, text, kind, joined=True):
        last = self.pieces[-1] if self.pieces else None
        if last and joined and kind == last[3] and line - last[1] in (0, 1):
            last[1] = line + text.count("\n")
            last[2] += ("\n" if kind == "comment" else "") + text
        else:
            self.pieces.append([line, line + text.count("\n"), text, kind])


def cpp_prose(text):
    chunks = Chunks()
    text = re.sub(r"^[ \t]*#[ \t]*include.*$", "", text, flags=re.MULTILINE)
    end = 0
    for match in CPP_TOKEN.finditer(text):
        line = text.count("\n", 0, match.start()) + 1
        alone = text[text.rfind("\n", 0, match.start()) + 1 : match.start()].strip() == ""
        if match["line"] is not None:
            chunks.add(line, match["line"].lstrip("/").strip(" "), "comment" if alone else f"comment at {line}")
        elif match["block"] is not None:
            chunks.add(line, match["block"], f"comment at {line}")
        elif match["text"] is not None:
            joined = text[end : match.start()].isspace()  # "a" "b" is one string
            chunks.add(line, match["text"].replace("\\n", "\n").replace('\\"', '"'), "message", joined)
        end = match.end()
    return chunks.pieces


def python_prose(text):
    chunks = Chunks()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT and not token.string.startswith("#!"):
                alone = token.line.strip().startswith("#")
                kind = "comment" if alone else f"comment at {token.start[0]}"
                chunks.add(token.start[0], token.string.lstrip("#").strip(), kind)
            elif token.type == tokenize.STRING:
                kind = "docstring" if token.string.lstrip("rbuf").startswith('"""') else "message"
                chunks.add(token.start[0], token.string.strip("rbuf\"'"), f"{kind} at {token.start[0]}")
    except tokenize.TokenError as error:
        chunks.add(1, f"cannot be read: {error}", "comment")
    return chunks.pieces


def hash_prose(text):
    chunks = Chunks()
    for number, line in enumerate(text.splitlines(), 1):
        stripped = line.strip()
        if stripped.startswith("#") and not stripped.startswith(("#!", "#SBATCH", "# shellcheck")):
            chunks.add(number, stripped.lstrip("#").strip(), "comment")
    return chunks.pieces


def markdown_prose(text):
    chunks = Chunks()
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith(("```", "~~~")):
            fenced = not fenced
        elif not fenced and not line.lstrip().startswith(("|", "    ", "<")):
            chunks.add(number, re.sub(r"`[^`]*`", "X", line.lstrip("#> ")), "comment")
    return chunks.pieces


def prose_of(path, text):
    """Pieces of prose in a file: [first line, last line, text, kind]."""
    if path.endswith(CODE):
        return cpp_prose(text)
    if path.endswith(".py"):
        return python_prose(text)
    if path.endswith(".md"):
        return markdown_prose(text)
    return hash_prose(text)


def is_diagram(sentence):
    """Formulas, tables, drawings and lists of identifiers are no sentences."""
    words = sentence.split()
    if sum("_" in word for word in words) > len(words) / 3:
        return True
    return bool(re.search(r"\S   +\S|[=<>|{}]{2}|->|─|│|\(N,C|;$|^\s*\.?/?\w+\(", sentence))


def check(path, text):
    """Returns one line for each finding."""
    findings = []
    for first, _, piece, kind in prose_of(path, text):
        message = kind.startswith("message")
        if message and len(WORD.findall(piece)) < 6:
            continue
        for match in TERM.finditer(piece):
            hint = TERMS[list(TERMS)[int(match.lastgroup[1:])]]
            line = first + piece.count("\n", 0, match.start())
            findings.append(f'{path}:{line}: "{match.group()}": write {hint}')
        position = 0
        for sentence in SENTENCE_END.split(piece):
            if sentence is None:
                continue
            line = first + piece.count("\n", 0, max(piece.find(sentence, position), 0))
            position = max(piece.find(sentence, position), 0)
            words = WORD.findall(re.sub(r"`[^`]*`", "X", sentence))
            if len(words) > MAX_WORDS and not is_diagram(sentence):
                findings.append(f"{path}:{line}: a sentence of {len(words)} words, want at most {MAX_WORDS}: {' '.join(words[:6])} ...")
            if not message and NO_SUBJECT.match(sentence.strip()):
                findings.append(f"{path}:{line}: a sentence without a subject: {' '.join(sentence.split()[:6])} ...")
    return findings


def is_prose_file(path):
    name = os.path.basename(path)
    return not path.startswith(SKIPPED) and (
        path.endswith((*CODE, ".py", ".md", ".sh", ".sbatch", ".cmake")) or name in ("CMakeLists.txt", "run", "nightly")
    )


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    root, prefixes = sys.argv[1], tuple(sys.argv[2:])
    findings, count = [], 0
    for path in tracked_files(root):
        if is_prose_file(path) and (not prefixes or path.startswith(prefixes)):
            count += 1
            with open(os.path.join(root, path), encoding="utf-8") as file:
                findings += check(path, file.read())
    print("\n".join(findings) if findings else f"{count} files, nothing to mend")
    sys.exit(1 if findings else 0)


if __name__ == "__main__":
    main()
