"""Names of the protocols that nodes speak to each other, and the one version number they share.

A protocol's name carries its own major version: a change that an old node would misread gets a new
name. PROTOCOL_VERSION counts what hello compares before anything else is spoken.
"""

from dataclasses import dataclass

from daa_consensus.committee import VERSION_MAX
from daa_consensus.protocol_words import SPOKEN

HELLO = "/daa/1/hello"  # both sides at once: who are you, and which chain
VOTES = "/daa/1/votes"  # long-lived, one way: length-prefixed signed statements
REQUEST = "/daa/1/request"  # one request, one response a stream
VOLUNTEER = "/daa/2/volunteer"  # a browser's one stream, see volunteer_messages
BULK = "/daa/2/bulk"  # a bulk session's handshake, then frames if no socket can be dialled
RELAY = "/daa/1/relay"  # a reservation, or a circuit to who has one; see relay_messages
RELAYED = "/daa/1/relayed"  # from a relay: the other end of a circuit
PUNCH = "/daa/1/punch"  # from a circuit to a connection without a relay; see punch_messages

PROTOCOL_VERSION = SPOKEN[-1]
# The oldest version that we still understand. Raised when a message of it can no longer be served.
PROTOCOL_VERSION_MIN = SPOKEN[0]


@dataclass(frozen=True, slots=True)
class Versions:
    """What one program speaks: all versions from the least to the most."""

    least: int
    most: int

    def __str__(self) -> str:
        return f"{self.least} to {self.most}"

    @property
    def numbers(self) -> range:
        return range(self.least, self.most + 1)

    @property
    def is_range(self) -> bool:
        return 0 <= self.least <= self.most <= VERSION_MAX

    def meet(self, theirs: "Versions") -> bool:
        """Whether there is one that both speak, so that each understands the other's messages."""
        return theirs.most >= self.least and theirs.least <= self.most


OURS = Versions(PROTOCOL_VERSION_MIN, PROTOCOL_VERSION)
