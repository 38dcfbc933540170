"""A pack tells what it holds and what befell it, byte by byte."""

import random

import pytest

from daa_dag.ids import digest_of
from daa_node.packs.format import (
    GUESSES_MAX,
    SHELVES,
    DamagedPack,
    Head,
    PackWriter,
    ReadAt,
    check_of,
    count_of,
    entries,
    entries_of,
    faults,
    find,
    key_of,
    name_of,
    open_pack,
    rescued,
    rescued_offset,
)
from daa_node.packs.merging import MERGED, copy_records, merge_due

OTHER = "ab" * 32


def reader(content: bytes) -> ReadAt:
    return lambda offset, size_bytes: content[offset : offset + size_bytes]


def records_of(count: int, salt: bytes = b"") -> dict[bytes, bytes]:
    chance = random.Random(count)
    keys = [bytes([n % 7]) + digest_of(salt + b"%d" % n) for n in range(count)]
    return {key: chance.randbytes(chance.randrange(60)) for key in sorted(keys)}


def pack_of(records: dict[bytes, bytes], replaces: tuple[str, ...] = ()) -> tuple[str, bytes]:
    content = bytearray()
    writer = PackWriter(content.extend, replaces)
    for key, payload in sorted(records.items()):
        writer.add(key, payload)
    return writer.finish(), bytes(content)


def is_sound(name: str, content: bytes) -> bool:
    try:
        head = open_pack(name, len(content), reader(content))
        return not list(faults(head, reader(content)))
    except DamagedPack:
        return False


def held(head: Head, content: bytes) -> dict[bytes, bytes]:
    read = reader(content)
    return {e.key: read(e.payload_offset, e.size_bytes) for e in entries(head, read)}


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 129, 500])
def test_each_record_is_found_and_no_other(count: int) -> None:
    records = records_of(count)
    name, content = pack_of(records, (OTHER,))
    head = open_pack(name, len(content), reader(content))
    assert (head.count, head.replaces) == (count, (OTHER,))
    assert held(head, content) == records
    for key, payload in records.items():
        entry = find(head, reader(content), key)
        assert entry is not None
        assert entry.fits(payload)
    for stranger in records_of(20, b"others"):
        assert find(head, reader(content), stranger) is None
    assert is_sound(name, content)


def counted(content: bytes) -> tuple[ReadAt, list[int]]:
    """A reader, and the bytes of each thing that was read."""
    sizes: list[int] = []

    def read(offset: int, size_bytes: int) -> bytes:
        sizes.append(size_bytes)
        return content[offset : offset + size_bytes]

    return read, sizes


def test_few_reads_tell_where_a_record_is_and_that_it_is_not_there() -> None:
    name, content = pack_of(dict.fromkeys(records_of(20_000), b""))
    head = open_pack(name, len(content), reader(content))
    read, sizes = counted(content)
    for keys, is_there in ((records_of(20_000), True), (records_of(500, b"others"), False)):
        asked, most = [*keys][::40], 0
        sizes.clear()
        for key in asked:
            before = len(sizes)
            assert (find(head, read, key) is not None) is is_there
            most = max(most, len(sizes) - before)
        assert len(sizes) <= 2.5 * len(asked)
        assert most <= GUESSES_MAX
    assert max(sizes) < 4096  # bytes


def test_keys_that_somebody_has_chosen_are_found_all_the_same() -> None:
    # nearly all begin alike, so that no guess is any good
    alike = {bytes([1, 7, 7]) + digest_of(b"%d" % n)[2:]: b"" for n in range(5000)}
    far = {bytes([1]) + digest_of(b"far %d" % n): b"" for n in range(5)}
    name, content = pack_of(alike | far)
    head = open_pack(name, len(content), reader(content))
    for key in (*[*alike][::100], *far):
        read, sizes = counted(content)
        entry = find(head, read, key)
        assert entry is not None
        assert entry.key == key
        assert len(sizes) <= GUESSES_MAX + head.count.bit_length()


def test_records_on_shelves_of_a_later_program_are_found_to_be_moved() -> None:
    keys = [bytes([shelf]) + digest_of(b"%d" % n) for n in range(100) for shelf in (0, 8, 200)]
    name, content = pack_of({key: key[:4] for key in keys})
    head = open_pack(name, len(content), reader(content))
    for key in keys:
        entry = find(head, reader(content), key)
        assert entry is not None
        assert entry.key == key
    assert find(head, reader(content), bytes([201]) + bytes(32)) is None
    assert (count_of(head, "vertices"), count_of(head, "blocks")) == (100, 0)
    assert len([*entries_of(head, reader(content), "vertices")]) == 100


def test_a_name_and_a_key_mean_each_other() -> None:
    digits = digest_of(b"it").hex()
    names = [("vertices", digits), ("certificates", f"{digits}.exec"), ("chunks", digits)]
    for kind, name in names:
        key = key_of(kind, name)
        assert key is not None
        assert name_of(key) == (kind, name)
    for kind, name in [
        ("states", digits),
        ("vertices", digits.upper()),
        ("vertices", f"{digits}.exec"),
        ("vertices", digits[:-2]),
        ("vertices", "g" * 64),
        ("vertices", " " + digits[1:]),
    ]:
        assert key_of(kind, name) is None
    with pytest.raises(DamagedPack, match="shelf 200"):
        name_of(bytes([200]) + bytes(32))


def test_any_changed_missing_or_added_byte_is_noticed() -> None:
    name, content = pack_of(records_of(9), (OTHER,))
    for at in range(len(content)):
        changed = bytearray(content)
        changed[at] ^= 1 << at % 8
        assert not is_sound(name, bytes(changed)), f"byte {at}"
        assert not is_sound(name, content[:at]), f"cut at {at}"
        assert not is_sound(name, content[:at] + b"\0" + content[at:]), f"one more at {at}"
    assert not is_sound(name, content + b"\0")


def test_a_damaged_record_is_told_by_its_name_and_the_others_are_read() -> None:
    records = records_of(9)
    name, content = pack_of(records)
    head = open_pack(name, len(content), reader(content))
    victim = [e for e in entries(head, reader(content)) if e.size_bytes][3]
    changed = bytearray(content)
    changed[victim.payload_offset] ^= 1
    told = list(faults(head, reader(bytes(changed))))
    assert told == [(victim, "is damaged")]
    assert held(head, bytes(changed)) != records
    for key in records.keys() - {victim.key}:
        entry = find(head, reader(bytes(changed)), key)
        assert entry is not None
        assert entry.fits(reader(bytes(changed))(entry.payload_offset, entry.size_bytes))


def test_an_index_that_is_lost_or_damaged_is_made_anew_from_the_records() -> None:
    name, content = pack_of(records_of(20), (OTHER,))
    index_at = open_pack(name, len(content), reader(content)).index_offset
    for damaged in (
        content[:index_at],
        content[: index_at + 7],
        content[:-1],
        content + b"more",
        content[:index_at] + bytes(len(content) - index_at),
    ):
        tail = rescued(name, len(damaged), reader(damaged))
        assert tail is not None
        assert damaged[: rescued_offset(tail)] + tail == content
    for hopeless in (content[: index_at - 1], b"", content[:9], bytes(len(content))):
        assert rescued(name, len(hopeless), reader(hopeless)) is None


def test_a_pack_that_was_forged_with_a_gap_or_a_record_twice_is_none() -> None:
    key, content = bytes(33), bytearray()
    writer = PackWriter(content.extend)
    writer.add(key, b"one")
    content.extend(b"between")
    writer._end += 7  # what lies between belongs to nobody
    writer.add(b"\1" + key[1:], b"two")
    assert not is_sound(writer.finish(), bytes(content))
    with pytest.raises(AssertionError):
        writer.add(key, b"again")


def test_packs_merge_into_one_that_holds_all_once_but_what_goes() -> None:
    first, second = records_of(50), records_of(30, b"second")
    shared = dict(list(first.items())[:5])
    packs = [pack_of(first), pack_of(second | shared)]
    sources = [(open_pack(name, len(c), reader(c)), reader(c)) for name, c in packs]
    gone = {next(iter(second))}
    content = bytearray()
    writer = PackWriter(content.extend, [name for name, _ in packs])
    assert copy_records(sources, gone, writer) == 79
    merged = open_pack(writer.finish(), len(content), reader(bytes(content)))
    wanted = {key: payload for key, payload in (first | second).items() if key not in gone}
    assert held(merged, bytes(content)) == wanted
    assert merged.replaces == tuple(name for name, _ in packs)


def test_a_record_that_is_damaged_moves_with_its_check_and_stays_named() -> None:
    key, payload = bytes(33), b"what was packed"
    content = bytearray()
    writer = PackWriter(content.extend)
    writer.add(key, b"what rotted since", check_of(key, payload))
    name = writer.finish()
    head = open_pack(name, len(content), reader(bytes(content)))
    assert [what for _, what in faults(head, reader(bytes(content)))] == ["is damaged"]


def head_of(name: str, count: int, size_bytes: int) -> Head:
    """Of a pack of vertices."""
    return Head(name, (), 12, 0, count, size_bytes, (0, *(count,) * (len(SHELVES) + 1)))


def test_the_number_of_packs_grows_like_a_logarithm_until_they_are_full() -> None:
    heads: list[Head] = []
    most, moved = 0, 0
    for number in range(4000):  # of a million records: two months at a round a minute
        heads.append(head_of(f"{number:064x}", 256, 256 * 3000))
        while due := merge_due(heads):
            assert 2 <= len(due) <= MERGED
            count, size = sum(h.count for h in due), sum(h.size_bytes for h in due)
            heads = [head for head in heads if head not in due]
            heads.append(head_of(f"{number:063x}f", count, size))
            moved += count
        most = max(most, len(heads))
    full = 4000 * 256 / (2**16 / 2)
    assert sum(head.count for head in heads) == 4000 * 256
    assert most <= full + 3 * MERGED
    assert moved <= 4 * 4000 * 256
    assert max(head.count for head in heads) <= 2**16


def test_of_a_record_that_two_packs_hold_the_good_one_is_copied() -> None:
    key, payload = bytes(33), b"what was packed"
    good, bad = bytearray(), bytearray()
    rotten = PackWriter(bad.extend)
    rotten.add(key, b"what rotted now", check_of(key, payload))
    writer = PackWriter(good.extend, [OTHER])
    writer.add(key, payload)
    packs = [(writer.finish(), bytes(good)), (rotten.finish(), bytes(bad))]
    sources = [(open_pack(name, len(c), reader(c)), reader(c)) for name, c in packs]
    for order in (sources, sources[::-1]):
        content = bytearray()
        writer = PackWriter(content.extend)
        assert copy_records(order, (), writer) == 1
        merged = open_pack(writer.finish(), len(content), reader(bytes(content)))
        assert held(merged, bytes(content)) == {key: payload}


@pytest.mark.parametrize("kind", ["vertices", "certificates", "chunks", "other"])
def test_what_there_is_of_one_kind_is_found_without_the_rest(kind: str) -> None:
    for count in (1, 3, 200, 500):
        records = {key: payload for key, payload in records_of(count).items() if key[0] != 4}
        name, content = pack_of(records)
        head = open_pack(name, len(content), reader(content))
        keys = [entry.key for entry in entries_of(head, reader(content), kind)]
        assert keys == [key for key in sorted(records) if name_of(key)[0] == kind]
