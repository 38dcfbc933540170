"""What leaves the host in a bundle: what is taken out of a text, and what stays."""

import base64
import os
import pwd
from pathlib import Path

import pytest

from daa_node.adapters.key_files import create_keys
from daa_node.adapters.system_clock import SystemEntropy
from daa_node.adapters.token_files import ADMIN_NAME, READ_NAME, open_tokens
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.doctor.redaction import Redactor, redactor_of, secrets_of
from daa_node.config import NodeConfig
from daa_node.network.config import NetworkConfig
from daa_node.network.invite_text import Invite, encode_invite
from tests.daa_node.network.neighbours import CHAIN, KEYS

PLAIN = Redactor((), {}, {})
INVITE = encode_invite(Invite(CHAIN, KEYS[0].node_id, b"sixteen byte tok", ("node.example:4001",)))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (f"join {INVITE} now", "join <invite> now"),
        ("Authorization: Bearer abc.def", "Authorization: Bearer <secret>"),
        ('{"token": "abc", "n": 1}', '{"token": "<secret>", "n": 1}'),
        ("http://ann:pass@proxy.example/", "http://<secret>@<host-1>/"),
        (
            "-----BEGIN PRIVATE KEY-----\nMIGH\n-----END PRIVATE KEY-----\nrest",
            "<secret>\nrest",
        ),
        ("-----BEGIN EC PRIVATE KEY-----\nMIGH", "<secret>"),
        ("cannot read /srv/ann/patients.csv: no", "cannot read <path>: no"),
        (
            'File "/srv/v/lib/python3.11/site-packages/torch/nn.py", line 3',
            'File "<packages>/torch/nn.py", line 3',
        ),
        ("/ip4/8.8.8.8/tcp/4001/p2p/12D3Koo", "/ip4/<ip-1>/tcp/4001/p2p/12D3Koo"),
        ("/ip6/2a00:1450::1/tcp/4001", "/ip6/<ip-1>/tcp/4001"),
        ("see ~/notes/of ann and ~ann/x", "see <path> ann and <path>"),
        ("export HF=hf_abcdefghijklmnopqrstuv", "export HF=<secret>"),
        ("write to ann.lee@mail.example.org.", "write to <mail>."),
        ("at https://node.example:443/page", "at https://<host-1>:443/page"),
        ("8.8.8.8 and 9.9.9.9 and 8.8.8.8", "<ip-1> and <ip-2> and <ip-1>"),
        ("/dns4/node.example/tcp/4001", "/dns4/<host-1>/tcp/4001"),
        # as tracebacks, shells and nested JSON write them
        ("HF_TOKEN=abc WANDB_API_KEY=def", "HF_TOKEN=<secret> WANDB_API_KEY=<secret>"),
        ("AWS_SECRET_ACCESS_KEY: abc/def+g", "AWS_SECRET_ACCESS_KEY: <secret>"),
        ("{'client_secret': 'a b', 'n': 1}", "{'client_secret': '<secret>', 'n': 1}"),
        (r"{\"password\": \"abc\", \"n\": 1}", r"{\"password\": \"<secret>\", \"n\": 1}"),
        (r'"password": "a\"bc" d', '"password": "<secret>" d'),
        ("password = 'correct horse'", "password = '<secret>'"),
        ("wandb --api-key abc login", "wandb --api-key <secret> login"),
        ("Authorization: Basic YTpi, ok", "Authorization: Basic <secret>, ok"),
        ("Set-Cookie: session=1; other=2", "Set-Cookie: <secret>"),
        ("password=<abc", "password=<secret>"),
        ("http://hf_tok@store:80/x", "http://<secret>@<host-1>:80/x"),
        ("http://ann:p@ss@proxy.example/", "http://<secret>@<host-1>/"),
        ("http://127.0.0.1/f?sig=abc&n=1", "http://127.0.0.1/f?sig=<secret>&n=1"),
        ("key AKIAABCDEFGHIJKLMNOP here", "key <secret> here"),
        ("jwt eyJhbGciOiJI.eyJzdWIiOiIx.c2lnbmF0", "jwt <secret>"),
        # what a colour would hide
        ("\x1b[31mtoken\x1b[0m=abc", "token=<secret>"),
        ("from \x1b[1m8.8.8.8\x1b[0m", "from <ip-1>"),
        ("\x1b]0;title\x07a\x1b[2Jb\x07", r"ab\x07"),
        ("no way to 2a00:1450::1: refused", "no way to <ip-1>: refused"),
        ("addr:2a00:1450::1", "addr:<ip-1>"),
        ("PATH=/usr/bin/x:/srv/ann/bin", "PATH=/usr/bin/x:<path>"),
        ("Error:/srv/ann/x", "Error:<path>"),
        ("open file:///srv/ann/x failed", "open file:<path> failed"),
    ],
)
def test_what_is_nobodys_business_is_taken_out(text: str, told: str) -> None:
    assert Redactor((), {}, {}).text(text) == told


@pytest.mark.parametrize(
    "text",
    [
        "a chain id " + "ab" * 32,
        "/ip4/127.0.0.1/tcp/4001",
        "192.168.1.2:4001 and [::1]:80",
        "at 12:03:04, version 2.13.0",
        "and/or, /proc/self/fd, /daa/1/request",
        "http://127.0.0.1:8080/page",
        "a token of the job: 5 tokens",
        "/dns4/localhost/tcp/1",
        "/ip6/::/tcp/4001 and /ip6/fe80::/tcp/4001",
        "tokens: 5, max_tokens=512, token_id=7",
        "a.py::test and std::vector and node::ad",
        "two\tcolumns\nand lines",
    ],
)
def test_what_helps_and_harms_nobody_stays(text: str) -> None:
    assert PLAIN.text(text) == text


def test_values_are_redacted_by_name_and_by_what_they_hold() -> None:
    told = PLAIN.value(
        {"api_token": "x", "of.token": "y", "tokens": 5, "deep": [{"at": "/a/b/c"}], "token": None}
    )
    assert told == {
        "api_token": "<secret>",
        "of.token": "<secret>",
        "tokens": 5,
        "deep": [{"at": "<path>"}],
        "token": None,
    }


def test_hosts_are_known_by_the_name_of_their_field() -> None:
    told = Redactor((), {}, {}).value(
        {"host": "node.example", "api.hosts": ["Node.example", "localhost", "127.0.0.1:80"]}
    )
    assert told == {"host": "<host-1>", "api.hosts": ["<host-1>", "localhost", "127.0.0.1:80"]}


def test_hosts_of_the_settings_are_known_wherever_they_stand(tmp_path: Path) -> None:
    network = NetworkConfig(bootstrap=("node.example:4001",))
    config = NodeConfig().model_copy(update={"network": network})
    redactor = redactor_of(DataDirectory(tmp_path), config)
    assert redactor.text("Node.example did not answer") == "<host-1> did not answer"
    assert redactor.text("/dns/node.example/tcp/4001") == "/dns/<host-1>/tcp/4001"


def test_a_host_that_an_address_names_is_known_wherever_it_stands(tmp_path: Path) -> None:
    texts = ["at /dns4/home.ann.example/tcp/1", "http://store.example:80/x", "http://store/x"]
    texts.append('{"name":"name_unknown","host":"away.example","why":"no"}')
    redactor = redactor_of(DataDirectory(tmp_path), None, None, texts)
    told = redactor.text("Home.Ann.example: no address; see store.example. A store, no example")
    assert told == "<host-1>: no address; see <host-2>. A store, no example"
    assert redactor.text("away.example, too") == "<host-3>, too"


def test_a_word_of_many_dots_and_many_hosts_take_no_time(tmp_path: Path) -> None:
    hosts = [f"/dns4/h{number}.example/tcp/1" for number in range(5000)]
    redactor = redactor_of(DataDirectory(tmp_path), None, None, hosts)
    for odd in ("a." * 30_000, "a@" * 30_000, ":" * 60_000, "-" * 60_000, "token='" * 9_000):
        assert redactor.text(odd)
    assert redactor.text("h4999.example") == "<host-1>"


def test_a_secret_of_the_directory_is_found_in_hex_and_in_base64(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    create_keys(directory.keys, KEYS[4])
    tokens = open_tokens(tmp_path, SystemEntropy())
    for name in (READ_NAME, ADMIN_NAME):
        assert (tmp_path / name).exists()
    found = secrets_of(directory)
    seed = KEYS[4].ed25519_seed
    assert {tokens.read, tokens.admin, seed.hex()} <= found
    assert {base64.b64encode(seed).decode().rstrip("="), _urlsafe(seed)} <= found
    redactor = redactor_of(directory, NodeConfig())
    for word in found:
        assert word not in redactor.text(f"it said {word}, twice: {word.upper()}")
        assert word.upper() not in redactor.text(word.upper())
    assert redactor.text(f"in {tmp_path}/events.jsonl") == "in <dir>/events.jsonl"


def _urlsafe(secret: bytes) -> str:
    return base64.urlsafe_b64encode(secret).decode().rstrip("=")


def test_paths_of_settings_are_taken_out_whole_with_their_blanks(tmp_path: Path) -> None:
    place = Path("/srv/of ann/my data.csv")
    config = NodeConfig()
    data = config.data.model_copy(update={"path": place})
    redactor = redactor_of(DataDirectory(tmp_path), config.model_copy(update={"data": data}))
    assert (
        redactor.text(f"cannot read {place}: it is no text") == "cannot read <path>: it is no text"
    )


def test_the_key_of_a_certificate_is_a_secret_wherever_it_lies(tmp_path: Path) -> None:
    body = "MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg"
    (tmp_path / "key.pem").write_text(f"-----BEGIN PRIVATE KEY-----\n{body}\n")
    gateway = NodeConfig().gateway.model_copy(update={"tls_key": str(tmp_path / "key.pem")})
    config = NodeConfig().model_copy(update={"gateway": gateway})
    assert redactor_of(DataDirectory(tmp_path / "n"), config).text(f"a {body} b") == "a <secret> b"


def test_names_are_taken_out_as_whole_words_alone() -> None:
    redactor = Redactor((), {}, {"annabel": "<user>"})
    assert redactor.text("Annabel's, annabel2, by annabel") == "<user>'s, annabel2, by <user>"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
def test_the_owner_of_the_directory_is_nobodys_business_either(tmp_path: Path) -> None:
    os.chown(tmp_path, pwd.getpwnam("nobody").pw_uid, -1)
    assert redactor_of(DataDirectory(tmp_path), None).text("of nobody, I") == "of <user>, I"
