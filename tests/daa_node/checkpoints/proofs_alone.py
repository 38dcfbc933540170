"""A little chain whose rounds cost next to nothing: nobody signs, and its state stays the same."""

import os
from collections.abc import Sequence
from typing import cast

from daa_dag.ids import NodeId
from daa_node.agreement.member_list import MembersOnDisk
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.snapshots import Snapshots
from daa_node.identity.keys import ML_DSA_SIGNATURE_BYTES, NodeKeys
from daa_node.seams import SteppedState
from tests.daa_node.checkpoints.little_chain import (
    EPOCH_ROUNDS,
    FACTS,
    KEYS,
    SNAPSHOT_EVERY,
    ChainMaker,
    publish,
)

NEVER = 10**9  # rounds from snapshot to snapshot


class Unsigned:
    """A signer whose signatures are as long as real ones, and nothing more."""

    def __init__(self, node_id: NodeId) -> None:
        self.node_id = node_id

    def sign(self, _message: bytes, _context: bytes) -> bytes:
        return os.urandom(ML_DSA_SIGNATURE_BYTES)


def without_states(maker: ChainMaker) -> None:
    """Nobody signs, and each round makes the same step to the same state."""
    signers = [Unsigned(keys.node_id) for keys in KEYS[:3]]
    maker.signers = cast(Sequence[NodeKeys], signers)
    steps, step = list[SteppedState](), maker.step

    async def same() -> SteppedState:
        if not steps:
            steps.append(await step())
        return steps[0]

    maker.step = same  # type: ignore[method-assign]


async def follow_members(chain: ChainStore) -> MembersOnDisk:
    """Lead the history of validators on with the chain, as a daemon does."""
    members = MembersOnDisk(FACTS.validators(), lambda block: block.height % EPOCH_ROUNDS == 0)
    await chain.turns.lead_on(members, chain.final_tip[0].id)
    return members


async def play_round(
    maker: ChainMaker, snapshots: Snapshots, snapshot_every: int = SNAPSHOT_EVERY
) -> None:
    """Publish one, and do what a daemon does after it."""
    made = await maker.make_round()
    await publish(maker.chain, made.headers, made.certified, snapshot_every=snapshot_every)
    await snapshots.packing.run()
    await snapshots.quota.look()
    if made.certified is not None:
        await snapshots.prune_after(made.certified[0])
