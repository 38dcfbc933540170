"""A volunteer without a browser: it speaks a gateway's protocol as a page does, over any stream.

    challenge -> hello -> welcome -> ready -> task -> verdict -> taken        beats all the time

What it answers, and what else it says, is given to it, so that it may be honest or lie
(docs/volunteers.md).
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
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
from daa_node.network.pace import Pace
from daa_node.seams import ByteStream
from daa_node.wire.framing import MessageReader, write_message
from daa_node.wire.limits import LENGTH_PREFIX_BYTES, TASK_BYTES_MAX
from daa_node.wire.protocols import PROTOCOL_VERSION
from daa_node.wire.volunteer_messages import TaskKind

BEAT_S = 10.0
FRAMES_PER_S, FRAMES_BURST = 3.0, 16.0  # as a page keeps to; a gateway takes 4 and 32
KINDS = tuple(sorted(TaskKind))
Result = Sequence[int | bytes]
Answer = Callable[[bytes, TaskKind, Sequence[Any], Sequence[bytes]], Result]


def honest(
    _task: bytes, kind: TaskKind, parameters: Sequence[Any], blobs: Sequence[bytes]
) -> Result:
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
    pause_s: Callable[[], float] = lambda: 0.0  # what computing takes
    frames_each: int = 1  # how often it says each verdict
    opening: bytes = b""  # what it writes after its welcome, in the place of everything else
    leaves_with: int | None = None  # so many tasks, it goes without a word
    tasks: int = 0  # that it got in this session
    session: bytes = b""
    lifetime: tuple[int, ...] = ()
    judged: Counter[bool | None] = field(default_factory=Counter)  # of verdicts, as it was told
    right: list[bytes] = field(default_factory=list)  # tasks of which it was told that
    done: list[TaskKind] = field(default_factory=list)
    refused: tuple[str, str] | None = None  # why the gateway has ended it
    welcomed: trio.Event = field(default_factory=trio.Event)
    pace: Pace = field(default_factory=lambda: Pace(FRAMES_PER_S, FRAMES_BURST))

    @property
    def name(self) -> NodeId:
        return node_id_of(self.keys.ml_dsa_public_key)

    @property
    def has_left(self) -> bool:
        return self.welcomed.is_set() and self.tasks == self.leaves_with

    async def attend(self, stream: ByteStream) -> None:
        """From the challenge to the end; `refused` tells why the gateway ended it.

        Raises trio.BrokenResourceError, or PeerFault, where the stream breaks.
        """
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
                if not await self._goes_on(message, stream):
                    break
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

    def verdict(self, task: bytes, kind: TaskKind, result: Result) -> bytes:
        """Signed for this session."""
        signed = verdict_bytes(self.chain_id, self.gateway, self.session, task, kind, list(result))
        signature = self.keys.sign(signed, VERDICT_CONTEXT)
        return canonical.encode(["verdict", task, list(result), 7, signature])

    async def _goes_on(self, message: Sequence[Any], stream: ByteStream) -> bool:
        match message:
            case ["welcome", session, _, lifetime]:
                self.session, self.lifetime = session, tuple(lifetime)
                self.welcomed.set()
                opening = self.opening or _framed(self.ready())
                await self._say(stream, opening)
                return not self.has_left
            case ["task", task, kind, parameters, blobs, _]:
                self.tasks += 1
                if self.has_left:
                    return False
                await trio.sleep(self.pause_s())
                known = TaskKind(kind)
                result = self.answer(task, known, parameters, blobs)
                self.done.append(known)
                if self.frames_each:
                    frame = _framed(self.verdict(task, known, result))
                    await self._say(stream, frame * self.frames_each)
            case ["taken", task, is_right, lifetime]:
                self.judged[is_right] += 1
                if is_right:
                    self.right.append(task)
                self.lifetime = tuple(lifetime)
        return True

    async def _beat(self, stream: ByteStream) -> None:
        for number in range(2**53):
            await trio.sleep(BEAT_S)
            await self._say(stream, _framed(canonical.encode(["beat", number])))

    async def _say(self, stream: ByteStream, frames: bytes) -> None:
        """If the gateway still listens: where it does not, it may have said why.

        What is too much for a second waits, as a page has it wait; `opening` is said at once.
        """
        await self.pace.take()
        with suppress(trio.BrokenResourceError):
            await stream.send_all(frames)

    def _end(self, message: Sequence[Any] | None) -> None:
        if message is not None:
            self.refused = (message[1], message[2])


def _framed(payload: bytes) -> bytes:
    return len(payload).to_bytes(LENGTH_PREFIX_BYTES) + payload


async def _heard(reader: MessageReader) -> Sequence[Any] | None:
    frame = await reader.next()
    return None if frame is None else canonical.decode(frame, TASK_BYTES_MAX)
