"""When a job is done: a pure function of the newest certified vertex, so the same on every node."""

from dataclasses import dataclass
from statistics import median_high

from daa_dag.checkpoint import Vertex


@dataclass(frozen=True, slots=True)
class EndRules:
    """Whichever comes first ends the job; None does not."""

    rounds: int | None
    tokens: int | None
    loss_micronats: int | None


def told_loss_micronats(vertex: Vertex) -> int | None:
    """The held-out loss of the vertex's base, as its contributors tell it; None if most cannot.

    The upper median: no minority of them makes it lower than somebody else measured. Zero says that
    somebody could not measure.
    """
    measured = [c.base_loss_micronats for c in vertex.contributors if c.base_loss_micronats > 0]
    return median_high(measured) if 2 * len(measured) > len(vertex.contributors) else None


def why_ended(vertex: Vertex, rules: EndRules) -> str | None:
    """Why the job is done with `vertex`, or None."""
    if rules.rounds is not None and vertex.height >= rules.rounds:
        return f"{vertex.height} rounds are done"
    if rules.tokens is not None and vertex.tokens_total >= rules.tokens:
        return f"{vertex.tokens_total} tokens are done"
    loss = told_loss_micronats(vertex)
    if loss is not None and rules.loss_micronats is not None and loss <= rules.loss_micronats:
        return f"the held-out loss fell to {loss / 1e6:.4f} nats"
    return None
