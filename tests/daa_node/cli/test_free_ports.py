"""Ports for daemons of this machine: free, different, and none that a caller may hold."""

import socket
from pathlib import Path

import pytest

from daa_node.cli import free_ports


def test_ports_can_be_listened_on_all_at_once_and_are_lent_to_nobody() -> None:
    ports = free_ports.free_ports(20)
    lent = int(free_ports.RANGE.read_text().split()[0]) if free_ports.RANGE.exists() else 32_768
    assert len(set(ports)) == 20
    assert max(ports) < lent
    listeners = [socket.create_server(("127.0.0.1", port)) for port in ports]
    for listener in listeners:
        listener.close()


def test_a_port_that_is_taken_is_passed_over(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with socket.create_server(("127.0.0.1", free_ports.free_ports(1)[0])) as taken:
        port = int(taken.getsockname()[1])
        monkeypatch.setattr(free_ports, "LOWEST", port)
        monkeypatch.setattr(free_ports, "ENOUGH", 1)
        monkeypatch.setattr(free_ports, "RANGE", tmp_path / "range")
        (tmp_path / "range").write_text(f"{port + 1} 60999\n")
        with pytest.raises(OSError, match="has no 1 free ports"):
            free_ports.free_ports(1)
        (tmp_path / "range").write_text(f"{port + 2} 60999\n")
        assert free_ports.free_ports(1) == [port + 1]
