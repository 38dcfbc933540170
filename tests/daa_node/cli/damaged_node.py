"""A node's directory, one damaged file in it, and what becomes of a start and of each command.

    python -m tests.daa_node.cli.damaged_node D FIRST END

tries the seeds from FIRST up to END in D, and tells of each fault.
"""

import io
import os
import random
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

import pytest
import trio

from daa_consensus.bft.messages import decode_block
from daa_consensus.errors import ConsensusError
from daa_dag import canonical
from daa_dag.checkpoint import decode_vertex
from daa_dag.errors import DagError
from daa_dag.ids import digest_of
from daa_node import genesis
from daa_node.checkpoints import scrub
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.held import held_by
from daa_node.checkpoints.layout import (
    BLOCKS,
    DELTAS,
    KINDS,
    MANIFESTS,
    NOTE,
    PUBLISHING,
    VERTICES,
    Group,
    encode_note,
)
from daa_node.checkpoints.plain_files import Unreadable
from daa_node.checkpoints.rows import HISTORY
from daa_node.checkpoints.scrub import Scrub
from daa_node.cli import (
    checkpoint,
    checkpoint_diff,
    checkpoint_export,
    checkpoint_fork,
    checkpoint_import,
    identity,
    sample,
)
from daa_node.cli.cluster import settings
from daa_node.cli.main import main
from daa_node.errors import NodeError
from daa_node.genesis import Job
from daa_node.observability.events import EventLog
from daa_node.packs.format import PACKS
from daa_node.rounds.config import EndConfig
from daa_node.training.model_config import ModelConfig
from tests.daa_node.checkpoints.little_chain import FACTS, ChainMaker, files_under
from tests.daa_node.checkpoints.proofs_alone import follow_members

JOB = Job(
    name="damaged",
    model=ModelConfig(depth=1, width=16, heads=2, context=16),
    end=EndConfig(rounds=1),
)
READ_BYTES_MAX = 2**26
KEY_AND_PLACE = 33 + 8  # of an entry in a pack's index


@dataclass(frozen=True)
class Case:
    """One damage; how it comes about again."""

    seed: int
    what: str


def make_node(directory: Path, rounds: int, *packed: int) -> Path:
    """With a little chain of so many rounds, which has packed some of them."""
    identity.create_node(directory, settings(4001, []))
    record = identity.make_record(identity.open_node(directory))
    made = genesis.create(JOB, [("n", record)], bytes(genesis.NONCE_BYTES))
    (directory / "genesis.json").write_text(made.as_text())
    directory.with_suffix(".record").write_text(asked("id", "--record", "--dir", directory)[1])
    maker = ChainMaker(directory)

    async def grow() -> None:
        await maker.open()
        await follow_members(maker.chain)
        for number in range(1, rounds + 1):
            await maker.publish(await maker.make_round(abort=number == 2))
            if number in packed:
                assert await maker.chain.pack(KINDS, 1)

    trio.run(grow)
    for kind in ("updates", "states", "manifests"):
        shutil.rmtree(directory / "work" / kind)
    return directory


def make_pair(directory: Path) -> None:
    """A node that has a past, and `fresh`, of the same network, that has none."""
    make_node(directory / "node", 6, 3)
    make_node(directory / "fresh", 1)
    for folder in ("chain", "work"):
        shutil.rmtree(directory / "fresh" / folder)
    shutil.copy(directory / "node" / "genesis.json", directory / "fresh")


def as_little_chain(patch: pytest.MonkeyPatch) -> None:
    """Commands take the directory's network for the little chain's."""
    for module in (checkpoint, checkpoint_diff, checkpoint_export, checkpoint_fork, sample):
        patch.setattr(module, "chain_facts", lambda _made: FACTS)
    patch.setattr(checkpoint_import, "chain_facts", lambda _made: FACTS)
    patch.setattr(sample, "sample_bytes", lambda *_order: b"text")
    patch.setattr(scrub, "BYTES_PER_S", 10**12)
    patch.setattr(os, "fsync", lambda _file: None)


# What may befall a directory


def damaged(node: Path, seed: int) -> Case:
    """Some file of the chain, or of what goes along with it, is another one now."""
    chance = random.Random(seed)
    told = []
    for _ in range(chance.choice((1, 1, 1, 2))):
        by_folder: dict[Path, list[Path]] = {}
        for path in (*files_under(node / "chain"), *files_under(node / "work")):
            by_folder.setdefault(path.parent, []).append(path)
        folder = chance.choice(sorted(by_folder))  # each kind as often
        path = chance.choice(by_folder[folder])
        how = chance.choice(DAMAGES)
        how(path, chance)
        told.append(f"{path.relative_to(node)}: {how.__name__}")
    return Case(seed, ", ".join(told))


def flipped(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes() or b"\0")
    for _ in range(chance.choice((1, 1, 8))):
        content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def flipped_at_an_end(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes() or b"\0")
    at = chance.choice((1, -1)) * chance.randrange(min(60, len(content)))
    content[at] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def cut(path: Path, chance: random.Random) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size + 1))


def emptied(path: Path, _chance: random.Random) -> None:
    path.write_bytes(b"")


def longer(path: Path, chance: random.Random) -> None:
    with path.open("ab") as file:
        file.write(chance.randbytes(chance.randrange(1, 300)))


def longer_by_nothing(path: Path, chance: random.Random) -> None:
    os.truncate(path, path.stat().st_size + chance.choice((1, 4096, 2**31)))


def zeroed(path: Path, chance: random.Random) -> None:
    content = bytearray(path.read_bytes())
    at = chance.randrange(len(content) + 1)
    content[at : at + 512] = bytes(len(content[at : at + 512]))
    path.write_bytes(content)


def gone(path: Path, _chance: random.Random) -> None:
    path.unlink()


def a_folder(path: Path, _chance: random.Random) -> None:
    path.unlink()
    path.mkdir()


def a_pipe(path: Path, _chance: random.Random) -> None:
    path.unlink()
    os.mkfifo(path)


def another(path: Path, chance: random.Random) -> None:
    """The content of a neighbour."""
    path.write_bytes(chance.choice(files_under(path.parent)).read_bytes())


def misnamed(path: Path, chance: random.Random) -> None:
    name = chance.choice((chance.randbytes(32).hex(), "x", path.name.upper(), path.name[:-1]))
    path.rename(path.with_name(name))


def of_any_content(path: Path, chance: random.Random) -> None:
    path.write_bytes(chance.randbytes(chance.randrange(300)))


def forged(path: Path, chance: random.Random) -> None:
    """By somebody who makes the checks fit."""
    content = bytearray(path.read_bytes())
    if path.parent.name == PACKS:
        forged_pack(path, content, chance)
    elif path.parent.name == HISTORY:
        body = forged_value(bytes(content[32:]), chance)
        path.write_bytes(digest_of(body) + body)
    else:
        payload = forged_value(bytes(content), chance)
        path.write_bytes(payload)
        with suppress(DagError, ConsensusError):  # else nobody else takes it for one either
            if path.parent.name == VERTICES:
                path.rename(path.with_name(decode_vertex(payload).vertex_id.hex()))
            elif path.parent.name == BLOCKS:
                path.rename(path.with_name(decode_block(payload, FACTS.limits).id.hex()))


def forged_pack(path: Path, content: bytearray, chance: random.Random) -> None:
    """Another number in an entry of its index, and the name that comes of it."""
    start = int.from_bytes(content[-20:-12])
    count = int.from_bytes(content[-12:-8])
    entry = start + 61 * chance.randrange(max(1, count))
    at, size = chance.choice(((0, 1), (1, 32), (33, 8), (41, 4), (45, 16)))
    others = (chance.randbytes(size), b"\xff" * size, bytes(size))
    content[entry + at : entry + at + size] = chance.choice(others)
    header = 12 + 32 * int.from_bytes(content[8:12])
    path.unlink()
    name = digest_of(bytes(content[:header] + content[start:])).hex()
    path.with_name(name).write_bytes(content)


def forged_value(payload: bytes, chance: random.Random) -> bytes:
    """Canonical all the same, with another thing somewhere in it."""
    try:
        value = canonical.decode(payload, len(payload))
    except DagError:
        return chance.randbytes(40)
    return canonical.encode(changed(value, chance))


def changed(value: canonical.Value, chance: random.Random) -> canonical.Value:
    if isinstance(value, list) and value and chance.random() < 0.8:
        at = chance.randrange(len(value))
        if chance.random() < 0.2:
            return [*value[:at], *value[at + 1 :]]
        return [*value[:at], changed(value[at], chance), *value[at + 1 :]]
    others: list[canonical.Value] = [0, -1, 2**63, b"", b"\0" * 32, "", "x", [], [[]], None, True]
    return chance.choice(others)


def noted(path: Path, chance: random.Random) -> None:
    """A note of a write under way, of files that are there and others."""
    node = next(folder for folder in path.parents if (folder / "chain").is_dir())
    names = [str(one.relative_to(node / "chain")) for one in files_under(node / "chain")]
    names = [name for name in names if name.partition("/")[0] in KINDS]
    names += [f"{chance.choice(KINDS)}/{chance.choice(('ab' * 32, 'ab', 'x' * 300, 'a.b'))}"]
    groups = [
        Group(chance.choice(("add", "drop")), tuple(chance.sample(names, chance.randrange(1, 4))))
        for _ in range(chance.randrange(1, 3))
    ]
    note = node / "work" / PUBLISHING / NOTE
    note.parent.mkdir(parents=True, exist_ok=True)
    note.write_bytes(encode_note(groups))


DAMAGES: list[Callable[[Path, random.Random], None]] = [
    *(flipped, flipped_at_an_end, cut, emptied, longer, longer_by_nothing, zeroed, gone, a_folder),
    *(a_pipe, another, misnamed, of_any_content, forged, forged, noted),
]


# What is asked of it


def readable(node: Path) -> set[str]:
    """Each record that can be had, with its digest: a repair must leave them all."""
    files = ChainFiles(node / "chain")
    found = set[str]()
    listing = files.listing()
    going = listing.arriving | listing.leaving  # as the note says, whoever wrote it
    going |= {name.replace(DELTAS, MANIFESTS) for name in going}
    for name in listing.sizes.keys() - going:
        try:
            payload = files.read(name, READ_BYTES_MAX)
        except Unreadable:
            continue
        found.add(f"{name} {digest_of(payload).hex()}")
    return found


def opened(node: Path) -> list[str]:
    """As a daemon begins, and goes on; what it tells, or why it does not begin."""
    told: list[str] = []
    maker = ChainMaker(node)
    log = EventLog(lambda: 0, lambda event: told.append(str(event.get("detail", ""))))

    async def run() -> None:
        for store in (maker.store, maker.work):
            store.directory.sweep()
        chain = ChainStore(maker.store, maker.work, FACTS.limits)
        await chain.open(maker.first, maker.genesis)
        await chain.newest()
        await follow_members(chain)
        await chain.resume_point()
        await held_by(chain)
        await Scrub(chain, log).once()
        await chain.pack(KINDS, 1)
        await chain.store.merge_packs()

    try:
        trio.run(run)
    except NodeError as refused:
        told.append(str(refused))
    return told


def asked(*words: object) -> tuple[int, str, str]:
    """`daa-node` in this process: exit code, output and errors."""
    out, err = io.StringIO(), io.StringIO()
    argv, sys.argv = sys.argv, ["daa-node", *map(str, words)]
    code: object = 0
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as ended:
        code = ended.code
    finally:
        sys.argv = argv
    return int(str(code or 0)), out.getvalue(), err.getvalue()


def commands(node: Path, fresh: Path, room: Path) -> Iterator[tuple[object, ...]]:
    """Each that reads a chain; `fresh` is a node of the same chain with nothing in it."""
    here = ("--dir", node)
    yield "checkpoint", "verify", "--json", *here
    yield "checkpoint", "list", *here
    yield "checkpoint", "show", "tip", *here
    yield "checkpoint", "log", "--graph", "-n", "5", *here
    yield "checkpoint", "tag", "x", "1", "--move", *here
    yield "checkpoint", "tags", *here
    yield "checkpoint", "diff", "1", "tip", *here
    yield "checkpoint", "export", "tip", "--out", room / "model", *here
    yield (
        *("checkpoint", "fork", "tip", "--validator", node.with_suffix(".record")),
        *("--out", room / "fork", "--weights", room / "weights", *here),
    )
    yield "sample", "--prompt", "a", "--tokens", "1", *here
    yield "checkpoint", "import", node, "--dir", fresh


def fault_of(code: int, out: str, err: str) -> str | None:
    """What is wrong with how a command ended; None: it succeeded, or said in one line why not."""
    if "Traceback" in err or code not in (0, 1, 2):
        return f"exit code {code}: {err[-500:]}"
    errors = [line for line in err.splitlines() if line.startswith("error:")]
    if code and not (len(errors) == 1 or out.startswith("{")):
        return f"exit code {code}, and {len(errors)} errors: {err[-500:]}"
    return None


class Trial:
    """One damage of a copy of the pair."""

    def __init__(self, pair: Path, room: Path, seed: int) -> None:
        self._room = room
        room.mkdir()
        shutil.copytree(pair / "node", room / "node")
        shutil.copytree(pair / "fresh", room / "fresh")
        shutil.copy(pair / "node.record", room)
        self.node = room / "node"
        self.case = damaged(self.node, seed)
        self._before = readable(self.node)

    def faults(self, which: Iterable[int] | None = None) -> Iterator[str]:
        """Of these commands, or of all, and of a start after them."""
        every = list(commands(self.node, self._room / "fresh", self._room))
        places = range(len(every)) if which is None else which
        for words in [every[place % len(every)] for place in places]:
            fault = fault_of(*asked(*words))
            if fault is not None:
                yield f"{words}: {fault}"
        told = opened(self.node)
        lost = self._before - readable(self.node)
        if lost:
            yield f"a start has lost {sorted(lost)}, and told {told}"


def try_out(directory: Path, first: int, end: int) -> int:
    """How many faults there are among these seeds."""
    count = 0
    if not directory.exists():
        directory.mkdir(parents=True)
        make_pair(directory)
    with pytest.MonkeyPatch.context() as patch:
        as_little_chain(patch)
        for seed in range(first, end):
            room = directory / str(seed)
            trial = Trial(directory, room, seed)
            print(trial.case, flush=True)
            found = list(trial.faults())
            for fault in found:
                print(fault, flush=True)
            count += len(found)
            shutil.rmtree(room)
    return count


if __name__ == "__main__":
    print(try_out(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])), "faults")
