"""A vertex has one encoding and one id; whatever else claims to be one is refused."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daa_dag import canonical
from daa_dag.checkpoint import (
    COUNT_MAX,
    VERTEX_BYTES_MAX,
    ZERO_ID,
    Contributor,
    Vertex,
    decode_vertex,
    result_root,
)
from daa_dag.errors import DagError, Malformed
from daa_dag.ids import (
    BlobRoot,
    BlockId,
    ContributionRoot,
    NodeId,
    ValidatorSetRoot,
    VertexId,
    digest_of,
    tagged_digest,
)

ids = st.binary(min_size=32, max_size=32)
counts = st.integers(0, COUNT_MAX)
contributors = st.lists(
    st.builds(
        Contributor,
        author=ids.map(NodeId),
        contribution_root=ids.map(ContributionRoot),
        weight=counts,
        steps=counts,
        tokens=counts,
        us_per_step=counts,
        upload_bytes_per_s=counts,
        base_loss_micronats=counts,
    ),
    max_size=5,
    unique_by=lambda contributor: contributor.author,
).map(lambda found: tuple(sorted(found, key=lambda contributor: contributor.author)))
vertices = st.builds(
    Vertex,
    parents=st.lists(ids.map(VertexId), min_size=1, max_size=4, unique=True).map(tuple),
    height=st.integers(1, COUNT_MAX),
    training_round=counts,
    decided_block=ids.map(BlockId),
    contributors=contributors,
    rule=st.text("abc_", min_size=1, max_size=64),
    f_agg=counts,
    delta_root=ids.map(BlobRoot),
    model_root=ids.map(BlobRoot),
    outer_state_root=ids.map(BlobRoot),
    ledger_root=ids,
    validator_set_root=ids.map(ValidatorSetRoot),
    tokens_total=counts,
    excluded=st.lists(ids.map(NodeId), max_size=4, unique=True).map(lambda i: tuple(sorted(i))),
)


def plain_vertex() -> Vertex:
    authors = sorted(bytes(digest_of(bytes([i]))) for i in range(3))
    members = tuple(
        Contributor(NodeId(author), ContributionRoot(author), 5, 4, 3, 2, 1, 0)
        for author in authors
    )
    return Vertex(
        parents=(VertexId(b"p" * 32),),
        height=7,
        training_round=9,
        decided_block=BlockId(b"b" * 32),
        contributors=members,
        rule="trimmed_mean",
        f_agg=1,
        delta_root=BlobRoot(b"d" * 32),
        model_root=BlobRoot(b"m" * 32),
        outer_state_root=BlobRoot(b"o" * 32),
        ledger_root=b"l" * 32,
        validator_set_root=ValidatorSetRoot(b"v" * 32),
        tokens_total=12,
    )


@given(vertices)
def test_every_vertex_comes_back_from_its_bytes(vertex: Vertex) -> None:
    again = decode_vertex(vertex.encode())
    assert again == vertex
    assert again.vertex_id == vertex.vertex_id == tagged_digest("vertex", vertex.as_value())


@given(vertices, st.data())
def test_a_changed_byte_makes_another_vertex_or_none(vertex: Vertex, data: st.DataObject) -> None:
    payload = bytearray(vertex.encode())
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] ^= data.draw(st.integers(1, 255))
    try:
        other = decode_vertex(bytes(payload))
    except DagError:
        return
    assert other.vertex_id != vertex.vertex_id


@given(st.binary(max_size=400))
def test_any_bytes_are_a_vertex_or_refused(payload: bytes) -> None:
    with pytest.raises(DagError):
        decode_vertex(payload)


@given(
    st.sampled_from(sorted(plain_vertex().as_value())),
    st.none() | st.booleans() | st.integers() | st.binary() | st.text() | st.lists(st.integers()),
)
def test_a_field_of_another_type_is_refused_or_reads_back(field: str, junk: Any) -> None:
    value = {**plain_vertex().as_value(), field: junk}
    try:
        payload = canonical.encode(value)
        vertex = decode_vertex(payload)
    except DagError:
        return
    assert vertex.encode() == payload


def replaced(**fields: Any) -> bytes:
    return canonical.encode({**plain_vertex().as_value(), **fields})


@pytest.mark.parametrize(
    "payload",
    [
        replaced(height=0),  # with a parent
        replaced(parents=[]),  # above height 0
        replaced(parents=[b"p" * 32, b"p" * 32]),
        replaced(parents=[b"p" * 31]),
        replaced(parents=[bytes([i]) * 32 for i in range(65)]),
        replaced(height=-1),
        replaced(height=True),
        replaced(height=2**63),
        replaced(contributors=[[b"a" * 32, b"r" * 32, 1, 1, 1, 1, 1]]),
        replaced(contributors=[[b"a" * 32, b"r" * 32, 1, 1, 1, 1, 1, -1]]),
        replaced(contributors=[[b"a" * 32, b"r" * 32, 1, 1, 1, 1, 1, 1]] * 2),
        replaced(contributors=[[x * 32, b"r" * 32, 1, 1, 1, 1, 1, 1] for x in (b"b", b"a")]),
        replaced(rule=["", 1]),
        replaced(rule=["x" * 65, 1]),
        replaced(rule=["mean"]),
        replaced(metadata={"tokens_total": 1}),
        replaced(metadata={"tokens_total": 1, "excluded": [], "loss": 2}),
        replaced(metadata={"tokens_total": 1, "excluded": [b"b" * 32, b"a" * 32]}),
        replaced(extra=1),
        canonical.encode([]),
        canonical.encode({}),
    ],
)
def test_other_shapes_are_no_vertex(payload: bytes) -> None:
    with pytest.raises(Malformed):
        decode_vertex(payload)


def test_the_genesis_vertex_has_no_parent() -> None:
    first = replace(plain_vertex(), parents=(), height=0, delta_root=BlobRoot(ZERO_ID))
    assert decode_vertex(first.encode()) == first


def test_a_vertex_of_the_most_contributors_fits_its_limit() -> None:
    member = plain_vertex().contributors[0]
    crowd = tuple(
        replace(
            member,
            author=NodeId(number.to_bytes(32)),
            tokens=COUNT_MAX,
            weight=COUNT_MAX,
            steps=COUNT_MAX,
            us_per_step=COUNT_MAX,
            upload_bytes_per_s=COUNT_MAX,
            base_loss_micronats=COUNT_MAX,
        )
        for number in range(4096)
    )
    payload = replace(plain_vertex(), contributors=crowd).encode()
    assert len(payload) <= VERTEX_BYTES_MAX
    assert len(decode_vertex(payload).contributors) == 4096
    too_many = (*crowd, replace(member, author=NodeId(b"\xff" * 32)))
    with pytest.raises(DagError):
        decode_vertex(replace(plain_vertex(), contributors=too_many).encode())


def test_a_result_root_covers_all_three_roots_in_their_places() -> None:
    one, two, three = (BlobRoot(bytes([i]) * 32) for i in range(3))
    roots = {
        result_root(one, two, three),
        result_root(two, one, three),
        result_root(one, three, two),
    }
    assert len(roots) == 3
