"""One value, one encoding: a strict subset of msgpack for everything that is hashed or signed.

Values: None, bool, int (64 bit), bytes, str, lists, and dicts with string keys in sorted order.
No floats (they differ between machines) and no extension types. `decode` accepts exactly the bytes
that `encode` makes; anything else raises NotCanonical.
"""

from collections.abc import Mapping, Sequence, Sized
from enum import Enum
from typing import Any, TypeAlias

import msgpack

from daa_dag.errors import NotCanonical

Value: TypeAlias = "None | bool | int | bytes | str | Sequence[Value] | Mapping[str, Value]"

DEPTH_MAX = 16  # a genesis nests six deep; room to grow, far from the recursion limit
INT_MIN, INT_MAX = -(2**63), 2**64 - 1  # what msgpack takes
_LISTS = (list, tuple)  # as `list | tuple`, which would be made anew for every value
# What msgpack packs as it is, or refuses: most of what is ever encoded, looked at without a call.
# The types of enums whose members are texts or numbers come to it when they are first seen.
_PLAIN: set[type] = {bytes, int, str, bool, type(None)}
_PACKER = msgpack.Packer(use_bin_type=True)  # one for all: a new one begins with 256 KiB of memory


def encode(value: Value) -> bytes:
    """The canonical bytes of `value`. Raises NotCanonical for what has no encoding."""
    try:
        packed: bytes = _PACKER.pack(_ready(value, 0))
    except OverflowError:
        raise NotCanonical("an integer does not fit 64 bits") from None
    except UnicodeEncodeError as fault:
        raise NotCanonical(f"string is not UTF-8: {fault}") from None
    return packed


def decode(payload: bytes | bytearray | memoryview, size_bytes_max: int) -> Any:
    """The value whose encoding is `payload`; lists come back as lists.

    Raises NotCanonical when the payload is longer than `size_bytes_max` or not canonical.
    """
    payload = bytes(payload)
    if len(payload) > size_bytes_max:
        raise NotCanonical(f"{len(payload)} bytes, at most {size_bytes_max} allowed")
    try:
        value = msgpack.unpackb(payload, raw=False, strict_map_key=True, use_list=True)
        again = encode(value)
    except NotCanonical:
        raise
    except (ValueError, TypeError, RecursionError, msgpack.UnpackException) as fault:
        raise NotCanonical(f"not msgpack: {type(fault).__name__}: {fault}") from None
    if again != payload:
        raise NotCanonical("not the shortest encoding, or keys out of order")
    return value


def _ready(value: Any, depth: int) -> Any:
    """The value with dicts in their order. Raises NotCanonical for what has no encoding."""
    kind = type(value)
    if kind in _PLAIN:
        return value
    if kind in _LISTS:
        if depth == DEPTH_MAX:
            _check_empty(value)
        if _PLAIN.issuperset(map(type, value)):
            return value
        below = depth + 1
        return [item if type(item) in _PLAIN else _ready(item, below) for item in value]
    if kind is dict:
        if depth == DEPTH_MAX:
            _check_empty(value)
        for key in value:
            if not isinstance(key, str):
                raise NotCanonical(f"key {key!r} is not a string")
        below, in_order = depth + 1, sorted(value.items())
        return {key: v if type(v) in _PLAIN else _ready(v, below) for key, v in in_order}
    return _ready_by_another_name(value, depth)


def _ready_by_another_name(value: Any, depth: int) -> Any:
    """Of a type that is derived from ours; msgpack's own extensions are tuples, too."""
    if isinstance(value, _LISTS):
        return _ready(list(value), depth)
    if isinstance(value, dict):
        return _ready(dict(value), depth)
    if isinstance(value, bytes | int | str):
        if isinstance(value, Enum):
            _PLAIN.add(type(value))
        return value
    raise NotCanonical(f"{type(value).__name__} has no canonical encoding")


def _check_empty(value: Sized) -> None:
    if len(value):
        raise NotCanonical(f"nested deeper than {DEPTH_MAX}")
