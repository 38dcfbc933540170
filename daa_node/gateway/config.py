"""What an operator says about the page for volunteers: off, unless the gateway is enabled.

It listens on loopback. Elsewhere a browser needs HTTPS to train in: either our own certificate, or
a proxy in front of us that has one. What is neither is refused before the daemon starts.
"""

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from daa_node.wire.listening import can_listen, is_loopback

HOSTS_MAX = 16
DIAL_MAX = 16
# A session costs 0.1 MB and, at the pace of tasks, under 0.05 % of a core (benchmarks/).
VOLUNTEERS_MAX = 256
VOLUNTEERS_PER_ADDRESS = 8  # a household, or a class behind one router: raise it
_NAME = re.compile(r"(?!-)[a-z0-9-]{1,63}(\.[a-z0-9-]{1,63})*|\[[0-9a-f:.]+\]")
_WEBSOCKET = re.compile(r"/(ip4|dns|dns4|dns6)/([A-Za-z0-9.-]+)/tcp/([0-9]{1,5})/(ws|wss|tls/ws)")


def is_websocket_address(address: str) -> bool:
    """Whether a multiaddr without a peer id is one that a page can dial."""
    found = _WEBSOCKET.fullmatch(address)
    return found is not None and 0 < int(found[3]) < 65536


def is_secure_address(address: str) -> bool:
    """Whether such a multiaddr, with or without a peer id, speaks TLS."""
    return address.partition("/p2p/")[0].endswith(("/wss", "/tls/ws"))


def _is_host(text: str) -> str:
    if len(text) > 253 or not _NAME.fullmatch(text):
        raise ValueError(
            f"{text!r} is no host as browsers write it: small letters, without scheme and port"
        )
    return text


def _is_websocket(text: str) -> str:
    if not is_websocket_address(text):
        raise ValueError(
            f"{text!r} is not like /dns4/node.example/tcp/443/wss; our peer id is added"
        )
    return text


class GatewayConfig(BaseModel):
    """The `gateway` section of config.yaml."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    enabled: bool = Field(False, description="serve the page that volunteers open in a browser")
    listen: Annotated[str, AfterValidator(can_listen)] = Field(
        "127.0.0.1:8080", description="where it serves the page"
    )
    hosts: tuple[Annotated[str, AfterValidator(_is_host)], ...] = Field(
        (), max_length=HOSTS_MAX, description="names it answers to, beside those of loopback"
    )
    tls_certificate: str | None = Field(
        None, description="PEM file, with the chain; also for pages that dial network.listen"
    )
    tls_key: str | None = Field(None, description="PEM file of its private key")
    behind_proxy: bool = Field(
        False, description="a proxy of ours has the certificate, and tells X-Forwarded-For"
    )
    dial: tuple[Annotated[str, AfterValidator(_is_websocket)], ...] = Field(
        (), max_length=DIAL_MAX, description="told to pages instead of what network.listen says"
    )

    volunteers_max: int = Field(
        VOLUNTEERS_MAX, ge=0, le=4096, description="sessions of volunteers at once; 0: none"
    )
    volunteers_per_address: int = Field(
        VOLUNTEERS_PER_ADDRESS, ge=1, le=4096, description="of these; behind a proxy all have one"
    )

    @property
    def is_secure(self) -> bool:
        """Whether browsers see HTTPS, and so refuse to dial a WebSocket without TLS."""
        return self.tls_certificate is not None or self.behind_proxy

    @model_validator(mode="after")
    def _can_be_reached_safely(self) -> "GatewayConfig":
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ValueError("tls_certificate and tls_key go together")
        if self.tls_certificate is not None and self.behind_proxy:
            raise ValueError("tls_certificate, or behind_proxy: one of them has the certificate")
        if not self.is_secure and not is_loopback(self.listen):
            raise ValueError(
                f"listen: {self.listen} is open to others, and browsers compute over HTTPS only: "
                "set tls_certificate and tls_key, or `behind_proxy: true`"
            )
        if self.is_secure and not self.hosts:
            raise ValueError("hosts: name the host that browsers open, as in https://HOST/")
        if self.behind_proxy and not any(is_secure_address(address) for address in self.dial):
            raise ValueError(
                "dial: a page over HTTPS dials wss only: name the address at which the proxy takes "
                "off TLS before it passes on to network.listen, like /dns4/node.example/tcp/443/wss"
            )
        return self
