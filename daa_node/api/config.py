"""What an operator says about the HTTP API of its own: off, unless it has an address.

Its tokens pass in clear where there is no TLS. So it listens on loopback, unless it has a
certificate, or a proxy of the operator's stands before it.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from daa_node.wire.listening import can_listen, is_loopback

HOSTS_MAX = 16
_HOST = re.compile(r"([a-z0-9](?:[a-z0-9.-]{0,251}[a-z0-9])?|\[[0-9a-f:.]+\])(:[0-9]{1,5})?")


def _is_host(text: str) -> str:
    if not _HOST.fullmatch(text):
        raise ValueError(
            f"{text!r} is no Host as clients send it: like localhost:9000, in small letters"
        )
    return text


class ApiConfig(BaseModel):
    """The `api` section of config.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    listen: Annotated[str, AfterValidator(can_listen)] | None = Field(
        None,
        description="serve dashboard, metrics and commands there, like 127.0.0.1:9180; null: off",
    )
    hosts: tuple[Annotated[str, AfterValidator(_is_host)], ...] = Field(
        (),
        max_length=HOSTS_MAX,
        description="what clients write beside those of loopback, like localhost:9000 of an ssh -L",
    )
    certificate: str | None = Field(None, description="PEM file, with the chain: it speaks HTTPS")
    key: str | None = Field(None, description="PEM file of its private key")
    behind_proxy: bool = Field(
        False, description="a proxy of ours has the certificate, and tells X-Forwarded-For"
    )

    public_listen: Annotated[str, AfterValidator(can_listen)] | None = Field(
        None, description="beside listen: tell anybody there how the network stands; null: off"
    )

    @property
    def is_secure(self) -> bool:
        """Whether nobody on the way reads a token."""
        return self.certificate is not None or self.behind_proxy

    @model_validator(mode="after")
    def _keeps_its_tokens(self) -> "ApiConfig":
        if (self.certificate is None) != (self.key is None):
            raise ValueError("certificate and key go together")
        if self.certificate is not None and self.behind_proxy:
            raise ValueError("certificate, or behind_proxy: one of them has the certificate")
        if self.listen is not None and not self.is_secure and not is_loopback(self.listen):
            raise ValueError(
                f"listen: {self.listen} is open to others, and without TLS the tokens would pass "
                "in clear: listen on 127.0.0.1 and reach it from elsewhere by `ssh -L`, or set "
                "certificate and key, or `behind_proxy: true`"
            )
        if self.is_secure and not self.hosts:
            raise ValueError("hosts: name what clients open, like node.example:9180")
        if self.public_listen is not None and self.listen is None:
            raise ValueError("public_listen: it goes with `listen`, which is off")
        return self
