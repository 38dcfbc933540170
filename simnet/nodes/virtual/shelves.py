"""What lies on the disks of a run's nodes, read beside the daemons and by every rule."""

import random
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache, lru_cache
from pathlib import Path

from daa_consensus.bft.messages import Block, genesis_block
from daa_dag import canonical
from daa_dag.checkpoint import Vertex, decode_vertex
from daa_dag.chunking import decode_manifest, manifest_of
from daa_dag.errors import DagError
from daa_dag.ids import BlobRoot
from daa_node.adapters.durable_files import storage
from daa_node.agreement.recovery import BLOCKS as KEPT_BLOCKS
from daa_node.agreement.recovery import CERTIFICATES as KEPT_CERTIFICATES
from daa_node.agreement.signer import RECORD_BYTES_MAX
from daa_node.agreement.slots import Slot, Slots, entry_of
from daa_node.checkpoints.contents import ChainFacts
from daa_node.checkpoints.files import Listing, groups_of, listing_of
from daa_node.checkpoints.layout import (
    BLOCKS,
    MANIFESTS,
    NOTE,
    PUBLISHING,
    STATES,
    UPDATES,
    VERTICES,
)
from daa_node.checkpoints.plain_files import Problem, Unreadable
from daa_node.checkpoints.verify import verify_files
from daa_node.genesis import Genesis, chain_facts
from simnet.nodes.virtual.disk import Disk
from simnet.nodes.virtual.disk_packs import unpacked
from simnet.nodes.virtual.inspection import inspected

CHAIN, WORK = "chain", "work"  # folders of a node's disk
# Files in the work store of a node that keeps up. Measured at the end of random runs: two rounds'
# updates and a delta, three states of two blobs, four kept statements and blocks; and twice that.
# What was deleted comes back with a power cut until its folder is written back: of states, after a
# dozen cuts, as many again.
STATES_MAX = 24
UPDATES_A_MEMBER_MAX = 4
KEPT_A_MEMBER_MAX, KEPT_LEAST = 8, 32
KEPT_A_ROUND_MAX = 8  # of those that a node has yet to publish
LOG_RECORDS_MAX = 4096  # of the signer, which begins a new log with each epoch
INSPECTED_SHARE = 0.04  # of chains at the end of a run


class Shelves:
    """The disks by their node's number; `facts` are those that a verifier knows of the chain."""

    def __init__(self, disks: Sequence[Disk], facts: ChainFacts) -> None:
        self._disks = disks
        drawn = cache(lambda: tuple(facts.states.first_weights()))
        states = replace(facts.states, first_weights=drawn)
        self._facts = replace(facts, states=states)
        self._sound: list[Mapping[str, bytes]] = []  # files of chains that hold
        self._chance = random.Random(facts.chain_id)

    def chain(self, node: int) -> list[Vertex]:
        """The vertices on the node's disk by height: a certified chain has one at each.

        Without those that its disk has damaged: `problem` names them, where a disk is to be sound.
        """
        start = f"{CHAIN}/{VERTICES}/"
        files = unpacked(self._disks[node].files, CHAIN)
        paths = [path for path in sorted(files) if path.startswith(start)]
        found = [_vertex(path.removeprefix(start), files[path]) for path in paths]
        return sorted(filter(None, found), key=lambda vertex: vertex.height)

    def holds(self, node: int, vertex_id: str) -> bool:
        return f"{CHAIN}/{VERTICES}/{vertex_id}" in unpacked(self._disks[node].files, CHAIN)

    def holds_update(self, node: int, root: BlobRoot) -> bool:
        """Whether the blob of an update is there whole."""
        files, name = self._disks[node].files, root.hex()
        blob, manifest = (files.get(f"{WORK}/{kind}/{name}") for kind in (UPDATES, MANIFESTS))
        if blob is None or manifest is None:
            return False
        try:
            named = decode_manifest(manifest)
            return named.root == root and manifest_of(blob, named.sizes) == named
        except DagError:
            return False  # it is damaged, or has another length

    def words(self, node: int) -> Mapping[str, Slot]:
        """The newest slot of each kind of statement in the node's log.

        Raises StorageFailed, or one of UNREADABLE, for a log that its signer would not read.
        """
        slots = Slots()
        for record in self._disks[node].log:
            match canonical.decode(record, RECORD_BYTES_MAX):
                case ["base", _, _, _, dict(memory)]:
                    slots = Slots.of_value(memory)
                case ["words", _, list(words)]:
                    for word in words:
                        slots.note(entry_of(word))
        return slots.highest

    def excess(self, node: int, members: int, behind: int) -> str | None:
        """What there is more of on the node's disk than a network of so many members takes.

        `behind`: rounds that others have published and the node has not.
        """
        disk = self._disks[node]
        kinds = Counter(path.split("/")[1] for path in disk.files if path.startswith(f"{WORK}/"))
        kept = kinds[KEPT_CERTIFICATES] + kinds[KEPT_BLOCKS]
        kept_max = KEPT_LEAST + KEPT_A_MEMBER_MAX * members + KEPT_A_ROUND_MAX * behind
        for what, count, most in (
            ("states", kinds[STATES], STATES_MAX),
            ("updates", kinds[UPDATES], UPDATES_A_MEMBER_MAX * (members + 1)),
            ("kept statements and blocks", kept, kept_max),
            ("records of the log", len(disk.log), LOG_RECORDS_MAX),
        ):
            if count > most:
                return f"node {node} has {count} {what}, at most {most}"
        return None

    def keeps(self, node: int, block: Block) -> bool:
        """Whether it is there by itself: what a vote is for, until a checkpoint has it."""
        name = block.id.hex()
        kept = f"{WORK}/{KEPT_BLOCKS}/{block.epoch}-{block.view}-{name}"
        files = unpacked(self._disks[node].files, CHAIN)
        return not {kept, f"{CHAIN}/{BLOCKS}/{name}"}.isdisjoint(files)

    def problem(self, node: int) -> str | None:
        """What `daa-node checkpoint verify` would find first; None if all is well.

        Now and then, too, whether the other commands on a chain's files do what they promise.
        Raises StorageFailed where there is no room for a copy of them.
        """
        files = _ChainOnDisk(self._disks[node])
        if not files.sizes:
            return None  # it never got so far
        is_chosen = self._chance.random() < INSPECTED_SHARE
        if files.content in self._sound and not is_chosen:
            return None  # the very same files as another node's
        report = verify_files(files, self._facts)
        if is_chosen and report.ok and not report.unfinished:
            with ExitStack() as stack:
                with storage(f"copy a chain to {tempfile.gettempdir()}, to inspect it there"):
                    made = tempfile.TemporaryDirectory(prefix="simnet-")
                    folder = Path(stack.enter_context(made))
                    for path, payload in files.content.items():
                        target = folder / path
                        target.parent.mkdir(parents=True, exist_ok=True)
                        target.write_bytes(payload)
                return inspected(folder / CHAIN, self._facts, self._chance)
        if report.ok:
            self._sound.append(files.content)
            return None
        return f"{report.problems[0].where}: {report.problems[0].what}"


@lru_cache(maxsize=256)  # a run's end asks for every chain three times
def _vertex(name: str, payload: bytes) -> Vertex | None:
    try:
        vertex = decode_vertex(payload)
    except DagError:
        return None
    return vertex if vertex.vertex_id.hex() == name else None


class _ChainOnDisk:
    """A ChainReader of a simulated disk."""

    def __init__(self, disk: Disk) -> None:
        of_chain = (f"{CHAIN}/", f"{WORK}/{PUBLISHING}/")  # and its note of what is being written
        self.content = {p: payload for p, payload in disk.files.items() if p.startswith(of_chain)}
        self._files = unpacked(self.content, CHAIN)
        found = [path for path in self._files if path.startswith(of_chain[0])]
        self.sizes = {path.removeprefix(of_chain[0]): len(self._files[path]) for path in found}

    def listing(self) -> Listing:
        strange: list[Problem] = []
        note = self.content.get(f"{WORK}/{PUBLISHING}/{NOTE}")
        return listing_of(self.sizes, [] if note is None else groups_of(note, strange), strange)

    def read(self, name: str, size_bytes_max: int, again: bool = False) -> bytes:
        payload = self._files.get(f"{CHAIN}/{name}")
        if payload is None:
            raise Unreadable("is missing")
        if len(payload) > size_bytes_max:
            raise Unreadable(f"is longer than {size_bytes_max} bytes, the most it may have")
        return payload


def first_block(genesis: Genesis) -> Block:
    """What the final chain begins with."""
    return genesis_block(genesis.chain_id, chain_facts(genesis).first_vertex.vertex_id)
