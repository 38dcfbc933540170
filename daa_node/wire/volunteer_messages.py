"""What a gateway and a volunteer's page say to each other on their one stream.

    gateway --challenge--> page --hello--> gateway --welcome--> page --ready--> gateway
    gateway --task--> page --verdict | drop--> gateway --taken--> page       beats both ways
    gateway --no--> page      the last frame

A message is one frame of canonical bytes: a list that begins with its name (docs/volunteers.md).
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from daa_consensus.votes import SIGNATURE_BYTES_MAX as SIGNATURE_BYTES
from daa_dag import canonical
from daa_dag.errors import NotCanonical
from daa_dag.ids import DIGEST_BYTES, ChainId
from daa_node.errors import PeerFault
from daa_node.wire.limits import VOLUNTEER_FRAME_BYTES_MAX

NONCE_BYTES = 32
SESSION_BYTES = TASK_ID_BYTES = 16
TASKS_AT_ONCE_MAX = 2  # one under way, and one that is computed meanwhile
NUMBER_MAX = 2**53
RESULT_ITEMS_MAX = 4096
RESULT_BYTES_MAX = 64  # of one item: a digest or a float64


class TaskKind(StrEnum):
    """What a volunteer may be asked."""

    CERTIFICATE = "certificate"
    CHUNKS = "chunks"
    DAG = "dag"
    SLICE = "slice"
    LOSS = "loss"
    GRADIENT = "gradient"
    SEGMENT = "segment"


Result = tuple[int | bytes, ...]


@dataclass(frozen=True, slots=True)
class Greeting:
    """A hello, of which nothing is believed yet but its form."""

    version: int
    chain_id: ChainId
    record: bytes
    signature: bytes


@dataclass(frozen=True, slots=True)
class Ready:
    """How many tasks the page wants at once, and of which kinds that we know."""

    count: int
    kinds: frozenset[TaskKind]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came out, signed by the volunteer's key."""

    task: bytes
    result: Result
    spent_ms: int
    signature: bytes


@dataclass(frozen=True, slots=True)
class Drop:
    """A task that is given back."""

    task: bytes


@dataclass(frozen=True, slots=True)
class Beat:
    """The page is there."""


Message = Ready | Verdict | Drop | Beat
Lifetime = tuple[int, int, int]  # verdicts taken, of these found right, of these found wrong


def encode_challenge(version: int, nonce: bytes) -> bytes:
    return canonical.encode(["challenge", version, nonce])


def encode_welcome(session: bytes, name: bytes, lifetime: Lifetime) -> bytes:
    return canonical.encode(["welcome", session, name, list(lifetime)])


def encode_task(
    task: bytes,
    kind: TaskKind,
    parameters: Sequence[canonical.Value],
    blobs: Sequence[bytes],
    deadline_ms: int,
) -> bytes:
    return canonical.encode(["task", task, str(kind), parameters, blobs, deadline_ms])


def encode_taken(task: bytes, agreed: bool | None, lifetime: Lifetime) -> bytes:
    return canonical.encode(["taken", task, agreed, list(lifetime)])


def encode_beat(number: int) -> bytes:
    return canonical.encode(["beat", number])


def encode_no(reason: str, words: str) -> bytes:
    return canonical.encode(["no", reason, words])


def decode_greeting(frame: bytes) -> Greeting:
    """Raises PeerFault "malformed"."""
    match _decoded(frame):
        case ["hello", version, bytes() as chain_id, bytes() as record, signature]:
            if len(chain_id) != DIGEST_BYTES:
                raise PeerFault("malformed", f"a chain id has {DIGEST_BYTES} bytes")
            return Greeting(
                _number(version), ChainId(chain_id), record, _sized(signature, SIGNATURE_BYTES)
            )
    raise PeerFault("malformed", "the first frame is a hello of five fields")


def decode_message(frame: bytes) -> Message:
    """Raises PeerFault "malformed"."""
    match _decoded(frame):
        case ["ready", count, list() as kinds]:
            return Ready(_number(count, TASKS_AT_ONCE_MAX), _kinds_of(kinds))
        case ["verdict", task, list() as result, spent_ms, signature]:
            return Verdict(
                _sized(task, TASK_ID_BYTES),
                _result_of(result),
                _number(spent_ms),
                _sized(signature, SIGNATURE_BYTES),
            )
        case ["drop", task]:
            return Drop(_sized(task, TASK_ID_BYTES))
        case ["beat", number]:
            _number(number)
            return Beat()
    raise PeerFault("malformed", "no message of a volunteer has this form")


def _kinds_of(kinds: list[Any]) -> frozenset[TaskKind]:
    """A page may be newer than we are, and do what we do not ask."""
    if len(kinds) > 4 * len(TaskKind) or not all(isinstance(kind, str) for kind in kinds):
        raise PeerFault("malformed", "kinds are a short list of words")
    return frozenset(kind for kind in TaskKind if kind in kinds)


def _result_of(items: list[Any]) -> Result:
    if len(items) > RESULT_ITEMS_MAX:
        raise PeerFault("malformed", f"{len(items)} items in a result")
    for item in items:
        if type(item) is int:
            _number(item)
        elif not isinstance(item, bytes) or len(item) > RESULT_BYTES_MAX:
            raise PeerFault("malformed", "a result holds whole numbers, digests and float64")
    return tuple(items)


def _decoded(frame: bytes) -> Any:
    try:
        return canonical.decode(frame, VOLUNTEER_FRAME_BYTES_MAX)
    except NotCanonical as fault:
        raise PeerFault("malformed", str(fault)) from None


def _sized(value: Any, size_bytes: int) -> bytes:
    if not isinstance(value, bytes) or len(value) != size_bytes:
        raise PeerFault("malformed", f"not {size_bytes} bytes where they are due")
    return value


def _number(value: Any, high: int = NUMBER_MAX) -> int:
    if type(value) is not int or not 0 <= value <= high:
        raise PeerFault("malformed", f"{value!r:.20} is no number from 0 to {high}")
    return value
