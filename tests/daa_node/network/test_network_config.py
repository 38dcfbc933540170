"""What an operator may write about the network, and what is refused with the reason."""

import pytest
from pydantic import ValidationError

from daa_node.network.config import NetworkConfig

PEER = "12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5"


def test_the_defaults_listen_everywhere_on_4001() -> None:
    assert NetworkConfig().listen == ("/ip4/0.0.0.0/tcp/4001",)
    assert not NetworkConfig().mdns


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"listen": ("127.0.0.1:4001",)}, "is not like /ip4/192.0.2.7/tcp/4001"),
        ({"listen": ("/ip4/127.0.0.1/tcp/70000",)}, "not a number up to 65535"),
        ({"listen": ("/ip4/127.0.0.1/udp/4001",)}, "is not like"),
        ({"listen": ("/ip4/localhost/tcp/4001",)}, "no address of kind ip4; the name of a host"),
        ({"listen": ("/ip4/192.0.2.777/tcp/4001",)}, "'192.0.2.777' is no address of kind ip4"),
        ({"listen": ("/ip6/192.0.2.7/tcp/4001",)}, "'192.0.2.7' is no address of kind ip6"),
        ({"announce": ("/ip4/0.0.0.0/tcp/4001",)}, "nobody can dial this"),
        ({"announce": ("/dns4/node.example/tcp/0",)}, "nobody can dial this"),
        ({"announce": (f"/ip4/192.0.2.7/tcp/4001/p2p/{PEER}",)}, "leave out /p2p/"),
        ({"deny": ("localhost",)}, "'localhost' is no network like 198.51.100.0/24"),
        ({"deny": ("10.0.0.1/8",)}, "has host bits set"),
        ({"bootstrap": ("/ip4/192.0.2.7/tcp/4001/p2p/bob",)}, "names no node"),
        ({"bootstrap": ("/ip4/192.0.2.7/tcp/4001",)}, "lacks the peer id"),
        ({"announce": ("/dns4/b\u00fccher.example/tcp/4001",)}, "nobody would take our record"),
        ({"announce": (f"/dns4/{'a' * 200}/tcp/4001",)}, "nobody would take our record"),
        ({"announce": ("/ip4/192.0.2.7/tcp/4001",) * 17}, "at most 16"),
        ({"peers_max": 2}, "greater than or equal to 4"),
        ({"lsten": ()}, "Extra inputs"),
    ],
)
def test_mistakes_are_refused_with_what_would_be_right(
    section: dict[str, object], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        NetworkConfig.model_validate(section)


def test_a_bootstrap_address_names_its_peer() -> None:
    address = f"/dns4/node.example/tcp/4001/p2p/{PEER}"
    assert NetworkConfig.model_validate({"bootstrap": (address,)}).bootstrap == (address,)


def test_networks_to_deny_are_of_both_families() -> None:
    section = {"deny": ("198.51.100.0/24", "2001:db8::/32", "192.0.2.7")}
    assert NetworkConfig.model_validate(section).deny == section["deny"]
