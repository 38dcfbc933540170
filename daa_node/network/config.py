"""What an operator says about the network: where to listen, whom to know, how many to hold."""

import ipaddress
from typing import Annotated, Any, TypeVar

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from daa_node.errors import PeerFault
from daa_node.identity.keys import ed25519_public_key_of
from daa_node.identity.record import ADDRESS_CHARACTERS_MAX, ADDRESSES_MAX
from daa_node.network.typed_addresses import check_name, listened_on, multiaddr_of

TOLD_CHARACTERS_MAX = ADDRESS_CHARACTERS_MAX - 64  # others read it with our peer id behind it
PEERS_MAX_DEFAULT = 64  # 9 MB of sockets, sessions and gossip state
PEERS_MAX_MOST = 1024
CAP_MBIT_S_LEAST = 2.0  # an answer of four chunks takes four seconds
CAP_MBIT_S_MOST = 1e6  # more than any link, and a number: .inf is none that status can tell
DATA_GB_A_DAY_MOST = 1e6  # more than 90 Gbit/s
BOOTSTRAP_MAX = 64  # each is dialled for ever


def _is_multiaddr(typed: str) -> str:
    text = multiaddr_of(typed)
    parts = text.split("/")
    if len(parts) < 5 or parts[0] or parts[1] not in HOST_KINDS or parts[3] != "tcp":
        raise ValueError(
            f"{text!r} is not like node.example:4001, 192.0.2.7:4001 or /ip4/192.0.2.7/tcp/4001"
        )
    if not (parts[4].isascii() and parts[4].isdigit()) or int(parts[4]) > 65535:
        raise ValueError(f"{text!r}: the port is not a number up to 65535")
    if parts[1] in _IP_KINDS:
        try:
            _IP_KINDS[parts[1]](parts[2])
        except ValueError:
            raise ValueError(
                f"{text!r}: {parts[2]!r} is no address of kind {parts[1]}; the name of a host "
                "goes behind /dns4/, /dns6/ or /dns/"
            ) from None
    else:
        check_name(text, parts[2])
    return text


def _fits_a_record(text: str) -> str:
    if not text.isascii() or not text.isprintable() or len(text) > TOLD_CHARACTERS_MAX:
        raise ValueError(
            f"{text[:80]!r} is not of {TOLD_CHARACTERS_MAX} printable ASCII characters at most: "
            "nobody would take our record"
        )
    return text


def _can_be_dialled(text: str) -> str:
    _, kind, host, _, port = text.split("/")[:5]
    if int(port) == 0 or (kind in _IP_KINDS and ipaddress.ip_address(host).is_unspecified):
        raise ValueError(f"{text!r}: nobody can dial this; give the host and port that others see")
    if "/p2p/" in text:
        raise ValueError(f"{text!r}: leave out /p2p/ and what follows, our peer id is added")
    return text


def _is_host_and_port(text: str) -> str:
    if text.count("/") > 4:
        raise ValueError(
            f"{text!r}: one listens on a host and a port, and on the same port for WebSocket "
            "(network.websocket): leave out what comes behind"
        )
    return text


def _may_name_a_peer(text: str) -> str:
    _, _, _, _, port = text.split("/")[:5]
    if int(port) == 0:
        raise ValueError(f"{text!r}: nobody can dial port 0")
    if "/p2p/" not in text:
        return text  # whoever answers there
    try:
        ed25519_public_key_of(text.rpartition("/p2p/")[2])
    except PeerFault as fault:
        raise ValueError(
            f"{text!r} names no node: {fault.detail}; `daa-node id` shows it"
        ) from None
    return text


def _is_network(text: str) -> str:
    try:
        ipaddress.ip_network(text)
    except ValueError as fault:
        raise ValueError(f"{text!r} is no network like 198.51.100.0/24: {fault}") from None
    return text


def _as_several(value: Any) -> Any:
    """One alone needs no brackets."""
    return (value,) if isinstance(value, str) else value


T = TypeVar("T")
Several = Annotated[tuple[T, ...], BeforeValidator(_as_several)]
_IP_KINDS = {"ip4": ipaddress.IPv4Address, "ip6": ipaddress.IPv6Address}
HOST_KINDS = ("ip4", "ip6", "dns", "dns4", "dns6")
HostAddress = Annotated[str, AfterValidator(_is_multiaddr), AfterValidator(_fits_a_record)]
ListenAddress = Annotated[
    str,
    AfterValidator(listened_on),
    AfterValidator(_is_multiaddr),
    AfterValidator(_fits_a_record),
    AfterValidator(_is_host_and_port),
]
ToldAddress = Annotated[HostAddress, AfterValidator(_can_be_dialled)]
Network = Annotated[str, AfterValidator(_is_network)]
PeerAddress = Annotated[str, AfterValidator(_is_multiaddr), AfterValidator(_may_name_a_peer)]


class NetworkConfig(BaseModel):
    """The `network` section of config.yaml. Addresses may be typed: see typed_addresses."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    listen: Several[ListenAddress] = Field(
        ("/ip4/0.0.0.0/tcp/4001",),
        description="like :4001, which is 0.0.0.0:4001, node.example:4001 or '[::]:4001', with the "
        "quotes",
    )
    announce: Several[ToldAddress] = Field(
        (),
        max_length=ADDRESSES_MAX,
        description="told to others instead, as behind a router that forwards a port",
    )
    bootstrap: Several[PeerAddress] = Field(
        (),
        max_length=BOOTSTRAP_MAX,
        description="whom to dial beside the members, like node.example:4001; it is that node "
        "alone with /p2p/ and its peer id behind",
    )
    websocket: bool = Field(
        True, description="take WebSocket on the same port; browsers can dial nothing else"
    )
    mdns: bool = Field(False, description="tell everybody on the local network that we are here")
    # asked only where members find that nobody can dial us, and to this node's ports alone
    upnp: bool = Field(True, description="ask the home's router to let others in, if need be")
    relay: bool = Field(
        False,
        description="pass on bytes of peers that cannot dial each other, 2 MiB/s of each, and no "
        "more than the caps below and the day's data allow",
    )
    peers_max: int = Field(
        PEERS_MAX_DEFAULT,
        ge=4,
        le=PEERS_MAX_MOST,
        description="places for peers, beside members and bootstrap, who always find one",
    )
    upload_mbit_s: float | None = Field(
        None,
        ge=CAP_MBIT_S_LEAST,
        le=CAP_MBIT_S_MOST,
        description="of contributions and other blobs, long answers and what is relayed; null: no "
        "limit",
    )
    download_mbit_s: float | None = Field(
        None, ge=CAP_MBIT_S_LEAST, le=CAP_MBIT_S_MOST, description="as upload_mbit_s"
    )
    data_gb_a_day: float | None = Field(
        None,
        gt=0.0,
        le=DATA_GB_A_DAY_MOST,
        description="both ways, by UTC; with a tenth left only our own contribution is served, and "
        "with nothing left this node sits out, but votes; strangers have a quarter at most",
    )
    deny: Several[Network] = Field(
        (), description="networks that may not connect, like 198.51.100.0/24 or 2001:db8::/32"
    )
