"""Packs into one, and which of them: the number of packs grows like the logarithm of the records.

Up to the size of a full pack; from there on one more comes with each so many records.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from heapq import merge
from itertools import groupby

from daa_node.packs.format import (
    BYTES_MAX,
    PACKS,
    RECORDS_MAX,
    DamagedPack,
    Entry,
    Head,
    PackWriter,
    ReadAt,
    entries,
    payload_of,
)

MERGED = 8  # packs of a tier: a record moves four times at most, and 25 packs are not full

Source = tuple[Head, ReadAt]


def merge_due(heads: Iterable[Head]) -> list[Head]:
    """The packs that are to become one; none while there are few of each size.

    Packs of states alone stay so: what is let go of them is then cheap to write anew.
    """
    tiers: dict[tuple[bool, int], list[Head]] = {}
    for head in sorted(heads, key=lambda head: (head.count, head.name)):
        if 2 * head.count <= RECORDS_MAX and 2 * head.size_bytes <= BYTES_MAX:  # not full
            tiers.setdefault((head.has_proofs, head.count.bit_length() // 3), []).append(head)
    for _, alike in sorted(tiers.items()):
        if len(alike) < MERGED:
            continue
        chosen: list[Head] = []
        for head in alike[:MERGED]:
            records = head.count + sum(other.count for other in chosen)
            size_bytes = head.size_bytes + sum(other.size_bytes for other in chosen)
            if records <= RECORDS_MAX and size_bytes <= BYTES_MAX:
                chosen.append(head)
        return chosen  # two that are not full fit into one
    return []


def copy_records(sources: Sequence[Source], gone: Collection[bytes], writer: PackWriter) -> int:
    """All records but those in `gone`, each once, as they are, with their checks; how many.

    Of several by one key a good one. One that is damaged stays so, and is named so: what else the
    packs hold must not wait for it. Raises DamagedPack and whatever reading and writing raise.
    """
    count = 0
    for key, alike in groupby(_in_order(sources), key=lambda pair: pair[0].key):
        if key in gone:
            continue
        payload, check = b"", b""
        for entry, read in alike:
            payload, check = payload_of(entry, read), entry.check
            if entry.fits(payload):
                break
        writer.add(key, payload, check)
        count += 1
    return count


def _in_order(sources: Sequence[Source]) -> Iterator[tuple[Entry, ReadAt]]:
    return merge(*(_run(head, read) for head, read in sources), key=lambda pair: pair[0].key)


def _run(head: Head, read: ReadAt) -> Iterator[tuple[Entry, ReadAt]]:
    try:
        for entry in entries(head, read):
            yield entry, read
    except DamagedPack as fault:
        raise DamagedPack(f"{PACKS}/{head.name} {fault}") from None
