"""What a person types for an address, and what it stands for."""

import pytest

from daa_node.network.typed_addresses import multiaddr_of

PEER = "12D3KooWK99VoVxNE7XzyBwXEzW7xhK7Gpv85r9F3V3fyKSUKPH5"


@pytest.mark.parametrize(
    ("typed", "multiaddr"),
    [
        ("203.0.113.5:4002", "/ip4/203.0.113.5/tcp/4002"),
        ("203.0.113.5", "/ip4/203.0.113.5/tcp/4001"),
        ("[2001:DB8:0::1]:4002", "/ip6/2001:db8::1/tcp/4002"),
        ("[2001:db8::1]", "/ip6/2001:db8::1/tcp/4001"),
        ("node.example:4002", "/dns/node.example/tcp/4002"),
        ("node.example", "/dns/node.example/tcp/4001"),
        ("my_node:4002", "/dns/my_node/tcp/4002"),
        ("localhost:0", "/dns/localhost/tcp/0"),
        ("node.example.", "/dns/node.example./tcp/4001"),
        ("ws://node.example:80", "/dns/node.example/tcp/80/ws"),
        ("ws://[::1]", "/ip6/::1/tcp/4001/ws"),
        (f"node.example/p2p/{PEER}", f"/dns/node.example/tcp/4001/p2p/{PEER}"),
        (f"ws://10.0.0.1:1/p2p/{PEER}", f"/ip4/10.0.0.1/tcp/1/ws/p2p/{PEER}"),
        ("/dns6/node.example/tcp/4001", "/dns6/node.example/tcp/4001"),
        ("/garbage", "/garbage"),  # a multiaddr is judged elsewhere
    ],
)
def test_a_host_and_a_port_stand_for_a_multiaddr(typed: str, multiaddr: str) -> None:
    assert multiaddr_of(typed) == multiaddr


@pytest.mark.parametrize(
    ("typed", "words"),
    [
        ("", "is no address: write a host and a port"),
        (":4001", "is no address"),
        ("2001:db8::1", r"brackets tell an IPv6 address from its port: \[2001:db8::1\]:4001"),
        ("2001:db8::1:4001", "brackets tell"),  # an address too: its port is anybody's guess
        ("[node.example]:4001", "'node.example' is no IPv6 address"),
        ("[fe80::1%eth0]:4001", "is no IPv6 address"),
        ("node.example:", "not a number up to 65535"),
        ("node.example:65536", "not a number up to 65535"),
        ("node.example:-1", "not a number up to 65535"),
        ("node.example:\u0661", "not a number up to 65535"),
        ("a:1:2", "not a number up to 65535"),
        ("4001", "is no IPv4 address, nor a host's name"),
        ("256.1.1.1:4001", "is no IPv4 address, nor a host's name"),
        ("203.0.113.5.:4001", "is no IPv4 address, nor a host's name"),
        ("node..example", "is no name of a host"),
        ("node.example\n", "is no name of a host"),
        ("node.example:4001\n", "not a number up to 65535"),
        ("-node.example", "is no name of a host"),
        ("node.example/path:4001", "is no name of a host"),
        ("b\u00fccher.example", "write the name as the DNS has it: xn--bcher-kva.example"),
        (f"{'a.' * 126}aa", "is no name of a host"),
        ("https://node.example", "leave out https://, or write ws://"),
    ],
)
def test_what_stands_for_none_is_refused_with_what_would_be_right(typed: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        multiaddr_of(typed)
