"""One node's settings: only nests what each component declares beside its own code.

Everything that must be the same on all nodes is in the genesis instead. `SAFE_KEYS` may change in a
running daemon (SIGHUP); the rest waits for a restart.
"""

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, model_validator
from pydantic.fields import FieldInfo

from daa_node import config_file
from daa_node.api.config import ApiConfig
from daa_node.checkpoints.config import StorageConfig
from daa_node.chronicle.config import HistoryConfig
from daa_node.chronicle.trace_config import TracesConfig
from daa_node.config_file import Loaded, Override
from daa_node.gateway.config import GatewayConfig
from daa_node.identity.record import Role
from daa_node.network.config import NetworkConfig
from daa_node.observability.config import LogConfig
from daa_node.training.base_config import ModelPlaces
from daa_node.training.config import TrainerConfig
from daa_node.training.data_places import DataPlaces

SAFE_KEYS = (
    "log.file_bytes_max",
    "log.files_max",
    "network.upload_mbit_s",
    "network.download_mbit_s",
    "network.data_gb_a_day",
    "storage.bytes_max",
)


class NodeConfig(BaseModel):
    """The content of config.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    role: Role = Field(Role.CLOUD, description="cloud: always on; edge: may be slow, or away")
    enroll: bool = Field(
        False, description="ask to train without a vote, where the network takes trainers"
    )
    network: NetworkConfig = NetworkConfig()
    gateway: GatewayConfig = GatewayConfig()
    api: ApiConfig = ApiConfig()
    trainer: TrainerConfig = TrainerConfig()
    data: DataPlaces = DataPlaces()
    model: ModelPlaces = ModelPlaces()
    storage: StorageConfig = StorageConfig()
    log: LogConfig = LogConfig()
    history: HistoryConfig = HistoryConfig()
    traces: TracesConfig = TracesConfig()

    @model_validator(mode="before")
    @classmethod
    def _from_home(cls, given: Any) -> Any:
        """`~/` as a shell reads it, in paths: no other setting begins so."""
        return _expanded(given)


def _expanded(given: Any) -> Any:
    match given:
        case dict():
            return {key: _expanded(value) for key, value in given.items()}
        case list():
            return [_expanded(value) for value in given]
        case str() if given.startswith("~/"):
            return os.path.expanduser(given)
        case _:
            return given


def load(
    name: str,
    text: str,
    environment: Mapping[str, str] | None = None,
    flags: Sequence[Override] = (),
) -> Loaded[NodeConfig]:
    """The settings in the file called `name`, with DAA_* variables and flags on top.

    Raises UserError that shows every fault with its file, line and column.
    """
    overrides = config_file.environment_overrides(environment or {}, NodeConfig)
    return config_file.load(name, text, NodeConfig, [*overrides, *flags])


def values(config: BaseModel) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every (path, value) of the settings, in the order of their declaration; JSON types."""
    for path in config_file.leaves(type(config)):
        value: Any = config.model_dump(mode="json")
        for key in path:
            value = value[key]
        yield tuple(map(str, path)), value


def changed(old: NodeConfig, new: NodeConfig) -> tuple[list[str], list[str]]:
    """Keys that differ: (those a running daemon takes over, those that wait for a restart)."""
    before = dict(values(old))
    keys = [".".join(path) for path, value in values(new) if before[path] != value]
    return [k for k in keys if k in SAFE_KEYS], [k for k in keys if k not in SAFE_KEYS]


def taken_over(old: NodeConfig, new: NodeConfig) -> NodeConfig:
    """The old settings with what a running daemon takes over of the new ones."""
    sections: dict[str, dict[str, Any]] = {}
    for key in SAFE_KEYS:
        section, name = key.split(".")
        sections.setdefault(section, {})[name] = getattr(getattr(new, section), name)
    changed_ones = {
        section: getattr(old, section).model_copy(update=safe) for section, safe in sections.items()
    }
    return old.model_copy(update=changed_ones)


def reference(model: type[BaseModel] = NodeConfig, indent: str = "") -> Iterator[str]:
    """Every key with its default and meaning, as lines of commented-out YAML."""
    for name, info in model.model_fields.items():
        section = info.annotation
        if isinstance(section, type) and issubclass(section, BaseModel):
            yield f"# {indent}{name}:"
            yield from reference(section, indent + "  ")
        else:
            meaning = f"  # {info.description}" if info.description else ""
            yield f"# {indent}{name}: {_as_yaml(info)}{meaning}"


def _as_yaml(info: FieldInfo) -> str:
    match info.default:
        case None:
            return "null"
        case bool() as flag:
            return str(flag).lower()
        case list() | tuple():
            return f"[{', '.join(map(str, info.default))}]"
        case default:
            return str(default)
