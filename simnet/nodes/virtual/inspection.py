"""What an operator does with a chain's files: list it, export it, verify it, and find its damage.

By the functions behind `daa-node checkpoint`, on a copy of what a daemon has left.
"""

import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

from daa_dag.ids import DIGEST_BYTES, VertexId
from daa_node.checkpoints.certified import Certified, certified_chain
from daa_node.checkpoints.contents import ChainFacts
from daa_node.checkpoints.export import export_safetensors, replayed_state
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.listing import view_chain
from daa_node.checkpoints.verify import verify_chain
from daa_node.checkpoints.verify_report import Anchor
from daa_node.errors import UserError


def inspected(chain: Path, facts: ChainFacts, chance: Random) -> str | None:
    """What is wrong with what the commands say of a sound chain, or of it damaged; None: nothing.

    Leaves the copy in `chain` damaged.
    """
    view = view_chain(chain)
    row = view.find("tip")
    digits = row.vertex_id.hex()[: chance.choice((8, 16, 64))]
    certified = certified_chain(ChainFiles(chain), facts)
    if certified.promised:
        if not _refused(lambda: certified.find("tip")):
            return "a tip that is not here is found"
    elif certified.find(chance.choice((digits, "tip"))) != row.vertex:
        return f"{digits} is not the tip"
    vertex = chance.choice(certified.chain)
    anchor = Anchor(vertex.vertex_id, starts_replay=certified.has_snapshot(vertex))
    report = verify_chain(chain, facts, anchor=anchor)
    if not report.ok:
        return f"from height {vertex.height}, {report.problems[0].where}: {report.problems[0].what}"
    weights = chain.parent / "weights.safetensors"
    _export(certified, facts, weights)
    lost = Anchor(VertexId(chance.randbytes(DIGEST_BYTES)), starts_replay=False)
    if verify_chain(chain, facts, anchor=lost).ok:
        return "a vertex of no chain is trusted"
    for name, ask in (
        ("no folder", lambda: view_chain(chain.parent / "nowhere")),
        ("no target", lambda: _export(certified, facts, chain.parent / "nowhere" / "weights")),
        *((text, partial(find, text)) for text in MISTYPED for find in (certified.find, view.find)),
    ):
        if not _refused(ask):
            return f"nobody minds {name}"
    files = sorted(path for path in chain.rglob("*") if path.is_file())
    victim, (name, damage) = chance.choice(files), chance.choice(DAMAGES)
    place = victim.relative_to(chain)
    damage(victim, chance)
    if verify_chain(chain, facts).ok and name not in MAY_PASS:
        return f"{name}: nobody finds what befell {place}"
    _refused(lambda: _export(certified_chain(ChainFiles(chain), facts), facts, weights))
    _refused(lambda: view_chain(chain))  # or not; and no more than that
    return None


def _refused(ask: Callable[[], object]) -> bool:
    """Whether the operator is told that this cannot be."""
    try:
        ask()
    except UserError:
        return True
    return False


def _export(certified: Certified, facts: ChainFacts, target: Path) -> None:
    """The newest state. Raises UserError."""
    newest = certified.chain[-1]
    state = replayed_state(certified, newest, facts.states)
    export_safetensors(target, state, facts.states, facts.chain_id, newest)


def _turn_a_bit(path: Path, chance: Random) -> None:
    content = bytearray(path.read_bytes())
    content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
    path.write_bytes(content)


def _cut(path: Path, chance: Random) -> None:
    os.truncate(path, chance.randrange(path.stat().st_size))


def _lengthen(path: Path, chance: Random) -> None:
    path.write_bytes(path.read_bytes() + chance.randbytes(1))


def _link(path: Path, _chance: Random) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def _leave_something(path: Path, chance: Random) -> None:
    path.with_name("notes.txt").write_bytes(chance.randbytes(8))


def _nest(path: Path, _chance: Random) -> None:
    path.unlink()
    path.mkdir()


def _confuse(path: Path, chance: Random) -> None:
    """It holds what another one of its kind holds."""
    others = sorted(other for other in path.parent.iterdir() if other.is_file())
    path.write_bytes(chance.choice(others).read_bytes())


def _delete(path: Path, _chance: Random) -> None:
    path.unlink()


DAMAGES: tuple[tuple[str, Callable[[Path, Random], None]], ...] = (
    ("a bit turned", _turn_a_bit),
    ("cut", _cut),
    ("longer", _lengthen),
    ("a link", _link),
    ("something left there", _leave_something),
    ("a folder in its place", _nest),
    ("another one's bytes", _confuse),
    ("deleted", _delete),
)
# Of what the newest round brought, the rest is a whole chain; and the other one may be the same.
MAY_PASS = ("deleted", "another one's bytes")
MISTYPED = ("zz", "1234567", "0" * 16)
