"""Where the history of a node is: in D/history, or made anew of what else lies in D.

A command reads the file if there is one. If there is none it makes the same history in memory: all
rounds of the chain, and of the event log what it still tells.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from daa_consensus.bft.messages import Block, decode_block
from daa_consensus.errors import ConsensusError
from daa_dag.ids import BlockId, NodeId
from daa_node.adapters.key_files import load_keys
from daa_node.adapters.past_events import logged
from daa_node.adapters.sqlite_history import SqliteHistory
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.layout import BLOCKS
from daa_node.checkpoints.listing import LIMITS, view_chain
from daa_node.checkpoints.plain_files import Unreadable
from daa_node.chronicle.certified import round_row
from daa_node.chronicle.notes import Notes
from daa_node.chronicle.rows import Batch, RoundRow
from daa_node.cli import report
from daa_node.cli.checkpoint import open_chain
from daa_node.cli.data_directory import DataDirectory

AT_ONCE = 1000  # events read, rounds written
FROM_FILES = (
    "from the chain and the event log, since there is no D/history: a daemon with `history: "
    "{enabled: true}` in config.yaml keeps times and reasons for years"
)


def open_history(root: Path) -> tuple[SqliteHistory, NodeId]:
    """For a command: what there is to read, and whose. Raises UserError and StorageFailed."""
    directory = DataDirectory(root)
    directory.check()
    me = load_keys(directory.keys).node_id
    if directory.history.exists():
        return SqliteHistory(directory.history), me
    history = _made_anew(root, me)
    report.note(FROM_FILES)
    return history, me


def _made_anew(root: Path, me: NodeId) -> SqliteHistory:
    directory, _ = open_chain(root)
    history = SqliteHistory(None)
    history.open()
    notes, events = Notes(me), logged(directory.events, 0.0)
    while chunk := list(islice(events, AT_ONCE)):
        for event in chunk:
            notes.note(event)
        told = Batch((), tuple(notes.left_out), tuple(notes.aborted), tuple(notes.decisions))
        history.write(told)
        notes.written(0, len(told.aborted), len(told.left_out), len(told.decisions))
    rows = _rows(directory.chain, notes)
    while some := tuple(islice(rows, AT_ONCE)):
        history.write(Batch(some))
    return history


def _rows(chain: Path, notes: Notes) -> Iterator[RoundRow]:
    """Raises UserError for a chain that cannot be read."""
    files = ChainFiles(chain)
    files.listing()
    for row in sorted(view_chain(chain).rows, key=lambda row: row.vertex.height):
        vertex = row.vertex
        if vertex.height:
            block = _block(files, vertex.decided_block)
            seen = notes.finished.get(vertex.height)
            yield round_row(vertex, len(row.certified_by), block, seen)


def _block(files: ChainFiles, block_id: BlockId) -> Block | None:
    """None if it is not here, or damaged: it only tells how large updates were."""
    try:
        payload = files.read(f"{BLOCKS}/{block_id.hex()}", LIMITS.block_bytes_max)
        return decode_block(payload, LIMITS)
    except (Unreadable, ConsensusError):
        return None
