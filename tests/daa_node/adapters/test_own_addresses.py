"""A wildcard is told to others as addresses that they can dial."""

import ipaddress
import subprocess
import sys
from collections.abc import Iterator

import pytest

from daa_node.adapters.own_addresses import hosts_for

NAMESPACE = "daa-own-addresses"


def test_an_address_stays_as_it_is() -> None:
    assert hosts_for("ip4", "192.0.2.7") == ["192.0.2.7"]
    assert hosts_for("dns4", "node.example.org") == ["node.example.org"]


def test_a_wildcard_becomes_addresses_that_are_none() -> None:
    for kind, wildcard in (("ip4", "0.0.0.0"), ("ip6", "::")):
        found = hosts_for(kind, wildcard)
        assert found
        assert not any(ipaddress.ip_address(host).is_unspecified for host in found)


@pytest.fixture
def namespace() -> Iterator[str]:
    """A host with one interface and no default route."""
    ip = ["ip", "netns", "add", NAMESPACE]
    try:
        made = subprocess.run(ip, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        made = False
    if not made:
        pytest.skip("network namespaces need root and iproute2")
    inside = ["ip", "-n", NAMESPACE]
    try:
        subprocess.run([*inside, "link", "add", "d0", "type", "veth"], check=True)
        subprocess.run([*inside, "addr", "add", "10.99.7.1/24", "dev", "d0"], check=True)
        subprocess.run([*inside, "link", "set", "d0", "up"], check=True)
        yield NAMESPACE
    finally:
        subprocess.run(["ip", "netns", "del", NAMESPACE], check=True)


def test_a_host_without_a_default_route_tells_its_interfaces_address(namespace: str) -> None:
    code = (
        "from daa_node.adapters.own_addresses import hosts_for\n"
        "print(hosts_for('ip4', '0.0.0.0'))\n"
    )
    told = subprocess.run(
        ["ip", "netns", "exec", namespace, sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
    )
    assert told.stdout.strip() == "['10.99.7.1']"
