"""What is in a page of the documentation: headings, links, blocks of code, lines to type.

It reads Markdown as GitHub shows it, as far as our pages use it: `#` headings, fenced and indented
blocks, inline links. A comment in front of a block, `<!-- yaml: ... -->`, says what the block is
where that cannot be seen.
"""

import re
import shlex
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass

PROGRAMS = ("daa-node", "simnet")
INDENTED = "indented"
# Blocks to type in. A fence without a language holds what a program prints.
TYPED = (INDENTED, "sh", "bash", "console")
# What may stand before a command of ours, with words of its own between.
LAUNCHERS = ("sudo", "docker", "kubectl", "ssh")
_FENCE = re.compile(r"(?P<indent> *)```(?P<language>[\w-]*)\s*$")
_HEADING = re.compile(r"(#{1,6}) +(.+?)\s*#*$")
_LINK = re.compile(r"(?<!!)\[(?:[^\[\]]|\[[^\]]*\])*\]\(([^()\s]+)\)")
_SPAN = re.compile(r"(?<!`)`([^`]+)`(?!`)")
_MARKER = re.compile(r"<!-- yaml: (.+?) -->$")
_NAMED = re.compile(r'<a id="([^"]+)"></a>')
_ITEM = re.compile(r" *([-*+]|\d+\.) ")
# What ends a command for the shell, with white space around it.
_ENDS_COMMAND = frozenset({">", ">>", "<", "|", "&&", "||", ";", "2>", "2>&1"})


@dataclass(frozen=True, slots=True)
class Block:
    """Code, without its indentation; `line` is that of its first line, from 1 on."""

    line: int
    language: str  # INDENTED where there is no fence, "" for a fence that names none
    text: str
    marker: str | None = None


@dataclass(frozen=True, slots=True)
class Page:
    """A page's prose lines, each with its number, and its blocks."""

    prose: tuple[tuple[int, str], ...]
    blocks: tuple[Block, ...]

    def headings(self) -> Iterator[tuple[int, str]]:
        """(level from 1 on, words) of each."""
        for _, line in self.prose:
            if found := _HEADING.match(line):
                yield len(found[1]), found[2]

    def anchors(self) -> list[str]:
        """What a link may name behind `#`; a heading that comes again gets a number."""
        given = [name for _, line in self.prose for name in _NAMED.findall(line)]
        for _, words in self.headings():
            name = slug(words)
            again = sum(
                each == name or re.fullmatch(f"{re.escape(name)}-\\d+", each) is not None
                for each in given
            )
            given.append(f"{name}-{again}" if again else name)
        return given

    def links(self) -> Iterator[tuple[int, str]]:
        """(line, target) of each inline link."""
        for number, line in self.prose:
            for found in _LINK.finditer(_SPAN.sub("``", line)):
                yield number, found[1]

    def spans(self) -> Iterator[tuple[int, str]]:
        """(line, text) of each piece of code within prose."""
        for number, line in self.prose:
            for found in _SPAN.finditer(line):
                yield number, found[1]

    def commands(self) -> Iterator[tuple[int, list[str]]]:
        """(line, words) of each whole command of ours in a block, as a shell would split it."""
        for block in self.blocks:
            if block.language not in TYPED:
                continue
            for offset, line in enumerate(block.text.splitlines()):
                for words in typed(line.strip().removeprefix("$ ")):
                    yield block.line + offset, words


def typed(line: str) -> Iterator[list[str]]:
    """The commands of ours in one line of a shell, without what starts or redirects them."""
    first = line.split(" ")[0]
    if first.rpartition("/")[2] not in (*PROGRAMS, *LAUNCHERS):
        return  # some other line, or what a program has printed
    words: list[str] = []
    for word in [*shlex.split(line, comments=True), ";"]:
        if word not in _ENDS_COMMAND:
            words.append(word.rpartition("/")[2] if word.endswith(PROGRAMS) else word)
            continue
        while words and words[0] not in PROGRAMS:
            del words[0]
        if words:
            yield words
        words = []


def slug(heading: str) -> str:
    """The anchor that GitHub gives to a heading, and that our site gives to it as well."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    return re.sub(r"[^\w\- ]", "", plain.strip().lower()).replace(" ", "-")


def read(text: str) -> Page:
    """Take a page apart."""
    lines = text.splitlines()
    prose: list[tuple[int, str]] = []
    blocks: list[Block] = []
    at, marker = 0, None
    while at < len(lines):
        line = lines[at]
        fence = _FENCE.match(line)
        if fence is not None:
            end = _fence_end(lines, at + 1)
            body = textwrap.dedent("\n".join(lines[at + 1 : end]))
            if marker is not None and marker.startswith("in "):
                body = "\n".join(lines[at + 1 : end])  # its indentation is a part of it
            blocks.append(Block(at + 2, fence["language"], body + "\n", marker))
            at, marker = end + 1, None
        elif _begins_indented(lines, at):
            end = _indented_end(lines, at)
            body = textwrap.dedent("\n".join(lines[at:end]))
            blocks.append(Block(at + 1, INDENTED, body + "\n", marker))
            at, marker = end, None
        else:
            if line.strip():
                found = _MARKER.match(line.strip())
                marker = found[1] if found is not None else None
            prose.append((at + 1, line))
            at += 1
    return Page(tuple(prose), tuple(blocks))


def _fence_end(lines: list[str], at: int) -> int:
    while at < len(lines) and lines[at].strip() != "```":
        at += 1
    return at


def _begins_indented(lines: list[str], at: int) -> bool:
    """Four spaces behind an empty line, which is code also in a list if four more are there."""
    before = lines[at - 1] if at else ""
    return (
        lines[at].startswith("    ")
        and bool(lines[at].strip())
        and not before.strip()
        and _ITEM.match(lines[at]) is None
    )


def _indented_end(lines: list[str], at: int) -> int:
    end = at
    while at < len(lines) and (lines[at].startswith("    ") or not lines[at].strip()):
        at += 1
        if lines[at - 1].strip():
            end = at
    return end
