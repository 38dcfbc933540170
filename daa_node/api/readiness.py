"""Whether a node takes part in the network now, and if not, the one thing that is in its way."""

from dataclasses import dataclass

# `JobRunner.phase` -> why nothing is trained or voted for in it
_BEFORE_ROUNDS = {
    "starting": "starting: the first state is being made or fetched",
    "restoring": "restoring the newest state from disk",
    "catching_up": "catching up with the chain of the others",
}


@dataclass(frozen=True, slots=True)
class Condition:
    """Of one node, at one moment."""

    phase: str
    is_draining: bool
    quarantine: str | None  # why its votes are not to be trusted yet
    waiting: str | None  # for what, if it waits
    has_trainer: bool  # whether the worker process lives

    def why_not_ready(self) -> str | None:
        """In words; None if it is. A node whose job is done is: it serves others."""
        if self.is_draining:
            return "draining: this node is about to stop"
        if self.quarantine is not None:
            return f"in quarantine: {self.quarantine}"
        if self.phase in _BEFORE_ROUNDS:
            return _BEFORE_ROUNDS[self.phase]
        if self.waiting is not None:
            return f"waiting: {self.waiting}"
        if not self.has_trainer:
            return "the worker process does not run: see `daa-node logs`"
        return None
