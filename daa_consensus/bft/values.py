"""Fields of a decoded message, checked one by one: each as it is wanted, or BadMessage."""

from daa_consensus.errors import BadMessage
from daa_dag.ids import DIGEST_BYTES

INT_MAX = 2**63 - 1
WORD_BYTES_MAX = 16  # the name of a codec or an aggregation rule: trimmed_mean has twelve messages


def digest(value: object, what: str) -> bytes:
    if not isinstance(value, bytes) or len(value) != DIGEST_BYTES:
        raise BadMessage(f"{what} is not {DIGEST_BYTES} bytes")
    return value


def sized(value: object, size_bytes_max: int, what: str) -> bytes:
    if not isinstance(value, bytes) or not 1 <= len(value) <= size_bytes_max:
        raise BadMessage(f"{what} is not 1 to {size_bytes_max} bytes")
    return value


def number(value: object, what: str) -> int:
    if type(value) is not int or not 0 <= value <= INT_MAX:  # a bool is not a number here
        raise BadMessage(f"{what} is not a number from 0 to {INT_MAX}")
    return value


def word(value: object, what: str) -> str:
    if not isinstance(value, str) or not 1 <= len(value.encode()) <= WORD_BYTES_MAX:
        raise BadMessage(f"{what} is not a short statement")
    return value


def listed(value: object, count_max: int, what: str, at_least: int = 0) -> list[object]:
    if not isinstance(value, list) or not at_least <= len(value) <= count_max:
        raise BadMessage(f"{what} is not a list of {at_least} to {count_max}")
    return value
