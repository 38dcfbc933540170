"""`init --join` brings the genesis of a running network, or says in one sentence what is wrong."""

import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import trio

from daa_dag import canonical
from daa_dag.ids import ChainId
from daa_node import genesis
from daa_node.cli import joining
from daa_node.errors import UserError
from daa_node.identity.keys import NodeKeys
from daa_node.network.config import NetworkConfig
from daa_node.network.hello import Greeting, encode_greeting
from daa_node.seams import Address, ByteStream, PeerId
from daa_node.wire import protocols
from daa_node.wire.framing import read_message, write_message
from daa_node.wire.limits import HELLO_BYTES_MAX
from tests.daa_node.cli.conftest import Command
from tests.daa_node.network.neighbours import KEYS, Neighbour, WallClock, running

GOLDEN = (Path(__file__).parents[2] / "golden" / "genesis.json").read_text()
MADE = genesis.parse("genesis.json", GOLDEN)
OTHER_CHAIN = ChainId(b"\xaa" * 32)
NEWCOMER = KEYS[4]


def member(chain_id: ChainId = MADE.chain_id, skew_s: float = 0.0, text: str = GOLDEN) -> Neighbour:
    made = Neighbour(0, chain_id=chain_id, clock=WallClock(skew_s))

    async def tell(_peer_id: PeerId, _body: bytes) -> bytes:
        return text.encode()

    made.requests.register(genesis.GENESIS_REQUEST, tell)
    return made


async def joined(
    node: Neighbour, chain_id: ChainId = MADE.chain_id, keys: NodeKeys = NEWCOMER
) -> genesis.Genesis | str:
    """What comes of it: a genesis, or what its operator is told."""
    async with running(node):
        try:
            return await joining.genesis_of(node.address, chain_id, keys)
        except UserError as error:
            return str(error)
    raise AssertionError


async def test_a_member_tells_the_genesis_to_who_knows_the_chain_id() -> None:
    assert await joined(member()) == MADE


async def test_a_host_and_a_port_are_enough_to_be_told_it() -> None:
    node = member()
    async with running(node):
        port = node.address.split("/")[4]
        config = NetworkConfig(bootstrap=(f"localhost:{port}",))
        found = await joining.genesis_of(Address(config.bootstrap[0]), MADE.chain_id, NEWCOMER)
    assert found == MADE


@pytest.mark.parametrize(
    ("node", "words"),
    [
        (lambda: member(OTHER_CHAIN), "a node of another network than --chain names"),
        (lambda: member(skew_s=400), "ahead of this node's"),
        (lambda: member(text="{}"), "is no genesis file"),
        (
            lambda: member(text=GOLDEN.replace('"name": "test"', '"name": "tess"')),
            "was changed after it was made",
        ),
    ],
)
async def test_what_stands_in_the_way_is_said_with_the_remedy(
    node: Callable[[], Neighbour], words: str
) -> None:
    said = await joined(node())
    assert isinstance(said, str)
    assert words in said


async def test_who_answers_leaves_out_the_address_of_no_validator() -> None:
    told = json.loads(GOLDEN)
    told["records"] = told["records"][1:]
    said = await joined(member(text=json.dumps(told)))
    assert isinstance(said, str)
    assert "lacks the record of" in said
    assert "another host" in said


async def test_a_genesis_of_another_chain_is_not_taken_from_a_node_that_claims_ours() -> None:
    said = await joined(member(OTHER_CHAIN), OTHER_CHAIN)
    assert isinstance(said, str)
    assert "do not trust this node" in said


async def test_a_node_of_another_version_is_named_as_such() -> None:
    first, last = sorted(KEYS[:2], key=lambda keys: keys.peer_id)  # the first one begins
    node = Neighbour(KEYS.index(last), chain_id=MADE.chain_id)
    newer = Greeting(9, 7, MADE.chain_id, node.own.current_bytes(), 0, 0)
    node.transport.set_handler(protocols.HELLO, _says(encode_greeting(newer)))
    said = await joined(node, keys=first)
    assert isinstance(said, str)
    assert "theirs speaks protocol 7 to 9" in said
    assert "upgrade the older one, ours" in said


def _says(greeting: bytes) -> Callable[[ByteStream], Awaitable[None]]:
    async def serve(stream: ByteStream) -> None:
        await read_message(stream, HELLO_BYTES_MAX)
        await write_message(stream, greeting)
        await write_message(stream, canonical.encode(["welcome"]))
        await read_message(stream, HELLO_BYTES_MAX)

    return serve


async def test_an_address_where_nobody_is_costs_one_sentence() -> None:
    node = Neighbour(0)
    async with running(node):
        gone = Address(node.address)
    with trio.fail_after(30), pytest.raises(UserError, match="did not answer .*: see that a node"):
        await joining.genesis_of(gone, MADE.chain_id, NEWCOMER)


def test_a_genesis_file_makes_a_node_that_says_what_comes_next(
    command: Command, tmp_path: Path
) -> None:
    (tmp_path / "genesis.json").write_text(GOLDEN)
    home, chain = tmp_path / "carol", MADE.chain_id.hex()
    given = ("--join", tmp_path / "genesis.json", "--chain", chain, "--port", 4007)
    done = command("init", "--dir", home, *given)
    assert done.code == 0
    for step in ("daa-node run", "daa-node validators propose join", "validators approve ID"):
        assert step in done.out
    assert (home / "genesis.json").read_text() == GOLDEN
    told = command("id", "--dir", home).out
    assert "/tcp/4007/p2p/" in told
    assert f"--chain {chain}" in told


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--join", "/ip4/127.0.0.1/tcp/4001/p2p/" + KEYS[0].peer_id), "needs --chain ID"),
        (("--join", "node.example:4001"), "needs --chain ID"),
        (("--join", "node.example:port", "--chain", "0" * 64), "not a number up to 65535"),
        (("--join", "http://node.example", "--chain", "0" * 64), "there is no such file"),
        (("--join", "genesi.json"), "there is no such file"),
        (("--join", "genesi.json", "--chain", "0" * 64), "there is no such file"),
        (("--join", "genesis"), "there is no such file"),
        (("--join", "x" * 300), "is no name of a host"),
        (("--join", "x" * 300 + ".json"), "there is no such file"),
        (("--join", "GENESIS", "--chain", "ab"), "has 64 hexadecimal digits"),
        (("--join", "GENESIS", "--chain", "0" * 64), "ask for the genesis of that network"),
        (("--chain", "0" * 64), "give both, or neither"),
        (("--role", "phone"), "cloud or edge"),
    ],
)
def test_wrong_words_make_no_node(
    command: Command, tmp_path: Path, words: tuple[str, ...], says: str
) -> None:
    (tmp_path / "genesis.json").write_text(GOLDEN)
    given = [str(tmp_path / "genesis.json") if word == "GENESIS" else word for word in words]
    done = command("init", "--dir", tmp_path / "n", *given)
    assert done.code == 2
    assert says in done.err
    assert done.err.count("\n") == 1
    assert not (tmp_path / "n").exists()


def test_a_directory_that_holds_something_is_left_alone(command: Command, tmp_path: Path) -> None:
    (tmp_path / "genesis.json").write_text(GOLDEN)
    done = command("init", "--dir", tmp_path, "--join", tmp_path / "genesis.json")
    assert (done.code, "is not empty" in done.err) == (2, True)
    assert [path.name for path in tmp_path.iterdir()] == ["genesis.json"]
