"""What an operator says about the HTTP API of its own: off, unless it has an address."""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from daa_node.wire.listening import can_listen, is_loopback

HOSTS_MAX = 16
_HOST = re.compile(r"([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


def _is_ours_alone(text: str) -> str:
    can_listen(text)
    if not is_loopback(text):
        raise ValueError(
            f"{text} is open to others, and this API speaks no TLS, so that its tokens would pass "
            "in clear: listen on 127.0.0.1, and reach it from elsewhere by `ssh -L`"
        )
    return text


def _is_host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise ValueError(
            f"{text!r} is no Host as clients send it: like localhost:9000, in small letters"
        )
    return text


class ApiConfig(BaseModel):
    """The `api` section of config.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    listen: Annotated[str, AfterValidator(_is_ours_alone)] | None = Field(
        None, description="serve metrics and status over HTTP there, like 127.0.0.1:9180; null: off"
    )
    hosts: tuple[Annotated[str, AfterValidator(_is_host)], ...] = Field(
        (),
        max_length=HOSTS_MAX,
        description="what clients write beside those of loopback, like localhost:9000 of an ssh -L",
    )
