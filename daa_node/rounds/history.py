"""The rounds that a node has published, as it tells of them, and whether one spoilt the model.

Votes say that a step is the one that its set makes; they say nothing of its worth. A rule that is
told of fewer liars than there are lets them carry the model away, and every node certifies it.
So each node looks at its own held-out loss and says so. Local: floats, and for people.
"""

import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import isfinite

from daa_consensus.votes import Certificate
from daa_dag.checkpoint import COUNT_MAX, Vertex
from daa_dag.ids import NodeId, VertexId
from daa_node.checkpoints.chain import ChainStore
from daa_node.errors import TrainerFailed
from daa_node.observability import events
from daa_node.observability.events import EventLog
from daa_node.rounds.plan import told_loss_micronats
from daa_node.rounds.recent_vertices import RecentVertices
from daa_node.seams import StateRef, Trainer

ROUNDS_LISTED_MAX = 1024  # of `daa-node rounds`; the chain has them all, and a start reads these
# In JSON 67 bytes each, which with all the rest fit an answer of 16 MiB. Where 128 members sign and
# contribute, and some copy, a thousand rounds have more: all of them would not be told at all.
NAMES_LISTED_MAX = 230_000
# A step of honest contributions loses a little now and then, and less the lower the loss is.
JUMP_FACTOR = 1.5
JUMP_NATS = 0.1
MICRO = 1_000_000


class LossWatch:
    """Held-out losses of one model, oldest first, in nats."""

    def __init__(self) -> None:
        self._lowest_nats: float | None = None
        self.alarm: str | None = None  # why the newest loss is no honest step's, while it is none

    def look_back(self, losses_nats: Iterable[float | None]) -> None:
        """Take in losses that others reported while we were away: they raise no alarm."""
        for loss_nats in losses_nats:
            if loss_nats is not None and isfinite(loss_nats):
                self._take(loss_nats)

    def look(self, loss_nats: float) -> bool:
        """Judge the newest loss; whether it has just jumped."""
        lowest, before = self._lowest_nats, self.alarm
        if lowest is None and isfinite(loss_nats):
            self._take(loss_nats)
            return False
        if isfinite(loss_nats) and lowest is not None:
            jumped = loss_nats > JUMP_FACTOR * lowest + JUMP_NATS
        else:
            jumped = True
        if not jumped:
            self._take(loss_nats)
            self.alarm = None
            return False
        was = "no loss" if lowest is None else f"{lowest:.3f}"
        self.alarm = (
            f"held-out loss {loss_nats:.3f} nats, it was {was}: contributions may be poisoned by "
            "more members than updates.f_agg allows for"
        )
        return before is None

    def _take(self, loss_nats: float) -> None:
        lowest = self._lowest_nats
        self._lowest_nats = loss_nats if lowest is None else min(lowest, loss_nats)


@dataclass(frozen=True, slots=True)
class RoundRecord:
    """What `daa-node rounds` tells of one published vertex."""

    height: int
    training_round: int
    vertex_id: str
    loss_nats: float | None
    certified_by: tuple[str, ...]
    contributors: tuple[str, ...]
    voided: tuple[str, ...]  # those not merged: another's copy, or a trainer's where few came
    bytes_sent: int
    wall_s: float


def newest_of(records: Sequence[RoundRecord]) -> Sequence[RoundRecord]:
    """As many of the newest as name NAMES_LISTED_MAX nodes together, the newest last."""
    names = 0
    for at in reversed(range(len(records))):
        one = records[at]
        names += len(one.certified_by) + len(one.contributors) + len(one.voided)
        if names > NAMES_LISTED_MAX:
            return records[at + 1 :]
    return records


class History:
    """One node's, the newest last."""

    def __init__(self, chain: ChainStore, trainer: Trainer, log: EventLog) -> None:
        self._chain = chain
        self._trainer = trainer
        self._log = log
        self.records: list[RoundRecord] = []
        self.recent = RecentVertices()
        self.loss_nats: float | None = None  # of the newest vertex, held-out
        self.loss_watch = LossWatch()

    @property
    def loss_micronats(self) -> int:
        """What our next contribution says that it measured; 0 of what is no number.

        A spoilt model may lose anything, and whoever trains it on is no liar: it says what fits.
        """
        micronats = (self.loss_nats or 0.0) * MICRO
        return min(max(0, round(micronats)), COUNT_MAX) if isfinite(micronats) else 0

    async def measure(self, state: StateRef, height: int) -> None:
        """Evaluate the newest vertex's state."""
        try:
            self.loss_nats = await self._trainer.evaluate(state)
            if self.loss_watch.look(self.loss_nats):
                self._log.emit(
                    events.LOSS_JUMPED,
                    height=height,
                    loss_nats=self.loss_nats,
                    why=self.loss_watch.alarm,
                )
        except TrainerFailed as failure:
            # A loss is for people; without it the round goes on.
            self._log.emit(events.TRAINER_REFUSED, why=str(failure))
            self.loss_nats = None

    def told(self, above: Vertex) -> None:
        """Take the loss of the newest vertex from those who contributed to the next one."""
        told = told_loss_micronats(above)
        self.loss_nats = None if told is None else told / MICRO
        self.loss_watch.look_back([self.loss_nats])

    async def recall(self) -> None:
        """List the rounds that the chain holds already; each loss is what the next set reported.

        One vertex at a time, and those alone that are listed: a chain may be long.
        """
        chain, heights = self._chain, self._chain.heights
        self.records.clear()
        self.recent.clear()
        below: Vertex | None = None
        async for vertex_id in heights.ids(max(0, len(heights) - ROUNDS_LISTED_MAX)):
            vertex = await chain.vertex(vertex_id)
            if vertex is None:
                continue
            if below is not None:
                told = told_loss_micronats(vertex)
                await self._recall_one(below, told and told / 1e6)
            below = vertex
        if below is not None:
            await self._recall_one(below, self.loss_nats)

    async def _recall_one(self, vertex: Vertex, loss_nats: float | None) -> None:
        self.loss_watch.look_back([loss_nats])
        proof = await self._chain.exec_certificate(vertex.vertex_id)
        self.recent.add(vertex)
        self.records.append(_record_of(vertex, proof, loss_nats, 0, 0.0))

    async def recall_anew(self, newest: Vertex) -> None:
        """The same after a gap was crossed; the newest is news."""
        await self.recall()
        del self.records[-1:]
        self.recent.drop_newest()
        self.add(newest, await self._chain.exec_certificate(newest.vertex_id))

    def add(
        self, vertex: Vertex, proof: Certificate | None, sent: int = 0, wall_s: float = 0.0
    ) -> None:
        """A vertex was published, on which we spent so many bytes and seconds.

        What its set tells of the one below stands for what we have not measured ourselves.
        """
        self._take_told(vertex)
        self.recent.add(vertex)
        self.records.append(_record_of(vertex, proof, self.loss_nats, sent, wall_s))
        del self.records[:-ROUNDS_LISTED_MAX]
        self._log.emit(
            events.ROUND_FINALIZED,
            round=vertex.training_round,
            height=vertex.height,
            vertex_id=vertex.vertex_id,
            loss_nats=self.loss_nats,
            contributors=len(vertex.contributors),
            wall_s=round(wall_s, 3),
            bytes_sent=sent,
        )

    def _take_told(self, vertex: Vertex) -> None:
        told = told_loss_micronats(vertex)
        if not self.records or told is None:
            return
        below = self.records[-1]
        if below.loss_nats is None and VertexId(bytes.fromhex(below.vertex_id)) in vertex.parents:
            self.records[-1] = replace(below, loss_nats=told / 1e6)
            self.loss_watch.look_back([told / 1e6])

    def merged_round(self, author: NodeId) -> int:
        """The newest round whose certified set holds an update of this author; -1 before that."""
        record = self._merged(author)
        return -1 if record is None else record.training_round

    def merged_vertex(self, author: NodeId) -> VertexId | None:
        """The vertex of that round."""
        return _vertex_of(self._merged(author))

    def merged_below(self, height: int, author: NodeId) -> VertexId | None:
        """The same when that height was the newest."""
        return _vertex_of(self._merged(author, height))

    def _merged(self, author: NodeId, height: int | None = None) -> RoundRecord | None:
        name = author.hex()
        return next(
            (
                record
                for record in reversed(self.records)
                if (height is None or record.height <= height)
                and name in record.contributors
                and name not in record.voided
            ),
            None,
        )


def _vertex_of(record: RoundRecord | None) -> VertexId | None:
    return None if record is None else VertexId(bytes.fromhex(record.vertex_id))


def _name(node_id: NodeId) -> str:
    """Its digits, one text for all rounds."""
    return sys.intern(node_id.hex())


def _record_of(
    vertex: Vertex, proof: Certificate | None, loss_nats: float | None, sent: int, wall_s: float
) -> RoundRecord:
    signers = () if proof is None else tuple(_name(signer) for signer, _ in proof.signatures)
    return RoundRecord(
        height=vertex.height,
        training_round=vertex.training_round,
        vertex_id=vertex.vertex_id.hex(),
        loss_nats=loss_nats,
        certified_by=signers,
        contributors=tuple(_name(facts.author) for facts in vertex.contributors),
        voided=tuple(_name(facts.author) for facts in vertex.contributors if not facts.weight),
        bytes_sent=sent,
        wall_s=round(wall_s, 3),
    )
