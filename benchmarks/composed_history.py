"""Bytes of a year of proofs, and how soon a node that has lived it is open.

    python benchmarks/composed_history.py                                      # bytes a round
    python benchmarks/composed_history.py --year --validators 1 --dir /tmp/y   # 5 GB, and a start

Composes what a node would have written: blocks, certificates with a quorum's signatures, and
vertices, one upon the other, in the encodings of the daemon, put into packs by its own writer, with
the lists and the summary that it would have left. Signatures are random bytes of their true length:
no start looks at them. No states: they are counted in docs/performance.md.
"""

import argparse
import resource
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import trio

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    Block,
    EmptyPayload,
    OfferBody,
    Payload,
    ResultPayload,
    SetPayload,
    encode_block,
    encode_certificate,
    genesis_block,
)
from daa_consensus.committee import Committee, Domain, Validator
from daa_consensus.membership import Membership
from daa_consensus.votes import Certificate, Kind, Statement
from daa_dag.checkpoint import Contributor, Vertex, result_root
from daa_dag.ids import BlobRoot, ChainId, Digest, NodeId
from daa_node.adapters.disk_blob_store import DiskBlobStore
from daa_node.agreement.member_list import MembersOnDisk
from daa_node.checkpoints import summary as summaries
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.final_path import Descent
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    VERTICES,
    exec_name,
    final_name,
)
from daa_node.checkpoints.listing import own_view
from daa_node.checkpoints.publish import genesis_vertex
from daa_node.checkpoints.recollection import keep_pack_names
from daa_node.checkpoints.rows import HISTORY
from daa_node.identity.keys import ML_DSA_PUBLIC_KEY_BYTES, ML_DSA_SIGNATURE_BYTES
from daa_node.identity.validators import Validators
from daa_node.packs.format import PACKS, PackWriter, key_of, name_of
from daa_node.rounds.history import ROUNDS_LISTED_MAX
from daa_node.seams import PeerId, StateRef

YEAR_ROUNDS = 525_600  # one a minute
EPOCH_ROUNDS = 4  # agreement.epoch_rounds, as it is by default
BOUNDARIES = 5  # that a contribution names
PACK_RECORDS = 40_000  # a full pack has 32,768 or more
LIMITS = Limits(4096, 4096)
CHAIN = ChainId(bytes(32))
Record = tuple[bytes, bytes]  # its key in a pack, and its payload


class Composer:
    """One chain of so many validators, all of whom contribute to each round."""

    def __init__(self, validators: int) -> None:
        self.names = sorted(NodeId(secrets.token_bytes(32)) for _ in range(validators))
        self.committee = Committee(tuple(Validator(name, 1) for name in self.names))
        self.first = genesis_vertex(StateRef(_root(), _root()), self.committee.root)
        self.genesis = genesis_block(CHAIN, self.first.vertex_id)
        self.newest, self.tip, self.view = self.first, self.genesis, 0
        self.path = [self.genesis]  # since somebody took it
        self.finals: set[bytes] = set()
        keys = {name: secrets.token_bytes(ML_DSA_PUBLIC_KEY_BYTES) for name in self.names}
        peers = {name: PeerId(name.hex()) for name in self.names}
        first = Membership(self.committee)
        self.validators = Validators(CHAIN, EPOCH_ROUNDS, first, keys, peers, self.names)

    def begin(self) -> Iterator[Record]:
        yield _record(VERTICES, self.first.vertex_id.hex(), self.first.encode())
        yield _record(BLOCKS, self.genesis.id.hex(), encode_block(self.genesis))

    def round(self, number: int) -> Iterator[Record]:
        """All records of one."""
        epoch = (number - 1) // EPOCH_ROUNDS
        offers = tuple(self._offer(number, name) for name in self.names)
        weights = (1000,) * len(offers)
        payload = SetPayload(number, offers, weights, "trimmed_mean", 1, (), (), (_root(),))
        decided = self._block(payload, epoch, number)
        self._block(EmptyPayload(), epoch, number)
        vertex = self._vertex(number, decided)
        root = result_root(vertex.model_root, vertex.outer_state_root, vertex.delta_root)
        self._block(ResultPayload(number, vertex.vertex_id, root), epoch, number)
        self.finals.add(self.tip.id)
        domain = Domain(CHAIN, epoch, self.committee.root)
        final = Statement(domain, Kind.FINALIZE, self.tip.view, number, self.tip.id)
        execution = Statement(domain, Kind.EXEC, 0, number, [vertex.vertex_id, root])
        for block in self.path[-3:]:
            yield _record(BLOCKS, block.id.hex(), encode_block(block))
        yield _record(CERTIFICATES, final_name(self.tip.id), self._signed(final))
        yield _record(CERTIFICATES, exec_name(vertex.vertex_id), self._signed(execution))
        yield _record(VERTICES, vertex.vertex_id.hex(), vertex.encode())
        self.newest = vertex
        if number % EPOCH_ROUNDS == 0:
            self.validators.follow([self.tip])

    def _block(self, payload: Payload, epoch: int, height: int) -> Block:
        self.view += 1
        below = self.tip
        self.tip = Block(CHAIN, epoch, self.view, height, below.id, below.view, payload)
        self.path.append(self.tip)
        return self.tip

    def _offer(self, number: int, name: NodeId) -> OfferBody:
        boundaries = tuple(Digest(_root()) for _ in range(BOUNDARIES))
        base, sizes = self.newest.vertex_id, (10**6, "int8", 30, 10**5, 5000, 10**6, 3_000_000)
        return OfferBody(number, name, base, _root(), *sizes, boundaries)

    def _vertex(self, number: int, decided: Block) -> Vertex:
        told = (1000, 30, 10**5, 5000, 10**6, 3_000_000)
        return Vertex(
            parents=(self.newest.vertex_id,),
            height=number,
            training_round=number,
            decided_block=decided.id,
            contributors=tuple(Contributor(name, _root(), *told) for name in self.names),
            rule="trimmed_mean",
            f_agg=1,
            delta_root=_root(),
            model_root=_root(),
            outer_state_root=_root(),
            ledger_root=self.first.ledger_root,
            validator_set_root=self.committee.root,
            tokens_total=number,
        )

    def _signed(self, statement: Statement) -> bytes:
        signers = self.names[: self.committee.quorum]  # each weighs one
        pairs = [(name, secrets.token_bytes(ML_DSA_SIGNATURE_BYTES)) for name in signers]
        return encode_certificate(Certificate(statement, tuple(pairs)))


class PackedYear:
    """A chain directory with packs alone, and the `work/history` of who packed them."""

    def __init__(self, directory: Path, composer: Composer) -> None:
        self._packs = directory / "chain" / PACKS
        self._packs.mkdir(parents=True)
        self._made = composer
        work = DiskBlobStore(directory / "work")
        self._chain = ChainStore(DiskBlobStore(directory / "chain"), work, LIMITS)
        self._below: Block | None = None
        self._blocks = 0

    async def compose(self, rounds: int) -> int:
        """Its bytes."""
        held = list(self._made.begin())
        self._chain.heights.rows.append(self._made.first.vertex_id)
        certificates = size_bytes = 0
        for number in range(1, rounds + 1):
            held += self._made.round(number)
            certificates += 2
            self._chain.heights.rows.append(self._made.newest.vertex_id)
            self._chain.furthest.note(self._made.tip.epoch, self._made.tip.view, self._made.tip.id)
            if len(held) >= PACK_RECORDS or number == rounds:
                size_bytes += self._put(held)
                self._blocks += sum(name_of(key)[0] == BLOCKS for key, _ in held)
                held.clear()
                await self._note(certificates)
                print(f"round {number}: {size_bytes / 1e9:.2f} GB", flush=True)
        return size_bytes

    def _put(self, records: list[Record]) -> int:
        temporary = self._packs.with_name("making")
        with temporary.open("wb") as file:
            writer = PackWriter(file.write)
            for key, payload in sorted(records):
                writer.add(key, payload)
            name = writer.finish()
        return temporary.rename(self._packs / name).stat().st_size

    async def _note(self, certificates: int) -> None:
        chain, made = self._chain, self._made
        chain.path.lead_on(self._below, Descent(made.path[::-1], made.finals))
        self._below = made.tip
        made.path.clear()
        made.finals.clear()
        for closing in (chain.heights, chain.path, chain.furthest):
            await closing.close()
        on_disk = MembersOnDisk(made.validators, lambda _: True)
        summary = summaries.Summary(
            tip=made.tip.id,
            heights=chain.heights.rows.kept(),
            path=chain.path.kept(),
            ends=chain.furthest.kept(),
            certificates=certificates,
            blocks=self._blocks,
            loose=(),
            loose_blocks=(),
            membership=summaries.Membership(made.tip.id, on_disk.record()),
        )
        encoded = summaries.encode_summary(summary)
        await chain.work.put_record(HISTORY, summaries.SUMMARY, encoded, durable=False)
        await keep_pack_names(chain)


def opened(directory: Path) -> None:
    """What a start reads: the chain, who votes, where to go on, and the rounds that are listed.

    Then what a command reads for the newest lines of the log.
    """

    async def run() -> None:
        began_s, spent_s = time.monotonic(), time.process_time()
        stores = (DiskBlobStore(directory / name) for name in ("chain", "work"))
        chain = ChainStore(*stores, LIMITS)
        packs = chain.store
        genesis = await _genesis_of(chain)
        await chain.open(*genesis)
        assert packs is chain.store
        known = chain.turns.membership
        assert known is not None, "the summary was believed"
        committee = Committee((Validator(NodeId(bytes(32)), 1),))
        validators = Validators(CHAIN, EPOCH_ROUNDS, Membership(committee), {}, {}, ())
        on_disk = MembersOnDisk(validators, lambda block: block.height % EPOCH_ROUNDS == 0)
        await chain.turns.lead_on(on_disk, chain.final_tip[0].id)
        await chain.resume_point()
        listed = chain.heights.ids(len(chain.heights) - ROUNDS_LISTED_MAX)
        async for vertex_id in listed:
            await chain.vertex(vertex_id)
            await chain.exec_certificate(vertex_id)
        print(
            f"open in {time.monotonic() - began_s:.1f} s, {time.process_time() - spent_s:.1f} s of "
            f"a core: {len(chain.heights)} heights, epoch "
            f"{validators.now.epoch}, peak memory "
            f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f} MB"
        )

    trio.run(run)
    began_s, spent_s = time.monotonic(), time.process_time()
    view = own_view(directory / "chain")
    heights = [row.vertex.height for row in view.newest_of(view.find("tip"), 5)]
    print(
        f"{len(heights)} lines of the log in {time.monotonic() - began_s:.1f} s, "
        f"{time.process_time() - spent_s:.1f} s of a core"
    )


async def _genesis_of(chain: ChainStore) -> tuple[Vertex, Block]:
    """What a genesis file would say."""
    payload = await chain.work.get_record(HISTORY, summaries.SUMMARY)
    summary = None if payload is None else summaries.decode_summary(payload)
    assert summary is not None
    await chain.heights.rows.recall(summary.heights)
    first_id = await chain.heights.at(0)
    assert first_id is not None
    first = await chain.vertex(first_id)
    assert first is not None
    return first, genesis_block(CHAIN, first_id)


def _record(kind: str, name: str, payload: bytes) -> Record:
    key = key_of(kind, name)
    assert key is not None
    return key, payload


def _root() -> BlobRoot:
    return BlobRoot(secrets.token_bytes(32))


def say_bytes(rounds: int) -> None:
    """Of as many validators as the table of docs/performance.md has."""
    print("validators | bytes a round | certificates of these | a year | one certificate an epoch")
    for validators in (1, 4, 20, 100):
        composer = Composer(validators)
        with tempfile.TemporaryDirectory() as folder:
            size_bytes = trio.run(PackedYear(Path(folder), composer).compose, rounds)
        statement = Statement(Domain(CHAIN, 0, composer.committee.root), Kind.FINALIZE, 1, 1, b"")
        signed = len(composer._signed(statement))
        each = size_bytes / rounds
        light = each - 2 * signed + signed / EPOCH_ROUNDS
        year_gb, light_gb = (YEAR_ROUNDS * count / 1e9 for count in (each, light))
        share = 200 * signed / each
        sizes = f"{each / 1e3:.1f} kB | {share:.0f} % | {year_gb:.1f} GB | {light_gb:.1f} GB"
        print(f"{validators} | {sizes}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=32)
    parser.add_argument("--validators", type=int, default=1)
    parser.add_argument("--year", action="store_true", help="compose one, and open it")
    parser.add_argument("--open", action="store_true", help="open what lies in --dir")
    parser.add_argument("--dir", type=Path)
    arguments = parser.parse_args()
    if not (arguments.year or arguments.open):
        return say_bytes(arguments.rounds)
    if arguments.dir is None:
        parser.error("--dir says where it goes")
    if arguments.open:
        return opened(arguments.dir)
    composer = Composer(arguments.validators)
    rounds = YEAR_ROUNDS if arguments.rounds == 32 else arguments.rounds
    size_bytes = trio.run(PackedYear(arguments.dir, composer).compose, rounds)
    print(f"{rounds} rounds of {arguments.validators} validators: {size_bytes / 1e9:.2f} GB")
    command = [sys.executable, __file__, "--open", "--dir", str(arguments.dir)]
    subprocess.run(command, check=True)


if __name__ == "__main__":
    main()
