"""What a note lists as going is judged file by file: it hides no bytes that are not the chain's."""

import shutil
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from daa_consensus.bft.messages import (
    decode_certificate,
    encode_block,
    encode_certificate,
    genesis_block,
)
from daa_consensus.votes import Kind
from daa_dag.chunking import manifest_of
from daa_dag.ids import ChainId
from daa_node.checkpoints.certified import certified_chain
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.going import Going
from daa_node.checkpoints.layout import KINDS
from daa_node.identity.keys import NodeKeys
from tests.daa_node.checkpoints.little_chain import (
    FACTS,
    KEYS,
    STRANGERS,
    certificate_of,
    files_under,
    make_chain,
)

DELTA, CUT = b"what a round came to", (8, 8, 4)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_chain(tmp_path_factory.mktemp("made"), 4).chain_directory


@pytest.fixture
def chain(made: Path, tmp_path: Path) -> Path:
    return shutil.copytree(made, tmp_path / "chain")


@pytest.fixture
def going(chain: Path) -> Going:
    """Before anything befalls the chain."""
    files = ChainFiles(chain)
    return Going(files, FACTS, certified_chain(files, FACTS).contents.validators)


def names_in(chain: Path) -> list[str]:
    return [str(path.relative_to(chain)) for path in files_under(chain)]


def first_of(kind: str, chain: Path) -> Path:
    return files_under(chain / kind)[0]


def said(going: Going, names: Collection[str]) -> tuple[int, list[tuple[str, str]]]:
    """How many are there, and what is wrong with which."""
    going.count, going.problems = 0, []
    going.judge(names)
    return going.count, [(problem.where, problem.what) for problem in going.problems]


def put(chain: Path, name: str, payload: bytes) -> str:
    (chain / name).write_bytes(payload)
    return name


def put_delta(chain: Path, payload: bytes) -> str:
    """In the place of one of three chunks."""
    manifest = manifest_of(DELTA, CUT)
    put(chain, f"manifests/{manifest.root.hex()}", manifest.encode())
    return put(chain, f"deltas/{manifest.root.hex()}", payload)


def test_what_is_as_it_was_is_counted_and_what_has_gone_is_not(chain: Path, going: Going) -> None:
    names = names_in(chain)
    assert {name.partition("/")[0] for name in names} == {*KINDS}
    assert said(going, names) == (len(names), [])
    for kind in KINDS:
        if kind != "manifests":
            first_of(kind, chain).unlink()
    assert said(going, names) == (len(names) - len(KINDS) + 1, [])


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "deltas"])
def test_what_is_damaged_or_holds_another_is_named_and_is_there(
    chain: Path, going: Going, kind: str
) -> None:
    path, other = files_under(chain / kind)[:2]
    name = f"{kind}/{path.name}"
    payload = path.read_bytes()
    for changed in (payload[:-1] + bytes([payload[-1] ^ 1]), payload[:-1], other.read_bytes()):
        path.write_bytes(changed)
        count, problems = said(going, [name])
        assert (count, [where for where, _ in problems]) == (1, [name])


@pytest.mark.parametrize(
    "changed",
    [
        b"What a round came to",
        b"what a Round came to",
        b"what a round came tO",
        b"what a round came t",
        b"what a round came to!",
    ],
)
def test_a_delta_is_what_its_manifest_lists(chain: Path, going: Going, changed: bytes) -> None:
    assert said(going, [put_delta(chain, DELTA)]) == (1, [])
    name = put_delta(chain, changed)
    count, problems = said(going, [name])
    assert (count, [where for where, _ in problems]) == (1, [name])


def test_a_delta_goes_before_its_manifest_which_is_judged_where_it_is_named(
    chain: Path, going: Going
) -> None:
    name = put_delta(chain, DELTA)
    manifest = chain / name.replace("deltas/", "manifests/")
    manifest.write_bytes(b"none")
    assert said(going, [name]) == (1, [])
    manifest.unlink()
    assert said(going, [name]) == (1, [(name, f"is missing: it lists the chunks of {name}")])
    (chain / name).unlink()
    assert said(going, [name]) == (0, [])


@pytest.mark.parametrize("signers", [KEYS[:2], STRANGERS[:3]])
def test_a_certificate_of_too_few_or_of_strangers_is_named(
    chain: Path, going: Going, signers: Sequence[NodeKeys]
) -> None:
    path = first_of("certificates", chain)
    statement = decode_certificate(path.read_bytes(), FACTS.limits).statement
    forged = certificate_of(statement, signers)
    name = put(chain, f"certificates/{path.name}", encode_certificate(forged))
    count, problems = said(going, [name])
    assert (count, [where for where, _ in problems]) == (1, [name])


def test_a_vote_of_many_that_proves_nothing_and_another_chains_block_are_named(
    chain: Path, going: Going
) -> None:
    path = next(path for path in files_under(chain) if path.suffix == ".final")
    final = decode_certificate(path.read_bytes(), FACTS.limits).statement
    word = certificate_of(replace(final, kind=Kind.NOTARIZE), KEYS[:3])
    block = genesis_block(ChainId(bytes(32)), FACTS.first_vertex.vertex_id)
    names = [
        put(chain, f"blocks/{block.id.hex()}", encode_block(block)),
        put(chain, f"certificates/{path.name}", encode_certificate(word)),
    ]
    count, problems = said(going, names)
    assert (count, [where for where, _ in problems]) == (2, names)


def test_what_it_reads_has_been_counted_before(chain: Path) -> None:
    read = list[int]()
    files = ChainFiles(chain, read.append)
    going = Going(files, FACTS, certified_chain(files, FACTS).contents.validators)
    read.clear()
    going.judge(names_in(chain))
    assert sum(read) == 0
