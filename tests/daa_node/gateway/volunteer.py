"""A volunteer without a browser: it speaks a gateway's protocol as a page does, over any stream.

What it answers is given to it, so that it may be honest or lie.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import trio

from daa_dag import canonical
from daa_dag.ids import ChainId, NodeId, node_id_of
from daa_node.gateway.piece import Piece
from daa_node.identity.keys import NodeKeys
from daa_node.identity.volunteer import (
    HELLO_CONTEXT,
    RECORD_LIFETIME_S,
    VERDICT_CONTEXT,
    VolunteerRecord,
    hello_bytes,
    verdict_bytes,
)
from daa_node.seams import ByteStream
from daa_node.wire.framing import MessageReader, write_message
from daa_node.wire.limits import TASK_BYTES_MAX
from daa_node.wire.protocols import PROTOCOL_VERSION
from daa_node.wire.volunteer_messages import TaskKind

BEAT_S = 10.0
KINDS = tuple(sorted(TaskKind))
Given = Sequence[Any]  # task, kind, parameters, blobs, deadline
Answer = Callable[[TaskKind, Sequence[Any], Sequence[bytes]], Sequence[int | bytes]]


def honest(
    kind: TaskKind, parameters: Sequence[Any], blobs: Sequence[bytes]
) -> Sequence[int | bytes]:
    """What the task's result is."""
    return Piece(kind, {}, parameters, blobs).truth()


@dataclass(slots=True)
class Volunteer:
    """One page. `attend` speaks on a stream until that ends."""

    keys: NodeKeys
    chain_id: ChainId
    gateway: NodeId
    now_s: Callable[[], int]  # Unix time
    answer: Answer = honest
    kinds: tuple[str, ...] = KINDS
    count: int = 1
    pause_s: float = 0.0  # what computing takes
    session: bytes = b""
    lifetime: tuple[int, ...] = ()
    judged: list[bool | None] = field(default_factory=list)  # of verdicts, as they were told
    done: list[TaskKind] = field(default_factory=list)
    refused: tuple[str, str] | None = None  # why the gateway has ended it
    welcomed: trio.Event = field(default_factory=trio.Event)

    @property
    def name(self) -> NodeId:
        return node_id_of(self.keys.ml_dsa_public_key)

    async def attend(self, stream: ByteStream) -> None:
        """From the challenge to the end; `refused` tells why the gateway ended it."""
        reader = MessageReader(stream, TASK_BYTES_MAX)
        challenge = await _heard(reader)
        if challenge is None or challenge[0] == "no":
            self._end(challenge)
            return
        await write_message(stream, self.hello(challenge[2]))
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._beat, stream)
            while message := await _heard(reader):
                if message[0] == "no":
                    self._end(message)
                    break
                await self._on(message, stream)
            nursery.cancel_scope.cancel()

    def record(self, **changed: Any) -> bytes:
        """As a page of now signs it."""
        now_s = self.now_s()
        fields: dict[str, Any] = {
            "chain_id": self.chain_id,
            "public_key": self.keys.ml_dsa_public_key,
            "peer_id": self.keys.peer_id,
            "sequence": 1,
            "issued_s": now_s,
            "expires_s": now_s + RECORD_LIFETIME_S,
            "kinds": self.kinds,
            "words": "simulated",
        }
        return VolunteerRecord(**{**fields, **changed}).encode()

    def hello(self, nonce: bytes, record: bytes | None = None) -> bytes:
        """The answer to a challenge."""
        record = record or self.record()
        signature = self.keys.sign(hello_bytes(self.gateway, nonce, record), HELLO_CONTEXT)
        return canonical.encode(["hello", PROTOCOL_VERSION, self.chain_id, record, signature])

    def ready(self) -> bytes:
        return canonical.encode(["ready", self.count, list(self.kinds)])

    def verdict(self, task: bytes, kind: TaskKind, result: Sequence[int | bytes]) -> bytes:
        """Signed for this session."""
        signed = verdict_bytes(self.chain_id, self.gateway, self.session, task, kind, list(result))
        signature = self.keys.sign(signed, VERDICT_CONTEXT)
        return canonical.encode(["verdict", task, list(result), 7, signature])

    async def _on(self, message: Sequence[Any], stream: ByteStream) -> None:
        match message:
            case ["welcome", session, _, lifetime]:
                self.session, self.lifetime = session, tuple(lifetime)
                self.welcomed.set()
                await write_message(stream, self.ready())
            case ["task", task, kind, parameters, blobs, _]:
                await trio.sleep(self.pause_s)
                known = TaskKind(kind)
                result = self.answer(known, parameters, blobs)
                self.done.append(known)
                await write_message(stream, self.verdict(task, known, result))
            case ["taken", _, is_right, lifetime]:
                self.judged.append(is_right)
                self.lifetime = tuple(lifetime)

    async def _beat(self, stream: ByteStream) -> None:
        for number in range(2**53):
            await trio.sleep(BEAT_S)
            await write_message(stream, canonical.encode(["beat", number]))

    def _end(self, message: Sequence[Any] | None) -> None:
        if message is not None:
            self.refused = (message[1], message[2])


async def _heard(reader: MessageReader) -> Sequence[Any] | None:
    frame = await reader.next()
    return None if frame is None else canonical.decode(frame, TASK_BYTES_MAX)
