"""What an operator may write about the API, and what is refused with the reason."""

import pytest
from pydantic import ValidationError

from daa_node import config
from daa_node.api.config import ApiConfig
from daa_node.errors import UserError
from daa_node.wire.listening import split_listen


def test_it_is_off_unless_it_has_an_address() -> None:
    assert ApiConfig().listen is None
    assert ApiConfig(listen="[::1]:9180").listen == "[::1]:9180"
    assert split_listen(ApiConfig(listen="localhost:9180").listen or "") == ("127.0.0.1", 9180)
    assert not ApiConfig(listen="127.0.0.1:9180").is_secure
    assert ApiConfig(listen="0.0.0.0:9180", hosts=("a:9180",), behind_proxy=True).is_secure
    assert ApiConfig(listen="[::]:80", hosts=("a",), certificate="c", key="k").is_secure
    assert ApiConfig(listen="127.0.0.1:9180", hosts=("localhost:9000", "node.example")).hosts


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ({"listen": "9180"}, "is not like 127.0.0.1:8080"),
        ({"listen": "127.0.0.1:70000"}, "is not like"),
        ({"listen": "node.example:9180"}, "is no IP address"),
        ({"listen": "0.0.0.0:9180"}, "open to others.*without TLS.*ssh -L"),
        ({"listen": "0.0.0.0:9180", "certificate": "c", "key": "k"}, "hosts: name what clients"),
        ({"listen": "0.0.0.0:9180", "behind_proxy": True}, "hosts: name what clients"),
        ({"listen": "127.0.0.1:9180", "certificate": "c", "hosts": ("a",)}, "go together"),
        ({"listen": "127.0.0.1:9180", "key": "k", "hosts": ("a",)}, "go together"),
        (
            {"certificate": "c", "key": "k", "behind_proxy": True, "hosts": ("a",)},
            "one of them has the certificate",
        ),
        ({"listen": "[::]:9180"}, "open to others"),
        ({"listen": "192.0.2.7:9180"}, "open to others"),
        ({"listen": "127.0.0.1:9180", "hosts": ("*",)}, "no Host as clients send it"),
        ({"listen": "127.0.0.1:9180", "hosts": ("http://a",)}, "no Host"),
        ({"listen": "127.0.0.1:9180", "hosts": ("LOCALHOST",)}, "no Host"),
        ({"port": 9180}, "Extra inputs"),
        ({"public_listen": "0.0.0.0:80"}, "goes with `listen`"),
        ({"listen": "127.0.0.1:1", "public_listen": "80"}, "is not like 127.0.0.1:8080"),
    ],
)
def test_mistakes_are_refused_with_what_would_be_right(
    section: dict[str, object], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        ApiConfig.model_validate(section)


def test_an_open_address_is_shown_in_its_line_of_the_file_and_stops_the_start() -> None:
    with pytest.raises(UserError, match=r"config\.yaml:[12]:.*open to others") as refused:
        config.load("config.yaml", "api:\n  listen: 0.0.0.0:9180\n")
    assert refused.value.exit_code == 2
