"""Whether a YAML block of a page is what the program would read: settings, a job or a scenario.

A block may be a part of such a file: what every file needs is added then. Its first line may name
the file, `# job.yaml`. A comment in front says what else it is: `<!-- yaml: Prometheus -->` that it
is another program's, `<!-- yaml: in trainer -->` that it stands inside a section.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from daa_node import config_file
from daa_node.config import NodeConfig
from daa_node.errors import UserError
from daa_node.genesis import Job
from handbook.markdown import Block
from simnet.world.scenario import Scenario

MODELS: Mapping[str, type[BaseModel]] = {
    "config.yaml": NodeConfig,
    "job.yaml": Job,
    "scenario": Scenario,
}
# What a file cannot do without, where a block shows another part of it.
_NEEDED = {
    "config.yaml": {},
    "job.yaml": {"name": "name: example", "end": "end: {rounds: 1}"},
    "scenario": {"name": "name: example"},
}


def why_refused(block: Block) -> str | None:
    """What is wrong with a block of ours; None if it is a file, or a part of one."""
    text = block.text
    if block.marker is not None:
        section = block.marker.removeprefix("in ")
        if section == block.marker:
            return None
        text = f"{section}:\n{text}"
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as broken:
        return f"this is not YAML: {broken}"
    if not isinstance(data, dict):
        return "this is no `key: value`"
    refusals = []
    for name in _meant(text, data):
        lacking = [line for key, line in _NEEDED[name].items() if key not in data]
        try:
            config_file.load(name, "\n".join([*lacking, text]), MODELS[name])
        except UserError as refusal:
            refusals.append(str(refusal))
        else:
            return None
    return "\n".join(refusals) or f"no file of ours has all of {', '.join(map(str, data))}"


def _meant(text: str, data: Mapping[str, Any]) -> Iterator[str]:
    """Files that it may be: the one that it names, or all that have such keys."""
    first = text.lstrip().splitlines()[0]
    if first.startswith("#"):
        named = [name for name in MODELS if name in first]
        if named:
            yield from named
            return
    for name, model in MODELS.items():
        if data.keys() <= model.model_fields.keys():
            yield name


def unknown_setting(dotted: str) -> bool:
    """Whether it looks like a setting of ours, `section.key`, and no file has it.

    `dotted` may end at a section. A number stands for an item of a list.
    """
    path = [part for part in dotted.split(".") if not part.isdigit()]
    candidates = [model for model in MODELS.values() if path[0] in _sections(model)]
    return bool(candidates) and not any(_has(model, path) for model in candidates)


def _sections(model: type[BaseModel]) -> set[str]:
    """Keys at the top of a file that have keys below them."""
    fields = model.model_fields.items()
    return {name for name, info in fields if config_file.model_in(info.annotation) is not None}


def _has(model: type[BaseModel] | None, path: list[str]) -> bool:
    for key in path:
        if model is None or key not in model.model_fields:
            return False
        model = config_file.model_in(model.model_fields[key].annotation)
    return True
