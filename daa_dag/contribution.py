"""A contribution: what its author states about one sealed update, in integers.

The contribution root is the tagged digest of this body; it binds the author and the base vertex, so
a copied update has another root and a moved one is ineligible. The body is what an Offer signs, what
a decided set lists and what a vertex remembers.
"""

from dataclasses import astuple, dataclass, fields

from daa_dag import canonical
from daa_dag.errors import Malformed
from daa_dag.ids import (
    DIGEST_BYTES,
    BlobRoot,
    ContributionRoot,
    Digest,
    NodeId,
    VertexId,
    tagged_digest,
)

CODEC_NAME_CHARS_MAX = 16
SNAPSHOT_ROOTS_MAX = 64  # one every few inner steps; a spot check needs a start near its steps
COUNT_MAX = 2**53 - 1  # what browsers' numbers carry exactly


@dataclass(frozen=True, slots=True)
class Contribution:
    """One author's sealed update for one round, as its Offer states it."""

    round: int
    author: NodeId
    base: VertexId
    blob_root: BlobRoot
    size_bytes: int
    codec: str
    steps: int
    tokens: int
    us_per_step: int
    upload_bytes_per_s: int
    base_loss_micronats: int  # the author's held-out loss of the base, nats a byte times 10^6
    snapshot_roots: tuple[Digest, ...]

    @property
    def root(self) -> ContributionRoot:
        return ContributionRoot(tagged_digest("contribution", self.as_value()))

    def as_value(self) -> list[canonical.Value]:
        return [*astuple(self)[:-1], list(self.snapshot_roots)]


_COUNTS = ("round", "size_bytes", "steps", "tokens", "us_per_step", "upload_bytes_per_s")


def contribution_from(value: canonical.Value) -> Contribution:
    """The contribution that `value` states. Raises Malformed for any other shape."""
    if not isinstance(value, list) or len(value) != len(fields(Contribution)):
        raise Malformed("a contribution is a list of twelve facts")
    names = [field.name for field in fields(Contribution)]
    facts = dict(zip(names, value, strict=True))
    for name in ("author", "base", "blob_root"):
        if not _is_digest(facts[name]):
            raise Malformed(f"contribution.{name} is not {DIGEST_BYTES} bytes")
    for name in (*_COUNTS, "base_loss_micronats"):
        if type(facts[name]) is not int or not 0 <= facts[name] <= COUNT_MAX:
            raise Malformed(f"contribution.{name} is {facts[name]!r}, want 0 to 2^53 - 1")
    codec, roots = facts["codec"], facts["snapshot_roots"]
    if not isinstance(codec, str) or not 1 <= len(codec) <= CODEC_NAME_CHARS_MAX:
        raise Malformed("contribution.codec is not a short name")
    if not isinstance(roots, list) or len(roots) > SNAPSHOT_ROOTS_MAX:
        raise Malformed(f"contribution.snapshot_roots: at most {SNAPSHOT_ROOTS_MAX}")
    if not all(_is_digest(root) for root in roots):
        raise Malformed("contribution.snapshot_roots holds something that is no digest")
    return Contribution(**{**facts, "snapshot_roots": tuple(roots)})


def _is_digest(value: object) -> bool:
    return isinstance(value, bytes) and len(value) == DIGEST_BYTES
