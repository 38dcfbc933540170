"""What an operator may write about the network, and what is refused with the reason."""

import pytest
from pydantic import ValidationError

from daa_node import config, config_file
from daa_node.config import NodeConfig
from daa_node.errors import UserError
from daa_node.network.config import NetworkConfig

PEER = "12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5"


def test_the_defaults_listen_everywhere_on_4001() -> None:
    assert NetworkConfig().listen == ("/ip4/0.0.0.0/tcp/4001",)
    assert not NetworkConfig().mdns


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"listen": ("127.0.0.1:port",)}, "the port is not a number up to 65535"),
        ({"listen": ("/ip4/127.0.0.1",)}, "is not like node.example:4001, 192.0.2.7:4001 or /ip4/"),
        ({"listen": ("ws://127.0.0.1:4001",)}, "on the same port for WebSocket"),
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
        ({"bootstrap": ("node.example:0",)}, "nobody can dial port 0"),
        ({"bootstrap": ":4001"}, "is no address: write a host and a port"),
        ({"listen": (":",)}, "is no address: write a host and a port"),
        ({"bootstrap": ("node.example:4001/p2p/bob",)}, "names no node"),
        ({"bootstrap": ("node.example",) * 65}, "at most 64"),
        ({"announce": ("0.0.0.0:4001",)}, "nobody can dial this"),
        ({"announce": ("/dns4/b\u00fccher.example/tcp/4001",)}, "xn--bcher-kva.example"),
        ({"announce": (f"/dns4/{'a' * 64}/tcp/4001",)}, "is no name of a host"),
        ({"announce": (f"/dns4/{'a.' * 100}a/tcp/4001",)}, "nobody would take our record"),
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


def test_what_a_person_types_becomes_a_multiaddr() -> None:
    typed = {
        "listen": ("0.0.0.0:4001", "[::]:4001"),
        "announce": ("node.example", "ws://node.example:4001"),
        "bootstrap": ("node.example:4002", f"203.0.113.5:4001/p2p/{PEER}"),
    }
    config = NetworkConfig.model_validate(typed)
    assert config.listen == ("/ip4/0.0.0.0/tcp/4001", "/ip6/::/tcp/4001")
    assert config.announce == ("/dns/node.example/tcp/4001", "/dns/node.example/tcp/4001/ws")
    assert config.bootstrap == (
        "/dns/node.example/tcp/4002",
        f"/ip4/203.0.113.5/tcp/4001/p2p/{PEER}",
    )
    again = config.model_dump()
    assert NetworkConfig.model_validate(again) == config


@pytest.mark.parametrize("line", ["listen: :4002", "listen: '*:4002'", "listen: [':4002']"])
def test_a_port_alone_is_all_addresses_and_one_address_is_a_list_of_one(line: str) -> None:
    text = f"network:\n  {line}\n  bootstrap: my_node:4001\n  deny: 192.0.2.7\n"
    network = config.load("config.yaml", text).value.network
    assert network.listen == ("/ip4/0.0.0.0/tcp/4002",)
    assert network.bootstrap == ("/dns/my_node/tcp/4001",)
    assert network.deny == ("192.0.2.7",)
    said = {"DAA_NETWORK__LISTEN": "*:4002", "DAA_NETWORK__ANNOUNCE": "/dns/my_node/tcp/1"}
    network = config.load("config.yaml", "", said).value.network
    assert (network.listen, network.announce) == (
        ("/ip4/0.0.0.0/tcp/4002",),
        ("/dns/my_node/tcp/1",),
    )


def test_a_mistake_in_one_address_is_shown_where_it_stands() -> None:
    with pytest.raises(UserError) as refused:
        config.load("config.yaml", "network:\n  listen: node.example:70000\n")
    assert str(refused.value).startswith("config.yaml:2:11: error: network.listen: 'node.example:7")


def test_a_mistake_in_a_file_is_shown_where_it_stands() -> None:
    text = "network:\n  bootstrap: [node.example, node.example:70000]\n"
    with pytest.raises(UserError) as refused:
        config_file.load("config.yaml", text, NodeConfig)
    first = str(refused.value).splitlines()[0]
    assert first.startswith("config.yaml:2:29: error: network.bootstrap.1: 'node.example:70000': ")
    assert "the port is not a number up to 65535" in first


def test_networks_to_deny_are_of_both_families() -> None:
    section = {"deny": ("198.51.100.0/24", "2001:db8::/32", "192.0.2.7")}
    assert NetworkConfig.model_validate(section).deny == section["deny"]


@pytest.mark.parametrize(
    "line",
    [
        "upload_mbit_s: 1",
        "upload_mbit_s: .inf",
        "download_mbit_s: -3",
        "download_mbit_s: .nan",
        "data_gb_a_day: 0",
        "data_gb_a_day: lots",
    ],
)
def test_a_cap_that_is_too_low_or_no_number_is_refused_by_name(line: str) -> None:
    with pytest.raises(UserError, match=line.partition(":")[0]):
        config.load("config.yaml", f"network: {{{line}}}\n")


def test_a_bound_in_bytes_is_taken_over_while_a_daemon_runs_and_no_other_policy() -> None:
    old = config.load("config.yaml", "storage: {history: pruned}\n").value
    new = config.load("config.yaml", "storage: {bytes_max: 2000000}\n").value
    taken, waiting = config.changed(old, new)
    assert (taken, waiting) == (["storage.bytes_max"], ["storage.history"])
    now = config.taken_over(old, new).storage
    assert (now.bytes_max, now.history) == (2_000_000, "pruned")


def test_caps_and_budget_are_taken_over_while_a_daemon_runs_and_nothing_beside() -> None:
    old = config.load("config.yaml", "network: {upload_mbit_s: 20}\n").value
    text = "network: {download_mbit_s: 50, data_gb_a_day: 3, peers_max: 9}\n"
    text += "log: {files_max: 7, each_minute: true}\n"
    new = config.load("config.yaml", text).value
    taken, waiting = config.changed(old, new)
    caps = ["upload_mbit_s", "download_mbit_s", "data_gb_a_day"]
    assert taken == [*(f"network.{key}" for key in caps), "log.files_max"]
    assert waiting == ["network.peers_max", "log.each_minute"]
    now = config.taken_over(old, new)
    assert config.changed(now, new) == ([], waiting)  # they wait until the restart
    assert [getattr(now.network, key) for key in caps] == [None, 50.0, 3.0]
    assert (now.network.peers_max, now.log.files_max) == (old.network.peers_max, 7)
