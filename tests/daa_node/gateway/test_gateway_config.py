"""What an operator may write about the gateway, and what is refused with the reason."""

import pytest
from pydantic import ValidationError

from daa_node import config
from daa_node.errors import UserError
from daa_node.gateway.config import GatewayConfig

WSS = "/dns4/node.example/tcp/443/wss"
PROXIED = {"behind_proxy": True, "hosts": ("node.example",), "dial": (WSS,)}


def test_it_is_off_and_on_loopback_unless_somebody_says_otherwise() -> None:
    assert not GatewayConfig().enabled
    assert GatewayConfig().listen == "127.0.0.1:8080"
    assert not GatewayConfig().is_secure


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"listen": "8080"}, "is not like 127.0.0.1:8080"),
        ({"listen": "127.0.0.1:70000"}, "is not like 127.0.0.1:8080"),
        ({"listen": "node.example:80"}, "'node.example' is no IP address"),
        ({"listen": "0.0.0.0:80"}, "open to others.*behind_proxy: true"),
        ({"listen": "[::]:80"}, "open to others"),
        ({"listen": "192.0.2.7:80", "hosts": ("node.example",)}, "open to others"),
        ({"tls_key": "key.pem"}, "go together"),
        ({"tls_certificate": "a.pem", "tls_key": "b.pem", **PROXIED}, "one of them"),
        ({**PROXIED, "hosts": ()}, "name the host"),
        ({**PROXIED, "dial": ()}, "dials wss only"),
        ({**PROXIED, "dial": ("/dns4/node.example/tcp/80/ws",)}, "dials wss only"),
        ({"hosts": ("Node.example",)}, "small letters"),
        ({"hosts": ("https://node.example",)}, "without scheme"),
        ({"hosts": ("node.example:443",)}, "without scheme and port"),
        ({"hosts": ("*",)}, "no host"),
        ({"dial": ("wss://node.example",)}, "is not like /dns4"),
        ({"dial": ("/dns4/node.example/tcp/0/ws",)}, "is not like"),
        ({"dial": ("/dns4/node.example; script-src */tcp/1/ws",)}, "is not like"),
        ({"dial": ("/ip4/127.0.0.1/tcp/4001",)}, "is not like"),
        ({"enable": True}, "Extra inputs"),
    ],
)
def test_mistakes_are_refused_with_what_would_be_right(
    section: dict[str, object], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        GatewayConfig.model_validate(section)


def test_others_reach_it_through_a_proxy_or_by_our_own_certificate() -> None:
    proxied = GatewayConfig.model_validate({**PROXIED, "listen": "0.0.0.0:8080"})
    assert proxied.is_secure
    own = {"hosts": ("node.example",), "tls_certificate": "a.pem", "tls_key": "b.pem"}
    assert GatewayConfig.model_validate({**own, "listen": "[::]:443"}).is_secure


def test_a_mistake_is_shown_in_its_line_of_the_file() -> None:
    text = "role: edge\ngateway:\n  enabled: true\n  listen: 0.0.0.0:8080\n  host: [a]\n"
    with pytest.raises(UserError, match=r"config.yaml:5:3: error: gateway.host: unknown key"):
        config.load("config.yaml", text)
    with pytest.raises(UserError, match=r"config.yaml:2:1: error: gateway: listen: 0.0.0.0:8080"):
        config.load("config.yaml", text.replace("  host: [a]\n", ""))


def test_settings_tell_where_they_come_from() -> None:
    text = "gateway:\n  enabled: true\n"
    loaded = config.load("config.yaml", text, {"DAA_GATEWAY__LISTEN": "127.0.0.1:0"})
    assert loaded.origin_of(("gateway", "enabled")) == "config.yaml:2"
    assert loaded.origin_of(("gateway", "listen")) == "environment DAA_GATEWAY__LISTEN"
    assert loaded.origin_of(("gateway", "hosts")) == "default"
