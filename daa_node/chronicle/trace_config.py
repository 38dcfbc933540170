"""Where traces of rounds go: nowhere, unless the operator says so."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def _is_endpoint(text: str) -> str:
    parts = urlsplit(text)
    is_plain = parts.username is None and not parts.fragment and not parts.query
    is_plain = is_plain and parts.port != 0  # reading it raises ValueError where it is no port
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
        raise ValueError(
            f"{text!r} is no place for traces: like http://127.0.0.1:4318/v1/traces, with no name, "
            "password or query"
        )
    return text


class TracesConfig(BaseModel):
    """The `traces` section of config.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    file: bool = Field(
        False, description="write each round's trace as OTLP JSON into D/traces.jsonl, rotated"
    )
    otlp: Annotated[str, AfterValidator(_is_endpoint)] | None = Field(
        None, description="send them to a collector, like http://127.0.0.1:4318/v1/traces"
    )
