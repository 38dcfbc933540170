"""No two kinds of things ever share an id."""

from hypothesis import given
from hypothesis import strategies as st

from daa_dag import canonical
from daa_dag.ids import digest_of, node_id_of, numbered_digests, tagged_digest

words = st.text(max_size=10)


@given(words, words, st.binary(max_size=20))
def test_the_kind_is_part_of_the_id(one: str, other: str, value: bytes) -> None:
    assert (tagged_digest(one, value) == tagged_digest(other, value)) == (one == other)


def test_a_node_id_is_no_plain_digest_of_its_key() -> None:
    assert bytes(node_id_of(b"key")) != bytes(digest_of(b"key"))
    assert bytes(node_id_of(b"key")) == bytes(digest_of(b"daa/v1/nodekey"))


def test_numbered_digests_are_those_of_values_that_end_in_the_number() -> None:
    fields: list[canonical.Value] = [b"seed" * 8, 2**40, "text"]
    one_by_one = [tagged_digest("kind", [*fields, number]) for number in range(128)]
    assert numbered_digests("kind", fields, 128) == one_by_one
    assert numbered_digests("kind", fields, 3) == one_by_one[:3]
