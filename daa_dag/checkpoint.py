"""A vertex of the checkpoint DAG: one certified step of the model, named by what it states.

A vertex holds only integers and roots that follow from the finalized block and its execution; its
clock is its height. Its id is the tagged digest of the canonical value: certificates lie beside it.
A vertex has no parent at height 0, one in a plain chain, and several where branches merge.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from daa_dag import canonical
from daa_dag.errors import Malformed
from daa_dag.ids import (
    DIGEST_BYTES,
    BlobRoot,
    BlockId,
    ContributionRoot,
    Digest,
    NodeId,
    ValidatorSetRoot,
    VertexId,
    tagged_digest,
)
from daa_dag.sizes import DIGEST, NUMBER, fields, items, text

ZERO_ID = bytes(DIGEST_BYTES)  # the genesis vertex's decided block and delta: there are none

PARENTS_MAX = 64  # regions merged by one global round; room for every region of a planet
CONTRIBUTORS_MAX = 4096  # peers of one decided set
RULE_NAME_CHARS_MAX = 64
COUNT_MAX = 2**63 - 1  # every count of a vertex: fits a signed 64-bit integer everywhere
# A contributor is two ids and six integers, at most 128 bytes; the same again for exclusions.
VERTEX_BYTES_MAX = 2 * CONTRIBUTORS_MAX * 128 + PARENTS_MAX * 40 + 4096


@dataclass(frozen=True, slots=True)
class Contributor:
    """One member of the decided set, with what its finalized Offer said of its speed."""

    author: NodeId
    contribution_root: ContributionRoot
    weight: int  # as applied by rules with a weighted formula
    steps: int
    tokens: int
    us_per_step: int
    upload_bytes_per_s: int
    base_loss_micronats: int  # the author's own loss on the base, before its steps; not verified

    def as_value(self) -> canonical.Value:
        return [
            self.author,
            self.contribution_root,
            self.weight,
            self.steps,
            self.tokens,
            self.us_per_step,
            self.upload_bytes_per_s,
            self.base_loss_micronats,
        ]


@dataclass(frozen=True)
class Vertex:
    """One checkpoint. Roots name blobs; `contributors` are sorted by author."""

    parents: tuple[VertexId, ...]
    height: int
    training_round: int
    decided_block: BlockId  # the set block
    contributors: tuple[Contributor, ...]
    rule: str
    f_agg: int
    delta_root: BlobRoot
    model_root: BlobRoot
    outer_state_root: BlobRoot
    ledger_root: bytes
    validator_set_root: ValidatorSetRoot
    tokens_total: int  # since genesis, this vertex included
    excluded: tuple[NodeId, ...] = ()  # who stands convicted by final evidence, sorted
    roll_root: Digest = Digest(ZERO_ID)  # of the trainers' roll above the set; zeros: nobody

    def as_value(self) -> dict[str, canonical.Value]:
        return {
            "parents": list(self.parents),
            "height": self.height,
            "training_round": self.training_round,
            "decided_block": self.decided_block,
            "contributors": [contributor.as_value() for contributor in self.contributors],
            "rule": [self.rule, self.f_agg],
            "delta_root": self.delta_root,
            "model_root": self.model_root,
            "outer_state_root": self.outer_state_root,
            "ledger_root": self.ledger_root,
            "validator_set_root": self.validator_set_root,
            "roll_root": self.roll_root,
            "metadata": {"tokens_total": self.tokens_total, "excluded": list(self.excluded)},
        }

    def encode(self) -> bytes:
        """The canonical bytes, as stored and sent."""
        return canonical.encode(self.as_value())

    @cached_property
    def vertex_id(self) -> VertexId:
        """What names the vertex: the tagged digest of its value, certificates aside."""
        return VertexId(tagged_digest("vertex", self.as_value()))


def result_root(model_root: BlobRoot, outer_root: BlobRoot, delta_root: BlobRoot) -> Digest:
    """What an execution statement vouches for, besides the vertex."""
    return Digest(tagged_digest("result", [model_root, outer_root, delta_root]))


def decode_vertex(payload: bytes) -> Vertex:
    """The vertex of these bytes. Raises Malformed or NotCanonical; nothing else for any bytes."""
    value = canonical.decode(payload, VERTEX_BYTES_MAX)
    if not isinstance(value, dict) or set(value) != _FIELDS:
        raise Malformed(f"a vertex has the fields {', '.join(sorted(_FIELDS))}")
    match value["rule"], value["metadata"]:
        case [str() as rule, f_agg], {"tokens_total": tokens_total, "excluded": excluded, **rest}:
            if rest or not 1 <= len(rule) <= RULE_NAME_CHARS_MAX:
                raise Malformed("a vertex's rule or metadata is out of shape")
        case _:
            raise Malformed("a vertex's rule or metadata is out of shape")
    vertex = Vertex(
        parents=tuple(VertexId(p) for p in _ids(value["parents"], "parents", PARENTS_MAX)),
        height=_count(value["height"], "height"),
        training_round=_count(value["training_round"], "training_round"),
        decided_block=BlockId(_id(value["decided_block"], "decided_block")),
        contributors=_contributors(value["contributors"]),
        rule=rule,
        f_agg=_count(f_agg, "f_agg"),
        delta_root=BlobRoot(_id(value["delta_root"], "delta_root")),
        model_root=BlobRoot(_id(value["model_root"], "model_root")),
        outer_state_root=BlobRoot(_id(value["outer_state_root"], "outer_state_root")),
        ledger_root=_id(value["ledger_root"], "ledger_root"),
        validator_set_root=ValidatorSetRoot(_id(value["validator_set_root"], "validator_set_root")),
        tokens_total=_count(tokens_total, "tokens_total"),
        excluded=tuple(NodeId(n) for n in _ids(excluded, "excluded", CONTRIBUTORS_MAX)),
        roll_root=Digest(_id(value["roll_root"], "roll_root")),
    )
    _check_order(vertex)
    return vertex


_FIELDS = frozenset(
    {
        "parents",
        "height",
        "training_round",
        "decided_block",
        "contributors",
        "rule",
        "delta_root",
        "model_root",
        "outer_state_root",
        "ledger_root",
        "validator_set_root",
        "roll_root",
        "metadata",
    }
)


def vertex_bytes_max(contributors: int, excluded: int) -> int:
    """The largest vertex of one parent with so many of both; a rule's name has sixteen messages."""
    contributor = fields(DIGEST, DIGEST, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, NUMBER)
    metadata = (
        1 + text(len("tokens_total")) + NUMBER + text(len("excluded")) + items(excluded, DIGEST)
    )
    roots_and_counts = items(1, DIGEST) + 7 * DIGEST + 2 * NUMBER + fields(text(16), NUMBER)
    names = sum(text(len(name)) for name in _FIELDS)
    return 1 + names + roots_and_counts + items(contributors, contributor) + metadata


def _check_order(vertex: Vertex) -> None:
    if (vertex.height == 0) != (not vertex.parents):
        raise Malformed(f"height {vertex.height} with {len(vertex.parents)} parents")
    authors = [contributor.author for contributor in vertex.contributors]
    for what, ids in (("contributors", authors), ("excluded", list(vertex.excluded))):
        if any(a >= b for a, b in zip(ids, ids[1:], strict=False)):
            raise Malformed(f"{what} are not distinct and sorted")
    if len(set(vertex.parents)) != len(vertex.parents):
        raise Malformed("a parent is named twice")


def _contributors(value: Any) -> tuple[Contributor, ...]:
    if not isinstance(value, list) or len(value) > CONTRIBUTORS_MAX:
        raise Malformed(f"contributors are a list of at most {CONTRIBUTORS_MAX}")
    found = []
    for item in value:
        match item:
            case [author, root, *counts] if len(counts) == 6:
                numbers = [_count(count, "a contributor's count") for count in counts]
                found.append(
                    Contributor(
                        NodeId(_id(author, "author")),
                        ContributionRoot(_id(root, "contribution root")),
                        *numbers,
                    )
                )
            case _:
                raise Malformed("a contributor is two ids and six counts")
    return tuple(found)


def _ids(value: Any, what: str, count_max: int) -> Sequence[bytes]:
    if not isinstance(value, list) or len(value) > count_max:
        raise Malformed(f"{what} is a list of at most {count_max} ids")
    return [_id(item, what) for item in value]


def _id(value: Any, what: str) -> bytes:
    if not isinstance(value, bytes) or len(value) != DIGEST_BYTES:
        raise Malformed(f"{what} is not {DIGEST_BYTES} bytes")
    return value


def _count(value: Any, what: str) -> int:
    if type(value) is not int or not 0 <= value <= COUNT_MAX:
        raise Malformed(f"{what} is {value!r}, not a count up to {COUNT_MAX}")
    return value
