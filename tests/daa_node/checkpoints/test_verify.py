"""The verifier names every damage that a little chain can suffer, and accepts what is whole."""

import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import trio

from daa_consensus.bft.messages import (
    EmptyPayload,
    decode_certificate,
    encode_block,
    encode_certificate,
)
from daa_consensus.votes import Certificate, Kind, Statement
from daa_dag.ids import ChainId, digest_of
from daa_dag.retention import Retention
from daa_node.checkpoints.contents import read_contents
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.layout import NOTE, PUBLISHING, Group, encode_note
from daa_node.checkpoints.plain_files import Problem, Unreadable
from daa_node.checkpoints.snapshots import prune
from daa_node.checkpoints.verify import verify_chain
from daa_node.checkpoints.verify_report import Anchor
from daa_node.identity.keys import NodeKeys
from tests.daa_node.checkpoints.little_chain import (
    EPOCH_ROUNDS,
    FACTS,
    KEYS,
    SNAPSHOT_EVERY,
    STRANGERS,
    ChainMaker,
    certificate_of,
    delta_of,
    files_under,
    make_chain,
)
from tests.daa_node.checkpoints.verified import made, named, verify, what_of

ROUNDS = 5
KINDS = ("vertices", "blocks", "certificates", "deltas", "manifests", "chunks")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> ChainMaker:
    """Five rounds, the second aborted: two epochs, two snapshots."""
    return make_chain(tmp_path_factory.mktemp("whole"), ROUNDS, aborted=[2])


@pytest.fixture
def chain(whole: ChainMaker, tmp_path: Path) -> Path:
    """A copy to damage."""
    shutil.copytree(whole.directory, tmp_path / "node")
    return tmp_path / "node" / "chain"


def names_of(chain: Path, kind: str) -> list[str]:
    return [f"{kind}/{path.name}" for path in files_under(chain / kind)]


def test_a_whole_chain_holds_and_is_counted(whole: ChainMaker) -> None:
    seen: list[tuple[int, int]] = []
    report = verify_chain(
        whole.chain_directory, FACTS, lambda done, total: seen.append((done, total))
    )
    assert report.ok, report.problems
    assert (report.heights, report.vertices) == (4, 5)  # the genesis vertex, and four results
    assert report.certificates == 4 + 5
    assert report.chunks == 12 + 4  # two snapshots of two times three tensors, four deltas
    size_bytes = sum(path.stat().st_size for path in files_under(whole.chain_directory))
    assert report.bytes_read == size_bytes
    assert seen[-1] == (size_bytes, size_bytes)


def test_any_changed_byte_is_named_with_its_file(chain: Path) -> None:
    files = files_under(chain)
    assert {path.parent.name for path in files} == set(KINDS)
    for path in files:
        payload = path.read_bytes()
        size = len(payload)
        for at in sorted({0, 1, size // 3, size // 2, size - 2, size - 1} & set(range(size))):
            changed = bytearray(payload)
            changed[at] ^= 1 << at % 8
            path.write_bytes(changed)
            report = verify(chain)
            name = str(path.relative_to(chain))
            assert name in named(report), f"byte {at} of {name}: {report.problems}"
        path.write_bytes(payload)
    assert verify(chain).ok


def test_a_file_cut_short_emptied_or_longer_is_named(chain: Path) -> None:
    for path in files_under(chain):
        payload = path.read_bytes()
        for damaged in (payload[: len(payload) // 2], payload[:-1], b"", payload + b"\0"):
            path.write_bytes(damaged)
            assert str(path.relative_to(chain)) in named(verify(chain)), path
        path.write_bytes(payload)


def test_a_deleted_file_is_named(chain: Path, whole: ChainMaker) -> None:
    (tip, _), spared = whole.chain.final_tip, list[str]()
    for path in files_under(chain):
        name, payload = str(path.relative_to(chain)), path.read_bytes()
        path.unlink()
        report = verify(chain)
        if name.endswith(".exec") and report.ok:
            spared.append(name)  # the end of its epoch proves the last vertex all the same
        elif not name.endswith(".final"):
            assert what_of(report, name).startswith("is missing"), f"{name}: {report.problems}"
        elif name == f"certificates/{tip.id.hex()}.final" or not report.ok:
            assert "no finalization certificate" in report.problems[0].what
        # else a later certificate finalizes the same blocks: the proof is as whole as before
        path.write_bytes(payload)
    assert len(spared) == whole.round // EPOCH_ROUNDS


def test_a_vertex_deleted_with_its_certificate_and_delta_is_missed(
    chain: Path, whole: ChainMaker
) -> None:
    second = trio.run(whole.chain.heights.at, 2)
    assert second is not None
    vertex_id = second.hex()
    vertex = trio.run(whole.chain.vertex, second)
    assert vertex is not None
    for name in (
        f"vertices/{vertex_id}",
        f"certificates/{vertex_id}.exec",
        f"deltas/{vertex.delta_root.hex()}",
        f"manifests/{vertex.delta_root.hex()}",
    ):
        (chain / name).unlink()
    report = verify(chain)
    assert what_of(report, f"vertices/{vertex_id}").startswith("is missing")


def test_the_newest_vertex_deleted_with_its_proof_and_delta_is_missed(
    chain: Path, whole: ChainMaker
) -> None:
    newest = whole.newest
    names = {
        f"vertices/{newest.vertex_id.hex()}",
        f"certificates/{newest.vertex_id.hex()}.exec",
        f"deltas/{newest.delta_root.hex()}",
        f"manifests/{newest.delta_root.hex()}",
        f"manifests/{newest.model_root.hex()}",
        f"manifests/{newest.outer_state_root.hex()}",
    }
    for name in names:
        (chain / name).unlink()
    report = verify(chain)
    assert not report.ok
    assert what_of(report, f"vertices/{newest.vertex_id.hex()}").startswith("is missing")
    assert report.heights == newest.height - 1
    assert report.promised == (newest.height, newest.vertex_id)


def test_a_pipe_and_an_endless_file_in_place_of_any_file_are_named(
    chain: Path, whole: ChainMaker
) -> None:
    note = chain.parent / "work" / PUBLISHING / NOTE
    note.parent.mkdir(parents=True, exist_ok=True)
    note_name = f"../work/{PUBLISHING}/{NOTE}"
    places = [(note, note_name)]
    places += [(p, str(p.relative_to(chain))) for p in (files_under(chain / k)[0] for k in KINDS)]
    for path, name in places:
        aside = path.rename(path.with_name("aside")) if path.exists() else None
        os.mkfifo(path)
        assert name in named(verify(chain))
        with pytest.raises(Unreadable, match="special file, not a plain"):
            ChainFiles(chain).read(name, 100)
        path.unlink()
        path.symlink_to("/dev/zero")
        assert name in named(verify(chain))
        path.unlink()
        if aside is not None:
            aside.rename(path)
    assert verify(chain).ok


def test_a_trusted_vertex_tells_this_past_from_another(
    chain: Path, whole: ChainMaker, tmp_path: Path
) -> None:
    async def play(maker: ChainMaker) -> None:
        maker.delta_of = lambda round_number: delta_of(round_number + 100)
        for _ in range(ROUNDS):
            await maker.publish(await maker.make_round())

    other = made(tmp_path / "other", play)  # the same keys have signed it
    vertex_id = trio.run(whole.chain.heights.at, 3)
    assert vertex_id is not None
    assert verify_chain(other, FACTS).ok
    assert verify_chain(chain, FACTS, anchor=Anchor(vertex_id)).ok
    report = verify_chain(other, FACTS, anchor=Anchor(vertex_id))
    assert named(report) == {f"vertices/{vertex_id.hex()}"}


def test_a_replay_from_a_trusted_vertex_leaves_out_what_lies_below_its_snapshot(
    chain: Path, whole: ChainMaker
) -> None:
    found = [trio.run(whole.chain.heights.at, height) for height in range(5)]
    heights = [vertex_id for vertex_id in found if vertex_id is not None]
    assert verify_chain(chain, FACTS, anchor=Anchor(heights[1], starts_replay=True)).ok
    report = verify_chain(chain, FACTS, anchor=Anchor(heights[3], starts_replay=True))
    assert (report.ok, report.replayed_from) == (True, SNAPSHOT_EVERY)
    report = verify_chain(chain, FACTS, anchor=Anchor(heights[4], starts_replay=True))
    assert (report.ok, report.replayed_from, report.heights) == (True, 4, 4)
    for path in files_under(chain / "deltas"):  # a changed byte is named all the same
        payload = path.read_bytes()
        path.write_bytes(payload[:-1] + bytes([payload[-1] ^ 1]))
        report = verify_chain(chain, FACTS, anchor=Anchor(heights[4], starts_replay=True))
        assert f"deltas/{path.name}" in named(report)
        path.write_bytes(payload)


def test_swapped_files_are_both_named(chain: Path) -> None:
    for kind in KINDS:
        first, second = files_under(chain / kind)[:2]
        one, other = first.read_bytes(), second.read_bytes()
        first.write_bytes(other)
        second.write_bytes(one)
        assert {f"{kind}/{first.name}", f"{kind}/{second.name}"} <= named(verify(chain)), kind
        first.write_bytes(one)
        second.write_bytes(other)


@pytest.mark.parametrize(
    "name",
    [
        "notes.txt",
        "extra/file",
        "vertices/README",
        "vertices/" + "ab" * 32,
        "blocks/.hidden",
        "blocks/" + "AB" * 32,
        "certificates/" + "ab" * 32,
        "certificates/" + "ab" * 32 + ".exec",
        "deltas/" + "ab" * 32,
        "deltas/something.tmp",
        "manifests/" + "ab" * 32,
        "chunks/" + bytes(digest_of(b"hello")).hex(),
        "chunks/nested/file",
    ],
)
def test_a_file_that_does_not_belong_is_named(chain: Path, name: str) -> None:
    path = chain / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"hello")
    places = named(verify(chain))
    assert name in places or str(Path(name).parent) in places, places


def test_good_files_of_another_chain_do_not_belong(chain: Path, tmp_path: Path) -> None:
    async def play(maker: ChainMaker) -> None:
        maker.round = 40  # other rounds, so other deltas
        await maker.step()

    other = made(tmp_path / "other", play)
    work = other.parent / "work"
    shutil.copy(next((work / "updates").iterdir()), chain / "deltas")
    delta = files_under(work / "updates")[0].name
    shutil.copy(work / "manifests" / delta, chain / "manifests" / delta)
    assert {f"deltas/{delta}", f"manifests/{delta}"} <= named(verify(chain))


def test_a_link_is_refused_even_to_the_right_bytes(chain: Path, tmp_path: Path) -> None:
    for kind in KINDS:
        path = files_under(chain / kind)[0]
        elsewhere = tmp_path / f"{kind} elsewhere"
        path.rename(elsewhere)
        path.symlink_to(elsewhere)
        report = verify(chain)
        assert "a symbolic link does not" in what_of(report, f"{kind}/{path.name}")
        path.unlink()
        elsewhere.rename(path)


def test_an_empty_or_missing_directory_is_no_chain(tmp_path: Path) -> None:
    assert not verify(tmp_path).ok
    assert "cannot be listed" in what_of(verify(tmp_path / "nowhere"), ".")


def test_another_genesis_refuses_the_chain(chain: Path) -> None:
    strangers = {keys.node_id: keys.ml_dsa_public_key for keys in STRANGERS}
    keys_of_others = dict(zip(FACTS.public_keys, strangers.values(), strict=True))
    report = verify_chain(chain, replace(FACTS, public_keys=keys_of_others))
    assert {n for n in names_of(chain, "certificates")} <= named(report)
    report = verify_chain(chain, replace(FACTS, chain_id=ChainId(bytes(32))))
    assert {n for n in names_of(chain, "blocks")} <= named(report)


# Certificates, signed in earnest


def rewrite(chain: Path, name: str, change: Callable[[Certificate], Certificate]) -> str:
    """Replace a stored certificate; what the verifier says of it."""
    path = chain / name
    payload = path.read_bytes()
    path.write_bytes(encode_certificate(change(decode_certificate(payload, FACTS.limits))))
    said = what_of(verify(chain), name)
    path.write_bytes(payload)
    return said


def signed_again(signers: list[NodeKeys]) -> Callable[[Certificate], Certificate]:
    return lambda certificate: certificate_of(certificate.statement, signers)


def test_forged_certificates_are_named(chain: Path) -> None:
    for name in (names_of(chain, "certificates")[0], names_of(chain, "certificates")[-1]):
        assert "is not in the committee" in rewrite(chain, name, signed_again(STRANGERS))
        assert "quorum" in rewrite(chain, name, signed_again(KEYS[:2]))
        twice = signed_again([KEYS[0], KEYS[0], KEYS[1]])
        assert "sorted and distinct" in rewrite(chain, name, twice)
        assert rewrite(chain, name, signed_again(KEYS)) == ""  # any quorum will do

        def with_a_bad_surplus(certificate: Certificate) -> Certificate:
            whole = certificate_of(certificate.statement, KEYS)
            signer, signature = whole.signatures[3]
            bad = (signer, signature[:-1] + bytes([signature[-1] ^ 1]))
            return Certificate(whole.statement, (*whole.signatures[:3], bad))

        assert "bad-signature" in rewrite(chain, name, with_a_bad_surplus)


def test_a_quorum_of_words_about_something_else_certifies_nothing(chain: Path) -> None:
    for name in names_of(chain, "certificates"):

        def of_another_round(certificate: Certificate) -> Certificate:
            said = certificate.statement
            return certificate_of(replace(said, height=said.height + 1), KEYS)

        def as_a_notarization(certificate: Certificate) -> Certificate:
            said = certificate.statement
            words = Statement(said.domain, Kind.NOTARIZE, 9, 9, bytes(32))
            return certificate_of(words, KEYS)

        def of_another_chain(certificate: Certificate) -> Certificate:
            domain = replace(certificate.statement.domain, chain_id=ChainId(bytes(32)))
            return certificate_of(replace(certificate.statement, domain=domain), KEYS)

        assert rewrite(chain, name, of_another_round)
        assert rewrite(chain, name, as_a_notarization)
        assert rewrite(chain, name, of_another_chain)


def test_two_final_branches_are_named(chain: Path, whole: ChainMaker) -> None:
    tip, _ = whole.chain.final_tip
    parent = trio.run(whole.chain.block, tip.parent_id)
    assert parent is not None
    rival = replace(tip, view=tip.view + 9, payload=EmptyPayload())
    (chain / "blocks" / rival.id.hex()).write_bytes(encode_block(rival))
    certificate = whole.finalize(rival)
    path = chain / "certificates" / f"{rival.id.hex()}.final"
    path.write_bytes(encode_certificate(certificate))
    assert "two branches are final" in "; ".join(p.what for p in verify(chain).problems)


def test_an_epoch_whose_own_proof_is_damaged_is_proved_by_the_next_one(tmp_path: Path) -> None:
    """Else who votes in all epochs above it would not be known."""
    chain = make_chain(tmp_path, 2 * EPOCH_ROUNDS + 1).chain_directory

    def view_of(path: Path) -> int:
        return decode_certificate(path.read_bytes(), FACTS.limits).statement.view

    finals = sorted((chain / "certificates").glob("*.final"), key=view_of)
    path, files = finals[EPOCH_ROUNDS - 1], ChainFiles(chain)
    payload = path.read_bytes()
    path.write_bytes(payload[:-1] + bytes([payload[-1] ^ 1]))
    problems: list[Problem] = []
    contents = read_contents(files, files.listing(), FACTS, problems)
    assert [problem.where for problem in problems] == [f"certificates/{path.name}"]
    assert contents.validators.now.epoch == 2


# What is no damage


def test_a_write_under_way_promises_what_its_note_names(chain: Path, whole: ChainMaker) -> None:
    newest = whole.newest
    name = f"vertices/{newest.vertex_id.hex()}"
    note = chain.parent / "work" / PUBLISHING / NOTE
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_bytes(encode_note([Group("add", (name,))]))
    (chain / name).unlink()
    (chain / f"certificates/{newest.vertex_id.hex()}.exec").unlink()
    report = verify(chain)
    assert report.heights == newest.height - 1
    assert report.promised == (newest.height, newest.vertex_id)
    delta, snapshot = newest.delta_root.hex(), newest.model_root.hex()
    left = {f"deltas/{delta}", f"manifests/{delta}", f"manifests/{snapshot}"}
    assert name not in named(report), "the daemon will finish or undo the write"
    assert {where for where in named(report) if where.startswith("vertices/")} == set()
    assert left & named(report), "what the note does not name is not excused"


def test_a_pruned_chain_is_verified_from_its_snapshot(chain: Path, whole: ChainMaker) -> None:
    maker = ChainMaker(chain.parent)

    async def run() -> None:
        await maker.open()
        assert await prune(maker.chain, Retention(vertices_restorable=2)) > 0

    trio.run(run)
    report = verify(chain)
    assert report.ok, report.problems
    assert len(names_of(chain, "deltas")) == 2
    vertex = trio.run(maker.chain.newest)
    delta = chain / "deltas" / vertex.delta_root.hex()
    payload = delta.read_bytes()
    delta.unlink()
    assert f"deltas/{delta.name}" in named(verify(chain))
    delta.write_bytes(payload)
    for path in files_under(chain):  # a pruned chain hides no changed byte either
        payload = path.read_bytes()
        path.write_bytes(payload[:-1] + bytes([payload[-1] ^ 4]))
        assert str(path.relative_to(chain)) in named(verify(chain))
        path.write_bytes(payload)


def test_a_delta_missing_below_a_snapshot_that_is_no_floor_is_named(
    chain: Path, whole: ChainMaker
) -> None:
    vertex_id = trio.run(whole.chain.heights.at, 1)
    assert vertex_id is not None
    vertex = trio.run(whole.chain.vertex, vertex_id)
    assert vertex is not None
    (chain / "deltas" / vertex.delta_root.hex()).unlink()
    (chain / "manifests" / vertex.delta_root.hex()).unlink()
    assert f"deltas/{vertex.delta_root.hex()}" in named(verify(chain))
