"""One value, one encoding: what decodes is what encodes, bit for bit, and nothing else decodes."""

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from daa_dag import canonical
from daa_dag.errors import NotCanonical

SIZE_MAX = 1 << 20

leaves = (
    st.none()
    | st.booleans()
    | st.integers(canonical.INT_MIN, canonical.INT_MAX)
    | st.binary(max_size=300)
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=20) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=30,
)


@given(values)
def test_every_value_comes_back_from_its_bytes(value: Any) -> None:
    assert canonical.decode(canonical.encode(value), SIZE_MAX) == value


@given(st.dictionaries(st.text(max_size=8), leaves, min_size=2))
def test_the_order_of_keys_makes_no_difference(value: dict[str, Any]) -> None:
    backwards = dict(reversed(value.items()))
    assert canonical.encode(backwards) == canonical.encode(value)


@given(st.binary(max_size=200))
def test_bytes_that_decode_are_the_one_encoding_and_others_are_refused(payload: bytes) -> None:
    try:
        value = canonical.decode(payload, SIZE_MAX)
    except NotCanonical:
        return
    assert canonical.encode(value) == payload


@given(values, st.data())
def test_no_second_encoding_of_a_value_is_accepted(value: Any, data: st.DataObject) -> None:
    payload = canonical.encode(value)
    at = data.draw(st.integers(0, len(payload) - 1))
    changed = payload[:at] + bytes([payload[at] ^ data.draw(st.integers(1, 255))])
    changed += payload[at + 1 :]
    try:
        other = canonical.decode(changed, SIZE_MAX)
    except NotCanonical:
        return
    assert canonical.encode(other) == changed != payload


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"\xcc\x05",  # 5 in two bytes
        b"\xcd\x00\xff",
        b"\xd9\x01a",  # a short string in its long form
        b"\xc5\x00\x01x",
        b"\xdc\x00\x01\x01",  # a list of one in its long form
        b"\x82\xa1b\x01\xa1a\x02",  # keys out of order
        b"\x82\xa1a\x01\xa1a\x02",  # a key twice
        b"\x81\x01\x02",  # a key that is no string
        b"\xca\x3f\x80\x00\x00",  # a float
        b"\xd4\x01\x00",  # an extension
        b"\xd6\xff\x00\x00\x00\x00",  # a timestamp
        b"\xa1\xff",  # a string that is no UTF-8
        b"\x01\x02",  # something after the value
        b"\x91",  # a list cut short
        b"\xdd\xff\xff\xff\xff",  # four billion items, none there
        b"\xc1",
    ],
)
def test_other_forms_are_refused(payload: bytes) -> None:
    with pytest.raises(NotCanonical):
        canonical.decode(payload, SIZE_MAX)


@pytest.mark.parametrize(
    "value", [1.0, {1: 2}, {"a": {2}}, 2**64, -(2**63) - 1, "\ud800", object()]
)
def test_what_has_no_encoding_is_refused_wherever_it_stands(value: Any) -> None:
    for whole in (value, [value], {"a": value}):
        with pytest.raises(NotCanonical):
            canonical.encode(whole)


def test_depth_and_size_are_bounded() -> None:
    deep: Any = 0
    for _ in range(canonical.DEPTH_MAX):
        deep = [deep]
    assert canonical.decode(canonical.encode(deep), SIZE_MAX) == deep
    with pytest.raises(NotCanonical, match="deeper"):
        canonical.encode([deep])
    for levels in (canonical.DEPTH_MAX + 1, 1000, 100_000):
        with pytest.raises(NotCanonical):
            canonical.decode(b"\x91" * levels + b"\x00", SIZE_MAX)
    payload = canonical.encode(b"x" * 100)
    assert canonical.decode(payload, len(payload)) == b"x" * 100
    with pytest.raises(NotCanonical, match="at most"):
        canonical.decode(payload, len(payload) - 1)


@given(values)
def test_the_encoding_is_plain_msgpack(value: Any) -> None:
    assert msgpack.unpackb(canonical.encode(value), raw=False) == value
