"""What makes a run repeatable: named streams of chance, keys from the seed, a hash of the trace.

Everything random in a simulated world is drawn from a stream with a name, so that one more draw for
one purpose changes nothing for another. The trace hash covers every event that is noted, in order:
two runs of one seed that differ anywhere differ in it.
"""

import json
import random
from typing import IO, Any

import msgpack
from blake3 import blake3

# What a trace calls things, so that one report reads every fidelity. Each event has `node` unless
# it says otherwise; nodes are numbers.
VIEW = "view"  # entered: `view`
VOTE = "vote"  # signed: `kind`, `view`
FINAL = "final"  # a block: `height`, `view`, `payload` (set, result, abort, empty)
ROUND = "round"  # published: `height`, `vertex`, `loss_nats` (or None), `contributors`
MEMBERS = "members"  # an epoch began: `epoch`, `validators`, `stake`, `changes`, `dropped`
FAULT = "fault"  # `kind`, `begins`, `nodes`, `detail`; no `node`
DOWN = "down"  # the process is gone
UP = "up"  # and back
LIAR = "liar"  # a node that lies, from the start: `kind`
BROKEN = "broken"  # an invariant: `name`, `detail`; no `node`

SEED_BYTES = 32
# One of each for all: making one takes longest.
_as_line = json.JSONEncoder(separators=(",", ":")).encode
_packed = msgpack.Packer().pack
HASHED_BYTES = 1 << 16  # at a time: a short event for itself takes longer to hash than to note
TRACE_LINES_MAX = 2_000_000  # of one run's file: about 200 MB; the hash covers the rest as well


class Streams:
    """All chance of one run. Streams of different names are independent of each other."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def bytes(self, name: str, size: int = SEED_BYTES) -> bytes:
        """The same bytes for the same seed and name: keys, roots, payloads."""
        return blake3(f"daa/v1/simnet/{self.seed}/{name}".encode()).digest(length=size)

    def random(self, name: str) -> random.Random:
        """A generator of its own for `name`; asking again starts it anew."""
        return random.Random(int.from_bytes(self.bytes(name)))

    def below(self, name: str) -> "Streams":
        """Streams of a part of the world, a node say."""
        return Streams(self.number(name))

    def number(self, name: str) -> int:
        """A seed for `name`."""
        return int.from_bytes(self.bytes(name, 8))


class Trace:
    """Events of a run in the order in which they happened, hashed, and written if asked to.

    A write that fails is the last one, and the run goes on: what notes an event is often a node's
    own code, which would take the fault of our disk for one of its own.
    """

    def __init__(self, file: IO[str] | None = None) -> None:
        """`file` takes a JSON line an event: `t_ns`, `what` and the event's own fields."""
        self._hash = blake3()
        self._unhashed = bytearray()
        self._file = file
        self._unwritten: OSError | None = None
        self.events = 0

    def note(self, now_ns: int, what: str, **fields: Any) -> None:
        """`fields` hold numbers, texts, booleans and lists of them."""
        self.events += 1
        self._take_in(_packed([now_ns, what, fields]))
        if self._file is not None and self.events <= TRACE_LINES_MAX:
            try:
                self._file.write(_as_line({"t_ns": now_ns, "what": what, **fields}) + "\n")
            except OSError as failure:
                self._file, self._unwritten = None, failure

    def check_written(self) -> None:
        """Raises the OSError of a write that failed, now or before."""
        if self._unwritten is not None:
            raise self._unwritten
        if self._file is not None:
            self._file.flush()

    def frame(self, now_ns: int, sender: int, receiver: int, payload: bytes) -> None:
        """A message on a simulated wire, without what is random in it."""
        self.events += 1
        self._take_in(b"%d %d %d %d %b" % (now_ns, sender, receiver, len(payload), payload))

    def frames(self, batch: bytes, count: int) -> None:
        """`count` messages at once, encoded by a world that cannot afford a call for each."""
        self.events += count
        self._take_in(batch)

    def _take_in(self, told: bytes) -> None:
        self._unhashed += told
        if len(self._unhashed) >= HASHED_BYTES:
            self._hash.update(self._unhashed)
            self._unhashed.clear()

    def digest(self) -> str:
        self._hash.update(self._unhashed)
        self._unhashed.clear()
        return self._hash.hexdigest(length=16)
