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


def why_ended(vertex: Vertex, rules: EndRules) -> str | None:
    """Why the job is done with `vertex`, or None.

    The loss is what the contributors of the newest set measured of its base, the upper median of
    it: no minority of them can end a job early. Zero says that somebody could not measure.
    """
    if rules.rounds is not None and vertex.height >= rules.rounds:
        return f"{vertex.height} rounds are done"
    if rules.tokens is not None and vertex.tokens_total >= rules.tokens:
        return f"{vertex.tokens_total} tokens are done"
    measured = [c.base_loss_micronats for c in vertex.contributors if c.base_loss_micronats > 0]
    if rules.loss_micronats is not None and 2 * len(measured) > len(vertex.contributors):
        loss = median_high(measured)
        if loss <= rules.loss_micronats:
            return f"the held-out loss fell to {loss / 1e6:.4f} nats"
    return None
