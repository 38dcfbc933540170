"""A chain verified in windows of some epochs, in memory that does not grow with it.

    listed   names and sizes, and the newest finalization
    path     from its block down to the genesis block; ids go into a file (see chain_index)
    windows  from the genesis block up, some epochs at a time, by the judges of `certified`
    rest     proofs that no window had: of a write under way, or none of this chain
    states   each snapshot, and every delta replayed to its roots (see verify_states)
    packs    no byte but whole records, and an index of them

A window ends where its own finalizations prove the end of an epoch, so nothing above it changes
what is said of it, and problems have the words that they have when the whole is held in memory.
Such are those of states, vertices, certificates, leftovers and writes under way. Not so:

    headers       a block that is of another branch or against the rules; the genesis block
    final proofs  of a block that no window has
    signers       who are known from another epoch than the one that they sign in
    packs         of which two hold one record, or whose records are out of order
    a disk        that has no room for the file, or where a running daemon deletes and merges, time
                  and again, what was to be read

Then `verify` holds headers and vertices of the whole chain.
"""

import sqlite3
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import closing
from itertools import chain, islice, pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

from daa_consensus.bft.messages import (
    Block,
    EmptyPayload,
    ResultPayload,
    SetPayload,
    decode_certificate,
    genesis_block,
)
from daa_consensus.errors import ConsensusError
from daa_consensus.votes import Kind
from daa_dag.errors import DagError
from daa_dag.ids import BlockId, NodeId, VertexId
from daa_node.checkpoints.certified import Judge
from daa_node.checkpoints.chain_index import ChainIndex
from daa_node.checkpoints.contents import ChainFacts, Contents, Start, read_contents
from daa_node.checkpoints.files import ChainFiles, Listing
from daa_node.checkpoints.going import Going
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    FINAL_SUFFIX,
    PROOFS,
    VERTICES,
    exec_name,
    final_name,
)
from daa_node.checkpoints.long_listing import LongListing
from daa_node.checkpoints.plain_files import GONE, Gone, Problem, Unreadable
from daa_node.checkpoints.verify_path import NotPlain, VerifyPath, expect
from daa_node.checkpoints.verify_report import Anchor, Report
from daa_node.checkpoints.verify_states import StateJudge, add_vertex
from daa_node.errors import PeerFault
from daa_node.identity.validators import LATER_EPOCH

WINDOW_BLOCKS = 256  # at least, and up to the end of their epoch: a megabyte or two
REST = 256  # files that no window had, at a time
TRIES = 3  # while a running daemon deletes what was to be read

NO_KEY = "no key is known"
FROM_BELOW = (LATER_EPOCH, NO_KEY)  # who knows what is above may say otherwise

Count = Callable[[int], None]  # of bytes


def verify_in_windows(
    directory: Path, facts: ChainFacts, anchor: Anchor | None, on_bytes: Count, on_total: Count
) -> Report | None:
    """What is to be told of this chain; None if windows cannot.

    `on_bytes` is told of bytes that are read, `on_total` how many there are.
    """
    for _ in range(TRIES):
        files = ChainFiles(directory, on_bytes)
        try:
            with (
                TemporaryDirectory(prefix="daa-verify-") as folder,
                closing(ChainIndex(Path(folder) / "index")) as index,
            ):
                listing = files.long_listing(index)
                return Windows(files, listing, facts, index, on_total).run(anchor)
        except Gone:
            continue
        except (NotPlain, Unreadable, DagError, ConsensusError, PeerFault):
            break
        except (OSError, sqlite3.Error):
            break  # no room for the index, or a listing that fails
    return None


class Windows:
    """One pass over `files`."""

    def __init__(
        self,
        files: ChainFiles,
        listing: LongListing,
        facts: ChainFacts,
        index: ChainIndex,
        on_total: Count,
    ) -> None:
        self._files = files
        self._listing = listing
        self._facts = facts
        self._index = index
        self._on_total = on_total
        self._path = VerifyPath(files, listing, facts, index.headers)
        self._report = Report(facts.chain_id, problems=list(listing.strange))
        # What the next window stands on.
        self._below = genesis_block(facts.chain_id, facts.first_vertex.vertex_id)
        self._validators = facts.validators()
        self._asked: dict[NodeId, bytes] = {}
        self._newest = facts.first_vertex  # that holds
        self._is_unbroken, self._has_ended = True, False
        self._is_above_gap = False
        self._told: set[BlockId] = set()  # of blocks that are lost
        self._tried: Collection[str] = frozenset()  # names that this window has read already
        self._results = 0  # final ones
        self._promised: VertexId | None = None
        self._finals = 0  # that a window had
        self._apart: set[str] = set()  # names that were judged, and belong to nothing

    def run(self, anchor: Anchor | None) -> Report:
        """Raises Gone where another try may help, and others where none would."""
        self._list()
        self._check_first()
        self._path.find(self._below.id)
        path, due = list[Block](), 0
        for window, above in pairwise(chain(self._windows(), (None,))):
            assert window is not None
            path += window
            if above is not None and len(path) < due:
                continue
            if self._check_window(path, is_last=above is None):
                path, due = [], 0
            else:  # what is above may prove it; where nothing does, some three times are enough
                due = len(path) * 3 // 2
        expect(self._finals == self._index.headers.count_finals())
        self._check_rest()
        report, newest = self._report, self._newest
        report.heights, report.tip = newest.height, newest.vertex_id
        report.vertices = newest.height + 1
        if self._promised is not None:
            report.promised = (self._results, self._promised)
        StateJudge(self._files, self._facts, self._listing, self._index, report).run(anchor)
        _expect_there(report.problems)
        self._check_going()
        listing = self._files.long_listing(self._index)  # what was packed meanwhile, too
        report.unfinished += len(listing.twice) + len(listing.shelf.superseded)
        report.problems += self._files.pack_problems(listing)
        report.settle()
        return report

    def _list(self) -> None:
        size_bytes, damaged = self._listing.shelf.size_bytes, list[str]()
        for name, size in self._listing.each_size():
            size_bytes += size
            if name.endswith(FINAL_SUFFIX) and not self._add_final(name):
                damaged.append(name)
        self._index.headers.index_finals()
        self._on_total(size_bytes)
        self._read_apart(damaged)
        expect({*damaged} <= {problem.where for problem in self._report.problems})

    def _add_final(self, name: str) -> bool:
        limits = self._facts.limits
        try:
            payload = self._files.read(name, limits.certificate_bytes_max, again=True)
            statement = decode_certificate(payload, limits).statement
        except (Unreadable, DagError, ConsensusError):
            return False
        value = statement.value
        if statement.kind is not Kind.FINALIZE or not isinstance(value, bytes):
            return False
        if name != f"{CERTIFICATES}/{final_name(BlockId(value))}":
            return False
        self._index.headers.add_final(BlockId(value), statement.domain.epoch, statement.view)
        return True

    def _check_first(self) -> None:
        genesis, first = self._below, self._newest
        names = [f"{BLOCKS}/{genesis.id.hex()}", f"{VERTICES}/{first.vertex_id.hex()}"]
        listing = self._listed(names)
        problems: list[Problem] = []
        contents = read_contents(self._files, listing, self._facts, problems)
        expect(genesis.id in contents.blocks)
        judge = Judge(self._facts, listing, contents, problems)
        judge.check_first(genesis, first)
        judge.check_headers(genesis)
        self._take(listing, judge, problems)
        add_vertex(self._index, self._listing, first, holds=True)

    def _windows(self) -> Iterator[list[Block]]:
        """Blocks of the path; each window but the last ends with the proof of an epoch's end."""
        window: list[Block] = []
        is_full = False
        for block_id in self._index.headers.path_up():
            block = self._path.block(block_id)
            if is_full and not (
                isinstance(block.payload, EmptyPayload) and block.epoch == window[-1].epoch
            ):
                yield window
                window, is_full = [], False
            window.append(block)
            if len(window) >= WINDOW_BLOCKS and self._path.ends_epoch(block):
                # else the next epoch proves this one, too, and judges it with it
                beside = self._index.headers.beside_path(block.epoch, block.epoch)
                is_full = is_full or self._index.headers.has_final(block.id) or bool(beside)
        if window:
            yield window

    def _check_window(self, path: list[Block], is_last: bool) -> bool:
        """Whether it proves its own end; if not, nothing is said of it yet."""
        blocks, lost = self._with_beside(path)
        has_gap = any(block.parent_id in self._path.lost for block in path)
        if is_last:
            lost |= self._path.lost - self._told  # of these nothing stands on the path
        news = (*blocks, *(lost - self._told))
        finals = [block_id for block_id in news if self._index.headers.has_final(block_id)]
        results = [b.payload.vertex_id for b in path if isinstance(b.payload, ResultPayload)]
        listing = self._listed(
            [
                *(f"{CERTIFICATES}/{exec_name(vertex_id)}" for vertex_id in results),
                *(f"{VERTICES}/{vertex_id.hex()}" for vertex_id in results),
                *(f"{BLOCKS}/{block_id.hex()}" for block_id in lost),
            ],
            [
                *(f"{BLOCKS}/{block_id.hex()}" for block_id in blocks),
                *(f"{CERTIFICATES}/{final_name(block_id)}" for block_id in finals),
            ],
        )
        problems: list[Problem] = []
        start = Start(self._below, self._validators.copy(), leads=not self._is_above_gap)
        files = _Again(self._files, listing, self._tried)
        contents = read_contents(files, listing, self._facts, problems, start)
        judge = Judge(self._facts, listing, contents, problems, self._asked)
        judge.is_unbroken, judge.has_ended = self._is_unbroken, self._has_ended
        outcomes = judge.check_headers(self._below)
        if has_gap or self._is_above_gap:
            is_proved = f"{BLOCKS}/{path[-1].id.hex()}" in judge.used
        else:
            is_proved = contents.validators.now.epoch > path[-1].epoch
        if not is_last and not is_proved:
            self._tried = listing.sizes.keys()
            return False
        self._tried = frozenset()
        self._is_above_gap |= has_gap
        self._told |= lost
        held = judge.check_results(self._newest, outcomes)
        if len(judge.promised) < len(outcomes):  # something is here: what lies below is not ahead
            expect(not self._has_ended)
            self._promised = None
        if judge.promised:
            self._promised = judge.promised[-1].result.vertex_id
        self._results += len(outcomes)
        self._finals += len(finals)
        self._take(listing, judge, problems)
        for place, vertex in enumerate(judge.placed, 1):
            add_vertex(self._index, self._listing, vertex, place < len(held))
        self._below = next((b for b in reversed(path) if self._path.ends_epoch(b)), self._below)
        self._validators, self._asked, self._newest = contents.validators, judge.asked, held[-1]
        self._is_unbroken, self._has_ended = judge.is_unbroken, judge.has_ended
        return True

    def _with_beside(self, path: list[Block]) -> tuple[dict[BlockId, Block], set[BlockId]]:
        """And the empty blocks above ends of epochs that carry their proofs; and what is lost."""
        blocks = {block.id: block for block in path}
        lost = {block.parent_id for block in path} & self._path.lost
        for block_id in self._index.headers.beside_path(path[0].epoch, path[-1].epoch):
            while block_id not in blocks:
                block = self._path.look(block_id)
                if block is None:
                    lost.add(block_id)
                    break
                blocks[block_id] = block
                expect(isinstance(block.payload, EmptyPayload))
                block_id = block.parent_id
        return blocks, lost

    def _listed(self, names: Iterable[str], seen: Iterable[str] = ()) -> Listing:
        """Those that are listed, alone; of those that were seen that need not be asked."""
        sizes = {name: 0 for name in names if name in self._listing}
        sizes |= {name: 0 for name in seen if name not in self._listing.leaving}
        return Listing(sizes, (), self._listing.arriving, frozenset())

    def _take(self, listing: Listing, judge: Judge, problems: list[Problem]) -> None:
        """What was said of these files is what is said of the whole."""
        lost = {f"{BLOCKS}/{block_id.hex()}" for block_id in self._path.lost}
        words_below = (NO_KEY,) if self._is_above_gap else FROM_BELOW
        for problem in problems:
            expect(problem.where in lost or not problem.where.startswith(f"{BLOCKS}/"))
            expect(not any(words in problem.what for words in words_below))
        self._add(problems)
        contents, report = judge.contents, self._report
        report.certificates += len(contents.execs) + len(contents.finals)
        placed = {f"{CERTIFICATES}/{exec_name(vertex.vertex_id)}" for vertex in judge.placed}
        report.light += len(placed & judge.light.keys())
        self._index.names.use_all(judge.used)
        self._apart |= listing.sizes.keys() - judge.used

    def _check_rest(self) -> None:
        """Proofs that no window had."""
        bad = {problem.where for problem in self._report.problems}
        rest = (
            name
            for name in self._listing.each(PROOFS)
            if not (self._index.names.uses(name) or name in self._apart or name in bad)
        )
        while names := list(islice(rest, REST)):
            contents = self._read_apart(names)
            self._report.certificates += len(contents.execs)
            for block in contents.blocks.values():
                payload = block.payload
                # it may bring keys that the whole knows
                expect(not (isinstance(payload, SetPayload) and payload.operations))

    def _check_going(self) -> None:
        """What a write under way takes out."""
        going = Going(self._files, self._facts, self._validators)
        going.judge(self._listing.leaving)
        expect(not any(words in p.what for p in going.problems for words in FROM_BELOW))
        self._report.unfinished += going.count
        self._report.problems += going.problems

    def _read_apart(self, names: list[str]) -> Contents:
        """Files of which each is judged by itself."""
        problems: list[Problem] = []
        start = Start(self._below, self._validators)
        contents = read_contents(self._files, self._listed(names), self._facts, problems, start)
        self._add(problems)
        return contents

    def _add(self, problems: list[Problem]) -> None:
        _expect_there(problems)
        self._report.problems += problems


class _Again:
    """A window's files, some of which were read, and counted, when it was tried before."""

    def __init__(self, files: ChainFiles, listing: Listing, tried: Collection[str]) -> None:
        self._files = files
        self._listing = listing
        self._tried = tried

    def listing(self) -> Listing:
        return self._listing

    def read(self, name: str, size_bytes_max: int, again: bool = False) -> bytes:
        return self._files.read(name, size_bytes_max, again or name in self._tried)


def _expect_there(problems: list[Problem]) -> None:
    """Raises Gone for a file that was listed, and is no more."""
    if any(problem.what == GONE for problem in problems):
        raise Gone(GONE)
