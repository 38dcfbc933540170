"""The fetch machine under honest, lying, slow, partial and vanishing peers."""

import random
from typing import Any

import pytest

from daa_dag.chunking import CHUNK_BYTES_MAX, Manifest, manifest_of
from daa_dag.errors import Malformed
from daa_dag.fetch import (
    ASKED_OF_MAX,
    ASKED_OF_SILENT_MAX,
    LIES_MAX,
    PIECES_PER_PEER_MAX,
    WINDOW_BYTES_MAX,
    WINDOW_BYTES_START,
    Accuse,
    Ask,
    Ban,
    ChunkArrived,
    ChunkMissing,
    Complete,
    Effect,
    Event,
    Fetch,
    Hold,
    PeerGained,
    PeerJoined,
    PeerLagging,
    PeerLeft,
)
from daa_dag.ids import Digest, NodeId

ALICE, BOB, MALLORY = NodeId(b"alice"), NodeId(b"bob"), NodeId(b"mallory")
CHUNKS = [b"chunk %d" % i for i in range(9)]
MANIFEST = manifest_of(b"".join(CHUNKS), [len(c) for c in CHUNKS])
START_CHUNKS = WINDOW_BYTES_START // CHUNK_BYTES_MAX
# A blob of full chunks as far as the machine can tell: it never sees their bytes in these tests.
BIG = Manifest((CHUNK_BYTES_MAX,) * 64, tuple(Digest(i.to_bytes(32)) for i in range(64)))


def asks(effects: list[Effect]) -> list[Ask]:
    return [e for e in effects if isinstance(e, Ask)]


def holds(effects: list[Effect]) -> list[Hold]:
    return [e for e in effects if isinstance(e, Hold)]


def honest(ask: Ask) -> ChunkArrived:
    return ChunkArrived(ask.peer, ask.index, CHUNKS[ask.index])


def lie(ask: Ask) -> ChunkArrived:
    return ChunkArrived(ask.peer, ask.index, b"poison")


def fetch_of(manifest: Manifest = MANIFEST) -> Fetch:
    return Fetch(manifest, range(len(manifest.sizes)))


def check_deeply(fetch: Fetch) -> None:
    """What costs too much to check at every step of a real fetch."""
    wanted, asked = fetch._wanted, fetch._asked
    assert not wanted & asked.keys()
    assert wanted >= fetch._again.keys()
    for piece, askers in asked.items():
        assert 1 <= len(askers) == len(set(askers)) <= ASKED_OF_SILENT_MAX
        assert all(piece in fetch._peers[peer].owed for peer in askers)
    for peer, standing in fetch._peers.items():
        assert standing.owed_bytes == sum(fetch._manifest.sizes[p] for p in standing.owed)
        assert not standing.lagging or standing.owed
        assert all(peer in asked.get(p, [peer]) for p in standing.owed)


def test_an_honest_peer_completes() -> None:
    fetch = fetch_of()
    got: dict[tuple[int, ...], object] = {}
    todo = asks(fetch.step(PeerJoined(ALICE)))
    assert todo == [Ask(ALICE, i) for i in range(9)]
    while todo:
        effects = fetch.step(honest(todo.pop(0)))
        todo += asks(effects)
        got |= {hold.indices: hold.payload for hold in holds(effects)}
    assert got == {(i,): chunk for i, chunk in enumerate(CHUNKS)}
    assert fetch.complete
    assert effects[-1] == Complete()


def test_what_is_asked_next_is_looked_for_when_all_that_happened_is_known() -> None:
    """Each look goes through all chunks and peers: one after each of ten news would be ten."""
    fetch = fetch_of()
    some, rare = PeerJoined(ALICE, frozenset({0, 1})), PeerJoined(BOB, frozenset({1, 2}))
    assert asks(fetch.step(some, rare)) == [Ask(ALICE, 0), Ask(ALICE, 1), Ask(BOB, 2)]
    effects = fetch.step(*(honest(Ask(ALICE, index)) for index in (0, 1)), PeerJoined(MALLORY))
    assert [hold.indices for hold in holds(effects)] == [(0,), (1,)]
    assert asks(effects) == [Ask(MALLORY, index) for index in range(3, 9)]
    assert fetch.step() == []


def test_only_what_is_missing_is_asked_for() -> None:
    fetch = Fetch(MANIFEST, [3, 7])
    assert asks(fetch.step(PeerJoined(ALICE))) == [Ask(ALICE, 3), Ask(ALICE, 7)]


def test_nothing_missing_is_complete_at_once() -> None:
    fetch = Fetch(MANIFEST, [])
    assert fetch.complete
    assert fetch.step(PeerJoined(ALICE)) == []


def test_chunks_with_one_digest_are_fetched_once_and_held_as_all() -> None:
    manifest = manifest_of(b"aabbaa", [2, 2, 2])
    fetch = fetch_of(manifest)
    assert asks(fetch.step(PeerJoined(ALICE))) == [Ask(ALICE, 0), Ask(ALICE, 1)]
    assert fetch.step(ChunkArrived(ALICE, 0, b"aa")) == [Hold((0, 2), b"aa")]
    resumed = Fetch(manifest, [2])  # its twin is on disk already
    assert asks(resumed.step(PeerJoined(ALICE))) == [Ask(ALICE, 0)]
    assert resumed.step(ChunkArrived(ALICE, 0, b"aa")) == [Hold((2,), b"aa"), Complete()]


def test_one_digest_with_two_sizes_is_malformed() -> None:
    with pytest.raises(Malformed, match="two sizes"):
        fetch_of(Manifest((2, 3), (Digest(bytes(32)), Digest(bytes(32)))))


def test_a_liar_is_accused_then_banned_and_its_chunks_go_to_another() -> None:
    fetch = fetch_of()
    owed = asks(fetch.step(PeerJoined(MALLORY)))
    assert LIES_MAX == 2
    effects = fetch.step(lie(owed[0]))
    assert effects == [Accuse(MALLORY, 0), Ask(MALLORY, 0)]
    assert fetch.step(lie(owed[1])) == [Accuse(MALLORY, 1), Ban(MALLORY)]
    assert {a.index for a in asks(fetch.step(PeerJoined(ALICE)))} == set(range(9))


def test_bytes_that_do_not_match_are_never_held() -> None:
    fetch = fetch_of()
    for ask in asks(fetch.step(PeerJoined(MALLORY))):
        assert not holds(fetch.step(lie(ask)))


def test_a_window_of_bytes_bounds_what_a_peer_owes_and_grows_as_it_delivers() -> None:
    fetch = fetch_of(BIG)
    owed = asks(fetch.step(PeerJoined(ALICE)))
    assert len(owed) == START_CHUNKS
    big = Fetch(manifest_of(bytes(1000), [1] * 1000), [0])
    assert len(asks(big.step(PeerJoined(ALICE)))) == 1  # a thousand equal bytes are one piece
    payload = random.Random(1).randbytes(20 * CHUNK_BYTES_MAX)
    manifest = manifest_of(payload, [CHUNK_BYTES_MAX] * 20)
    fetch = fetch_of(manifest)
    first = asks(fetch.step(PeerJoined(ALICE)))[0]
    more = fetch.step(ChunkArrived(ALICE, first.index, payload[:CHUNK_BYTES_MAX]))
    assert len(asks(more)) == 2  # one for the chunk that came, one because it came


def test_tiny_chunks_are_bounded_by_their_number() -> None:
    payload = b"".join(i.to_bytes(2) for i in range(1000))
    fetch = fetch_of(manifest_of(payload, [2] * 1000))
    assert len(asks(fetch.step(PeerJoined(ALICE)))) == PIECES_PER_PEER_MAX


def test_the_rarest_piece_is_asked_for_first() -> None:
    fetch = fetch_of()
    fetch.step(PeerJoined(ALICE, frozenset(range(8))))
    for ask in [Ask(ALICE, i) for i in range(8)]:
        fetch.step(ChunkMissing(ALICE, ask.index))
    fetch.step(PeerLeft(ALICE))
    fetch = Fetch(BIG, range(64))
    assert asks(fetch.step(PeerJoined(ALICE, frozenset({5})))) == [Ask(ALICE, 5)]
    fetch.step(PeerLeft(ALICE))
    fetch.step(PeerJoined(ALICE, frozenset()))
    fetch.step(PeerJoined(BOB, frozenset({*range(1, 64)} - {40})))
    owed = asks(fetch.step(PeerJoined(MALLORY, frozenset(range(64)))))
    assert [a.index for a in owed][:2] == [0, 40]


def test_a_peer_is_never_asked_for_what_it_does_not_have() -> None:
    fetch = fetch_of()
    assert asks(fetch.step(PeerJoined(ALICE, frozenset({2, 99})))) == [Ask(ALICE, 2)]
    assert not asks(fetch.step(ChunkMissing(ALICE, 2)))
    assert fetch.starved
    assert Ask(BOB, 2) in asks(fetch.step(PeerJoined(BOB)))
    assert not fetch.starved


def test_equals_start_where_the_caller_says() -> None:
    fetch = Fetch(MANIFEST, range(9), first=9 + 4)
    order = [a.index for a in asks(fetch.step(PeerJoined(ALICE)))]
    assert order == [4, 5, 6, 7, 8, 0, 1, 2, 3]


def test_what_a_lagging_peer_owes_is_asked_of_another_once_nothing_else_is_wanted() -> None:
    fetch = fetch_of(BIG)
    slow = asks(fetch.step(PeerJoined(ALICE)))
    quick = asks(fetch.step(PeerJoined(BOB)))
    assert not {a.index for a in slow} & {a.index for a in quick}
    assert fetch.step(PeerLagging(ALICE)) == []  # bob's window is full
    fetch = fetch_of()
    slow = asks(fetch.step(PeerJoined(ALICE)))
    assert asks(fetch.step(PeerJoined(BOB))) == []
    hedges = asks(fetch.step(PeerLagging(ALICE)))
    assert hedges == [Ask(BOB, a.index) for a in slow]
    for ask in hedges:
        assert holds(fetch.step(honest(ask)))
    assert fetch.complete


def test_a_hedged_answer_that_comes_second_is_not_even_hashed() -> None:
    fetch = fetch_of()
    slow = asks(fetch.step(PeerJoined(ALICE)))
    fetch.step(PeerJoined(BOB))
    fetch.step(PeerLagging(ALICE))
    fetch.step(honest(Ask(BOB, 0)))
    assert fetch.step(lie(slow[0])) == []
    assert not fetch._peers[ALICE].lies


def test_a_peer_that_lags_is_asked_nothing_new_until_it_delivers() -> None:
    fetch = fetch_of()
    fetch.step(PeerJoined(BOB))
    fetch.step(PeerJoined(ALICE))
    assert fetch.step(ChunkMissing(BOB, 3)) == [Ask(ALICE, 3)]
    fetch.step(PeerLagging(ALICE))
    assert fetch.step(ChunkMissing(BOB, 4)) == []
    assert Ask(ALICE, 4) in fetch.step(honest(Ask(ALICE, 3)))


def test_the_better_standing_is_asked_first() -> None:
    fetch = Fetch(MANIFEST, [0])
    ask = asks(fetch.step(PeerJoined(MALLORY)))[0]
    fetch.step(PeerJoined(ALICE))
    assert asks(fetch.step(lie(ask))) == [Ask(ALICE, 0)]


def test_slowness_is_not_a_lie() -> None:
    fetch = Fetch(MANIFEST, [0])
    fetch.step(PeerJoined(ALICE))
    for _ in range(5):
        assert fetch.step(PeerLagging(ALICE)) == []
    assert fetch.step(honest(Ask(ALICE, 0))) == [Hold((0,), CHUNKS[0]), Complete()]


def test_late_and_unasked_answers_change_nothing() -> None:
    fetch = Fetch(MANIFEST, [0])
    ask = asks(fetch.step(PeerJoined(MALLORY)))[0]
    fetch.step(PeerLeft(MALLORY))
    assert asks(fetch.step(PeerJoined(ALICE))) == [Ask(ALICE, 0)]
    assert fetch.step(lie(ask)) == fetch.step(honest(ask)) == []
    assert fetch.step(ChunkMissing(MALLORY, 0)) == fetch.step(PeerLagging(MALLORY)) == []
    assert fetch.step(honest(Ask(ALICE, 5))) == []
    fetch.step(honest(Ask(ALICE, 0)))
    assert fetch.complete
    assert fetch.step(PeerLeft(ALICE)) == []


def test_a_peer_that_joins_twice_owes_once() -> None:
    fetch = fetch_of()
    assert len(asks(fetch.step(PeerJoined(ALICE)))) == 9
    assert fetch.step(PeerJoined(ALICE)) == []


def misdeed(rng: random.Random, ask: Ask) -> Event:
    kinds: list[Event] = [
        lie(ask),
        ChunkMissing(ask.peer, ask.index),
        PeerLeft(ask.peer),
        PeerLagging(ask.peer),
        PeerJoined(ask.peer),
    ]
    return rng.choice(kinds)


@pytest.mark.parametrize("block", range(10))
def test_any_interleaving_that_keeps_one_honest_peer_completes(block: int) -> None:
    for seed in range(block * 100, block * 100 + 100):
        rng = random.Random(seed)
        chunks = [rng.choice([b"same", b"%d" % i]) for i in range(rng.randrange(1, 14))]
        manifest = manifest_of(b"".join(chunks), [len(c) for c in chunks])
        missing = sorted(rng.sample(range(len(chunks)), rng.randrange(1, len(chunks) + 1)))
        fetch = Fetch(manifest, missing, rng.randrange(100))
        partial = frozenset(rng.sample(range(len(chunks)), len(chunks) // 2))
        joins: list[Event] = [PeerJoined(ALICE), PeerJoined(BOB, partial), PeerJoined(MALLORY)]
        rng.shuffle(joins)
        owed: list[Ask] = []
        held: dict[int, object] = {}
        for _ in range(2000):
            if fetch.complete:
                break
            event: Event
            if joins and rng.random() < 0.3:
                event = joins.pop()
            elif owed:
                ask = owed.pop(rng.randrange(len(owed)))
                good = ChunkArrived(ask.peer, ask.index, chunks[ask.index])
                event = good if ask.peer != MALLORY else misdeed(rng, ask)
                if ask.peer != MALLORY and rng.random() < 0.2:
                    owed.append(ask)
                    event = PeerLagging(ask.peer)
            else:
                event = PeerLeft(MALLORY)  # its deadline: whatever it swallowed goes to others
            effects = fetch.step(event)
            owed += asks(effects)
            for hold in holds(effects):
                for index in hold.indices:
                    assert index not in held, f"seed {seed}: held twice"
                    held[index] = hold.payload
            check_deeply(fetch)
        assert fetch.complete, f"seed {seed}"
        assert held == {index: chunks[index] for index in missing}, f"seed {seed}"


def test_a_blob_of_many_chunks_and_peers_costs_little_a_step() -> None:
    rng = random.Random(3)
    count = 20_000
    payload = b"".join(i.to_bytes(4) for i in range(count))
    fetch = fetch_of(manifest_of(payload, [4] * count))
    owed: list[Ask] = []
    for i in range(8):
        have = frozenset(rng.sample(range(count), count // 2)) if i else None
        owed += asks(fetch.step(PeerJoined(NodeId(b"%d" % i), have)))
    steps = 0
    while owed:
        ask = owed.pop()
        steps += 1
        owed += asks(fetch.step(ChunkArrived(ask.peer, ask.index, ask.index.to_bytes(4))))
    assert fetch.complete
    assert steps == count
    assert WINDOW_BYTES_MAX >= WINDOW_BYTES_START


def test_what_a_peer_gains_is_asked_of_it_the_rarest_first() -> None:
    fetch = fetch_of()
    assert fetch.step(PeerJoined(ALICE, frozenset())) == []
    fetch.step(PeerJoined(BOB, frozenset({0, 1})))
    gained = asks(fetch.step(PeerGained(ALICE, frozenset({0, 1, 2}))))
    assert gained == [Ask(ALICE, 2)]  # the others are Bob's already
    assert fetch.step(PeerGained(ALICE, frozenset({2}))) == []


def test_who_spreads_a_blob_is_asked_after_others_that_have_a_piece() -> None:
    fetch = fetch_of()
    fetch.step(PeerJoined(ALICE, frozenset(), spreads=True))
    fetch.step(PeerJoined(BOB, frozenset()))
    fetch._peers[BOB].window_bytes = 1
    assert asks(fetch.step(PeerGained(BOB, frozenset({3, 4}))))[0].peer == BOB
    offered = asks(fetch.step(PeerGained(ALICE, frozenset({5}))))
    assert offered == [Ask(ALICE, 5)]


def test_what_is_offered_is_taken_even_if_another_owes_it() -> None:
    """Else who spreads the blob would take its link for full, and offer nothing in its place."""
    fetch = fetch_of()
    fetch.step(PeerJoined(ALICE, frozenset(), spreads=True))
    fetch.step(PeerJoined(MALLORY, frozenset(), spreads=True))
    fetch.step(PeerJoined(BOB, frozenset({3})))
    assert asks(fetch.step(PeerGained(ALICE, frozenset({3, 5})))) == [Ask(ALICE, 5), Ask(ALICE, 3)]
    assert not asks(fetch.step(PeerGained(MALLORY, frozenset({3, 5}))))


def test_a_relay_owes_one_piece_more_for_each_that_it_has_brought() -> None:
    fetch, chunks = Fetch(MANIFEST, range(len(CHUNKS)), 0, lambda index: b"%d" % index), CHUNKS
    assert asks(fetch.step(PeerJoined(ALICE))) == [Ask(ALICE, 0)]
    assert len(asks(fetch.step(ChunkArrived(ALICE, 0, chunks[0])))) == 2
    assert len(asks(fetch.step(ChunkArrived(ALICE, 1, chunks[1])))) == 2  # one owed, of three


def test_orphans_are_what_nobody_else_can_be_trusted_to_bring() -> None:
    fetch = fetch_of()
    fetch.step(PeerJoined(ALICE, frozenset({0}), spreads=True))
    fetch.step(PeerJoined(BOB, frozenset({1, 2})))
    assert fetch.orphans(99) == [3, 4, 5, 6, 7, 8]
    assert fetch.orphans(2) == [3, 4]
    fetch.step(PeerLagging(BOB))
    assert sorted(fetch.orphans(99)) == [1, 2, 3, 4, 5, 6, 7, 8]


def test_whoever_turns_out_to_have_all_is_asked_for_all() -> None:
    fetch = fetch_of()
    fetch.step(PeerJoined(ALICE, frozenset({0}), spreads=True))
    assert len(asks(fetch.step(PeerGained(ALICE, None)))) == len(CHUNKS) - 1
    assert fetch.orphans(99) == []


def test_among_equals_the_order_is_the_caller_s_own() -> None:
    fetch = Fetch(MANIFEST, range(len(CHUNKS)), 0, lambda index: b"%d" % -index)
    order, asked = [], asks(fetch.step(PeerJoined(ALICE)))
    while asked:
        order += [ask.index for ask in asked]
        asked = asks(fetch.step(ChunkArrived(ALICE, order[-1], CHUNKS[order[-1]])))
    assert order == sorted(range(len(CHUNKS)), key=lambda index: b"%d" % -index)


@pytest.mark.parametrize(
    "gone", [[PeerLeft(ALICE), PeerLeft(BOB)], [PeerGained(ALICE, None), PeerGained(BOB, None)]]
)
def test_who_has_left_or_come_to_have_all_makes_no_piece_common(gone: list[Event]) -> None:
    """Piece 4 was in two hands that count no more, 5 is in one that does: 4 is the rarer."""
    fetch = Fetch(BIG, range(6), place_of=lambda index: bytes([index]))
    others = NodeId(b"carol"), NodeId(b"dave")
    for piece, peer in enumerate((ALICE, BOB)):
        assert asks(fetch.step(PeerJoined(peer, frozenset({piece, 4})))) == [Ask(peer, piece)]
    assert asks(fetch.step(PeerJoined(others[0], frozenset({2, 5})))) == [Ask(others[0], 2)]
    for event in gone:
        fetch.step(event)
    assert asks(fetch.step(PeerJoined(others[1], frozenset({4, 5})))) == [Ask(others[1], 4)]


def test_a_holder_that_offers_nothing_is_asked_once_it_gives_all() -> None:
    fetch = fetch_of()
    assert asks(fetch.step(PeerJoined(ALICE, frozenset(), spreads=True))) == []
    assert len(asks(fetch.step(PeerGained(ALICE, None)))) == len(CHUNKS)


def test_who_lagged_owes_little_until_it_shows_that_it_is_quicker() -> None:
    payloads = [b"%08d" % index * (CHUNK_BYTES_MAX // 8) for index in range(START_CHUNKS + 4)]
    manifest = manifest_of(b"".join(payloads), [CHUNK_BYTES_MAX] * len(payloads))
    fetch = fetch_of(manifest)
    assert len(asks(fetch.step(PeerJoined(ALICE)))) == START_CHUNKS
    fetch.step(PeerLagging(ALICE))
    anew = [
        len(asks(fetch.step(ChunkArrived(ALICE, index, payloads[index]))))
        for index in range(START_CHUNKS)
    ]
    assert anew == [0, 0, 0, 1, 2, 1, 0, 0]


def test_two_that_keep_a_piece_together_keep_it_from_nobody_who_asks_a_third() -> None:
    """It was owed by both until their sessions were given up, after twenty seconds."""
    fetch = fetch_of(manifest_of(b"chunk", [5]))
    liars = [NodeId(b"liar %d" % number) for number in range(ASKED_OF_MAX)]
    assert asks(fetch.step(PeerJoined(liars[0]))) == [Ask(liars[0], 0)]
    fetch.step(*map(PeerJoined, (*liars[1:], ALICE)))
    assert asks(fetch.step(PeerLagging(liars[0]))) == [Ask(liars[1], 0)]
    assert asks(fetch.step(PeerLagging(liars[1]))) == [Ask(ALICE, 0)]
    check_deeply(fetch)
    assert fetch.step(ChunkArrived(ALICE, 0, b"chunk")) == [Hold((0,), b"chunk"), Complete()]


def test_not_all_are_asked_for_a_piece_that_all_of_them_keep() -> None:
    fetch = fetch_of(manifest_of(b"chunk", [5]))
    liars = [NodeId(b"liar %d" % number) for number in range(ASKED_OF_SILENT_MAX + 2)]
    fetch.step(*map(PeerJoined, liars))
    for number, liar in enumerate(liars[:ASKED_OF_SILENT_MAX], 1):
        more = liars[number:ASKED_OF_SILENT_MAX][:1]
        assert asks(fetch.step(PeerLagging(liar))) == [Ask(node, 0) for node in more]
        check_deeply(fetch)


def test_for_what_two_keep_nobody_is_asked_who_kept_others_waiting_before() -> None:
    liars = [NodeId(b"liar %d" % number) for number in range(ASKED_OF_MAX)]
    fetch = fetch_of(manifest_of(b"onetwo", [3, 3]))
    assert asks(fetch.step(PeerJoined(BOB, frozenset({0})))) == [Ask(BOB, 0)]
    fetch.step(PeerLagging(BOB))
    fetch.step(ChunkArrived(BOB, 0, b"one"), *map(PeerJoined, liars))
    assert not asks(fetch.step(PeerGained(BOB, frozenset({1}))))
    assert asks(fetch.step(PeerLagging(liars[0]))) == [Ask(liars[1], 1)]
    assert not asks(fetch.step(PeerLagging(liars[1])))
    assert asks(fetch.step(PeerJoined(ALICE))) == [Ask(ALICE, 1)]


def test_of_two_that_spread_a_blob_one_brings_what_the_other_keeps() -> None:
    fetch = fetch_of()
    fetch.step(PeerJoined(MALLORY, frozenset({3}), spreads=True))
    assert not asks(fetch.step(PeerJoined(ALICE, frozenset({3}), spreads=True)))
    assert asks(fetch.step(PeerLagging(MALLORY))) == [Ask(ALICE, 3)]


def test_to_say_the_same_again_has_nobody_look_through_the_blob_again() -> None:
    looked_at = list[int]()

    class Order(list[int]):
        def __getitem__(self, place: Any) -> Any:
            looked_at.append(place)
            return super().__getitem__(place)

    fetch = fetch_of()
    fetch.step(PeerJoined(ALICE, frozenset({0, 1})))
    fetch._order = Order(fetch._order)
    assert not asks(fetch.step(PeerGained(ALICE, frozenset({0, 1}))))
    assert not looked_at
    assert asks(fetch.step(PeerGained(ALICE, frozenset({1, 5})))) == [Ask(ALICE, 5)]


def test_chunks_behind_the_blob_s_last_are_none_of_it() -> None:
    fetch = fetch_of()
    count = len(CHUNKS)
    assert not asks(fetch.step(PeerJoined(ALICE, frozenset({count, count + 1}))))
    assert asks(fetch.step(PeerGained(ALICE, frozenset({count - 1, count})))) == [
        Ask(ALICE, count - 1)
    ]
