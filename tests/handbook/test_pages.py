"""What the pages say is so: links arrive, commands parse, settings exist, examples are valid.

A new page in docs/ is looked at as soon as it is there. Nothing that it names is run.
"""

import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import yaml

from handbook import commands, outside, yaml_examples
from handbook.commands import NotTaken
from handbook.generated import ROOT, filled
from handbook.markdown import PROGRAMS, Block, Page, read

FRONT = [ROOT / name for name in ("README.md", "CHANGELOG.md", "LOG.md")]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*DOCS, *FRONT]
# History names what has been; those who read the other pages type what is in them.
TODAY = [*DOCS, ROOT / "README.md"]
# Ends of file names: `trainers.py` is no setting.
FILES = (".py", ".json", ".yaml", ".jsonl", ".safetensors", ".md", ".sock", ".sh", ".ts")
_DOTTED = re.compile(r"[a-z_]+(\.[a-z_0-9]+)+")
_QUOTED = re.compile(r'^### "(.+)"$', re.MULTILINE)


def name_of(path: Path) -> str:
    return path.name


@cache
def page(path: Path) -> Page:
    """With what the program writes into it."""
    return read(filled(path.read_text(encoding="utf-8")))


def wrong_links(path: Path) -> Iterator[str]:
    for line, target in page(path).links():
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        arrives = (path.parent / file).resolve() if file else path
        if not arrives.exists():
            yield f"{path.name}:{line}: there is no {target}"
        elif anchor and anchor not in page(arrives).anchors():
            yield f"{path.name}:{line}: {arrives.name} has no heading for #{anchor}"


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_link_arrives(path: Path) -> None:
    assert list(wrong_links(path)) == []


@pytest.mark.parametrize("path", PAGES, ids=name_of)
def test_every_link_has_a_place_in_the_site(path: Path) -> None:
    name = path.relative_to(ROOT).as_posix()
    source = outside.TAKEN_IN.get(name, path.name)
    for _, target in page(path).links():
        outside.site_target(source, target)


def wrong_commands(found: Page) -> Iterator[str]:
    for line, words in found.commands():
        try:
            commands.check_line(words)
        except NotTaken as refusal:
            yield f"{line}: {refusal}"
    for line, span in found.spans():
        if span.split(" ")[0] not in PROGRAMS or " -> " in span:
            continue
        try:
            commands.check_mention(shlex.split(span.partition(" > ")[0]))
        except NotTaken as refusal:
            yield f"{line}: {refusal}"


@pytest.mark.parametrize("path", TODAY, ids=name_of)
def test_every_command_is_one_that_the_program_takes(path: Path) -> None:
    assert list(wrong_commands(page(path))) == []


def unknown_settings(found: Page) -> Iterator[str]:
    for line, span in found.spans():
        if _DOTTED.fullmatch(span) and not span.endswith(FILES):
            if yaml_examples.unknown_setting(span):
                yield f"{line}: {span}"
        elif re.match(r"[a-z_]+: [{\[]", span):
            yield from (f"{line}: {key}" for key in _unknown_in(span))


def _unknown_in(span: str) -> Iterator[str]:
    """Keys below a section that stands in running text, as `gateway: {enabled: true}`."""
    try:
        data = yaml.safe_load(span)
    except yaml.YAMLError:
        return  # cut short with an ellipsis, or no YAML at all
    for section, inner in data.items():
        for key in inner if isinstance(inner, dict) else ():
            if yaml_examples.unknown_setting(f"{section}.{key}"):
                yield f"{section}.{key}"


@pytest.mark.parametrize("path", TODAY, ids=name_of)
def test_every_setting_that_is_named_exists(path: Path) -> None:
    assert list(unknown_settings(page(path))) == []


def wrong_examples(found: Page) -> Iterator[str]:
    for block in found.blocks:
        if block.language == "yaml" and (why := yaml_examples.why_refused(block)) is not None:
            yield f"{block.line}: {why}"


@pytest.mark.parametrize("path", TODAY, ids=name_of)
def test_every_example_is_what_the_program_reads(path: Path) -> None:
    assert list(wrong_examples(page(path))) == []


@cache
def source_text() -> str:
    """All of the program's own text, with what Python joins joined."""
    files = sorted((ROOT / "daa_node").rglob("*.py"))
    text = "".join(file.read_text(encoding="utf-8") for file in files)
    return re.sub(r'"\s*\n\s*f?"', "", text)


def test_every_message_that_the_questions_quote_is_printed_by_the_program() -> None:
    quoted = _QUOTED.findall((ROOT / "docs" / "faq.md").read_text(encoding="utf-8"))
    assert len(quoted) > 5
    for message in quoted:
        for piece in message.split(" ... "):
            assert piece in source_text(), piece


def test_each_path_of_the_http_api_stands_in_a_page_for_operators() -> None:
    sources = [*(ROOT / "daa_node/api").glob("*.py"), *(ROOT / "dashboard/src").glob("*.ts*")]
    texts = [source.read_text(encoding="utf-8") for source in sources]
    paths = {path for text in texts for path in re.findall(r'"(/(?:v1/)?[a-z/.-]{4,})"', text)}
    assert len(paths) > 20
    pages = (ROOT / "docs/operator-api.md", ROOT / "docs/watching.md")
    told = "".join(path.read_text(encoding="utf-8") for path in pages)
    assert [path for path in sorted(paths) if f"`{path}" not in told] == []


PLANTED = """\
See [there](nowhere.md) and [here](#no-such-part). Ask `daa-node statuses`, set `network.lissten`
or `gateway: {on: true}`.

    daa-node status --dri alice

```yaml
network: {lissten: ["0.0.0.0:4001"]}
```

```yaml
- a list
```
"""


def test_what_is_wrong_is_found(tmp_path: Path) -> None:
    planted = tmp_path / "planted.md"
    planted.write_text(PLANTED)
    found = page(planted)
    assert len(list(wrong_links(planted))) == 2
    assert len(list(wrong_commands(found))) == 2
    assert len(list(unknown_settings(found))) == 2
    assert len(list(wrong_examples(found))) == 2


@pytest.mark.parametrize(
    ("text", "marker"),
    [
        ("role: edge\n", None),
        (
            "# job.yaml\ndata: {kind: local, format: text, path: held.txt}\n"
            "spot_checks: {share: [0, 1]}\n",
            None,
        ),
        ("nodes: [{name: voter, count: 5}]\n", None),
        ("  allow_modules: [mine]\n", "in trainer"),
        ("scrape_configs: []\n", "Prometheus"),
    ],
)
def test_parts_of_files_are_taken_for_what_they_are(text: str, marker: str | None) -> None:
    assert yaml_examples.why_refused(Block(1, "yaml", text, marker)) is None


@pytest.mark.parametrize(
    ("text", "marker"),
    [
        ("rolle: edge\n", None),
        ("# config.yaml\nspot_checks: {share: [0, 1]}\n", None),
        ("model: {kind: byte_gpt, width: 97}\n", None),
        ("  allow_module: [mine]\n", "in trainer"),
        ("scrape_configs: []\n", None),
    ],
)
def test_a_planted_example_is_refused(text: str, marker: str | None) -> None:
    assert yaml_examples.why_refused(Block(1, "yaml", text, marker)) is not None
