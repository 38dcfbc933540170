"""Another network that begins where a vertex of this one stands. Needs no daemon."""

import os
from contextlib import ExitStack
from pathlib import Path

from daa_node.checkpoints.beside import room_beside
from daa_node.checkpoints.export import Room, export_safetensors, replayed_state
from daa_node.checkpoints.files import ChainFiles
from daa_node.checkpoints.own_chain import own_chain
from daa_node.cli import local, report
from daa_node.cli.checkpoint import open_chain, tags_of
from daa_node.errors import UserError
from daa_node.genesis import chain_facts


def fork(
    root: Path, which: str, records: local.Records, out: Path, weights: Path, as_json: bool
) -> None:
    """Write its first weights, then its genesis. Raises UserError for whatever is in the way."""
    local.check_new(out)
    if os.path.lexists(weights):
        raise UserError(f"{weights} exists: choose another --weights")
    local.read_records(records)  # before the work that takes minutes
    directory, made = open_chain(root)
    facts = chain_facts(made)
    files = ChainFiles(directory.chain)
    past = own_chain(files, facts)
    vertex = past.find(tags_of(directory, made).spelled_out(which))
    with room_beside(weights) as room:
        state = replayed_state(past, vertex, facts.states, Room(room, files))
        export_safetensors(weights, state, facts.states, made.chain_id, vertex)
        has_momentum = state.momentum_D.any()
    with ExitStack() as undo:
        undo.callback(weights.unlink)
        local.begin_network(made.job, records, out, root, weights, as_json)
        undo.pop_all()
    if has_momentum and not as_json:
        report.put(
            "The outer momentum of that vertex stays behind: the new network begins with none, so "
            "its first steps are shorter"
        )
