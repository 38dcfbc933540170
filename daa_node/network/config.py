"""Where one node listens, how others reach it, and whom it asks first."""

import ipaddress

from pydantic import BaseModel, ConfigDict, Field, field_validator


class NetworkConfig(BaseModel):
    """One node's own settings; nothing here needs to be the same on any two nodes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    listen_host: str = Field("0.0.0.0", description="the address to bind; 0.0.0.0 is every IPv4 one")
    port: int = Field(4001, ge=0, le=65535, description="TCP and WebSocket; 0 lets the system pick")
    announce: tuple[str, ...] = Field(
        (), description="multiaddrs for others to dial; by default what the host is bound to"
    )
    join: tuple[str, ...] = Field(
        (), description="multiaddrs of nodes to ask first, beside those of the genesis"
    )

    @field_validator("listen_host")
    @classmethod
    def _is_an_address(cls, host: str) -> str:
        try:
            return str(ipaddress.ip_address(host))
        except ValueError:
            raise ValueError(f"{host!r} is no IP address to bind") from None

    @field_validator("announce", "join")
    @classmethod
    def _are_multiaddrs(cls, addresses: tuple[str, ...]) -> tuple[str, ...]:
        for address in addresses:
            if not address.startswith(("/ip4/", "/ip6/", "/dns/", "/dns4/", "/dns6/")):
                raise ValueError(f"{address!r} is no multiaddr such as /ip4/192.0.2.7/tcp/4001")
        return addresses
