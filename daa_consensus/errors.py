"""What a validator can be handed that it must refuse.

ConsensusError
 +-- BadMessage       a message, block or certificate whose shape or numbers are wrong
 +-- NoQuorum         a certificate without enough distinct weight

Both are the sender's fault. What is ours is an `assert`.
"""


class ConsensusError(Exception):
    """Base of this package's errors."""


class BadMessage(ConsensusError):
    """A message, block or certificate has the wrong shape, or a number out of range."""


class NoQuorum(ConsensusError):
    """The distinct signers weigh less than a quorum."""

    def __init__(self, weight: int, quorum: int) -> None:
        super().__init__(f"weight {weight} is under the quorum of {quorum}")
        self.weight = weight
        self.quorum = quorum
