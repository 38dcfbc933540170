"""Whose fault it is decides what we do.

NodeError
 +-- PeerFault        a peer sent something wrong: refuse it, count it, lower its score
 +-- Unavailable      the world did not answer in time: retry, or ask another
 |    +-- NotHeld     everybody who could be asked does not have it: asking again changes nothing
 +-- TrainerFailed    the training worker died, hung or refused: the round goes on without us
 +-- StorageFailed    the disk is full or broken: stop voting, say so
 +-- Refused          our own signer will not sign this: it would contradict what it signed before
 +-- RuleUnbounded    an aggregation rule promises nothing for this many contributions: no round
 +-- NotFinite        a training result holds NaN or infinity: it is not sealed
 +-- UserError        the operator can mend it: one message names the thing, the place, the remedy

What is ours is an `assert` and never reachable from a peer's bytes.
"""


class NodeError(Exception):
    """Base of this package's errors."""


class PeerFault(NodeError):
    """A peer broke a rule. `reason` is a short stable word that metrics and scores count by."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(f"{reason}: {detail}" if detail else reason)
        self.reason = reason
        self.detail = detail


class Unavailable(NodeError):
    """A peer, or too few peers, could be reached in time."""


class NotHeld(Unavailable):
    """All sources answered, and none of them has it (any more)."""


class TrainerFailed(NodeError):
    """The training worker died, hung or could not carry out an order."""


class StorageFailed(NodeError):
    """The disk is full or failing; nothing that depends on the write may be sent."""


class Refused(NodeError):
    """Our signer keeps its word. `reason` is a short stable word, `detail` names both sides."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class RuleUnbounded(NodeError):
    """`m` contributions cannot hold off `f_agg` bad ones; `needs` is the bound that fails."""

    def __init__(self, rule: str, m: int, f_agg: int, needs: str) -> None:
        super().__init__(f"{rule} over m={m} contributions with f_agg={f_agg}: it needs {needs}")
        self.rule = rule
        self.m = m
        self.f_agg = f_agg


class NotFinite(NodeError):
    """A vector of floats that must not leave the node: NaN or infinity near parameter `index`."""

    def __init__(self, what: str, index: int) -> None:
        super().__init__(f"{what}: not a finite number at parameter {index}")
        self.index = index


class UserError(NodeError):
    """Shown to the operator as one message; `exit_code` 2 is usage or configuration, 1 work."""

    def __init__(self, message: str, exit_code: int = 2) -> None:
        super().__init__(message)
        self.exit_code = exit_code
