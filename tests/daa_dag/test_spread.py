"""Spreading one blob: each chunk goes out about once, whatever those who take it say or keep."""

import time
from collections import Counter
from functools import reduce
from operator import or_

from hypothesis import given, settings
from hypothesis import strategies as st

from daa_dag.ids import NodeId
from daa_dag.spread import (
    NEIGHBOURS_MAX,
    OFFERS_MAX,
    OFFERS_START,
    PATIENCE_S_MAX,
    PATIENCE_S_MIN,
    QUIET_S,
    Patience,
    Spread,
    indices_of,
    mask_of,
)

LATER_S = PATIENCE_S_MIN + 0.01


def node(number: int) -> NodeId:
    return NodeId(bytes([number]) * 32)


def test_masks_and_indices_are_each_other_s_opposite() -> None:
    assert indices_of(mask_of([0, 7, 8, 300])) == [0, 7, 8, 300]
    assert indices_of(0) == []


def test_each_is_offered_a_part_of_its_own_and_told_what_others_have() -> None:
    spread = Spread(12, 3)
    parts = [spread.tell(node(i), 0, (), 0, 0.0).offered for i in range(3)]
    assert [len(indices_of(part)) for part in parts] == [4, 4, 4]
    assert parts[0] | parts[1] | parts[2] == (1 << 12) - 1
    told = spread.tell(node(0), parts[0], (), 0, 0.1)
    assert (told.offered, told.holders) == (0, ())
    told = spread.tell(node(1), 0, (), 0, 0.2)
    assert told.holders == ((node(0), parts[0]),)
    assert spread.tell(node(1), 0, (), told.news, 0.3).holders == ()


def test_who_is_no_author_offers_what_a_fetcher_lacks_once_all_is_out() -> None:
    spread = Spread(8, 2, is_alone=False)
    first, second = (spread.tell(node(i), 0, (), 0, 0.0).offered for i in range(2))
    assert (first | second, first & second) == (0xFF, 0)
    copies = spread.tell(node(0), first, (), 0, 0.1).offered
    assert copies
    assert not copies & first
    assert spread.tell(node(1), 0xFF, (), 0, 0.2).offered == 0
    sparing = Spread(8, 2)
    first, _ = (sparing.tell(node(i), 0, (), 0, 0.0).offered for i in range(2))
    assert sparing.tell(node(0), first, (), 0, 0.1).offered == 0


def whoever_comes(chunk_count: int, twins: int = 0) -> Spread:
    """Of a blob that others may have, too, asked for by nobody knows how many."""
    return Spread(chunk_count, None, is_alone=None, twins=twins)


def test_where_nobody_knows_how_many_come_each_finds_some_that_nobody_has() -> None:
    spread = whoever_comes(40)
    parts = [spread.tell(node(i), 0, (), 0, 0.0).offered for i in range(8)]
    assert [part.bit_count() for part in parts] == [4, 2, 1, 1, 1, 1, 1, 1]
    assert sum(part.bit_count() for part in parts) == reduce(or_, parts).bit_count()


def all_offered(spread: Spread, number: int, have: int, now_s: float) -> int:
    """To one that takes it at once, until it is offered nothing more."""
    offered = spread.tell(node(number), have, (), 0, now_s).offered
    while more := spread.tell(node(number), have | offered, (), 0, now_s).offered:
        offered |= more
    return offered


def test_what_others_have_too_leaves_as_copies_once_more_than_a_third_show_it() -> None:
    spread = whoever_comes(40)
    parts = [spread.tell(node(i), 0, (), 0, 0.0).offered for i in range(6)]
    free = indices_of((1 << 40) - 1 & ~reduce(or_, parts))
    for number in range(3, 5):  # which nobody offered it, and nobody here has
        parts[number] |= 1 << free[number]
        spread.tell(node(number), parts[number], (), 0, 0.1)
    assert not all_offered(spread, 1, parts[1], 0.1) & parts[0]
    part = parts[5] | parts[0] & -parts[0]  # what another was offered that does not have it yet
    spread.tell(node(5), part, (), 0, 0.1)
    assert all_offered(spread, 2, parts[2], 0.1) & parts[0]


def test_who_had_a_part_before_or_has_it_of_others_here_shows_no_other_donor() -> None:
    spread = whoever_comes(40)
    before = spread.tell(node(0), 0b111, (), 0, 0.0).offered
    before |= spread.tell(node(3), 0b111000, (), 0, 0.0).offered
    parts = [spread.tell(node(i), 0, (), 0, 0.0).offered for i in (1, 2)]
    for number, part in zip((1, 2), parts, strict=True):
        lent = min(set(range(40)).difference(indices_of(0b111111 | before | parts[0] | parts[1])))
        spread.sent(node(number), [lent + number], 0.1)
        spread.tell(node(number), 0b111 | part | 1 << lent + number, (), 0, 0.2)
    assert not all_offered(spread, 0, 0b111, 0.2) & reduce(or_, parts)
    assert before


def test_chunks_that_come_with_an_equal_one_show_no_other_donor() -> None:
    equal = 0b111 << 37
    for twins in (equal, 0):
        spread = whoever_comes(40, twins)
        first, second = (spread.tell(node(i), 0, (), 0, 0.0).offered for i in range(2))
        offered = all_offered(spread, 1, second | equal & ~first, 0.1)
        assert bool(offered & first) == (not twins)


def test_a_snapshot_s_donor_has_no_end_of_fetchers_but_when_all_are_silent() -> None:
    spread = whoever_comes(12)
    spread.tell(node(0), 0, (), 0, 0.0)
    assert not spread.is_over(QUIET_S)
    spread.sent(node(0), [0], 1.0)
    assert not spread.is_over(1.0 + QUIET_S)
    assert spread.is_over(1.1 + QUIET_S)


def test_copies_for_one_who_takes_them_slowly_become_no_more() -> None:
    """What it takes, and how long it says that it took, is all that fills its window."""
    spread, held, now_s = Spread(1000, 1, is_alone=False), 0, 0.0
    sizes: list[int] = []
    for wait_s in [0.1] * 10 + [2.0] * 10:
        offered = spread.tell(node(0), held, (), 0, now_s).offered
        sizes.append(len(indices_of(offered)))
        now_s += wait_s
        held |= offered
    assert max(sizes) <= OFFERS_MAX
    assert sizes[9] == OFFERS_MAX
    assert sizes[-1] < OFFERS_START


def test_what_is_out_too_long_is_offered_to_another() -> None:
    spread = Spread(8, 1)
    hoarded = spread.tell(node(0), 0, (), 0, 0.0).offered
    assert hoarded == 0xFF
    assert spread.tell(node(1), 0, (), 0, PATIENCE_S_MIN / 2).offered == 0
    first = spread.tell(node(1), 0, (), 0, LATER_S).offered
    assert first.bit_count() == 4  # an even share of two
    assert spread.tell(node(1), first, (), 0, LATER_S).offered == 0
    assert spread.tell(node(1), first, (), 0, 3 * LATER_S).offered == hoarded & ~first


def test_who_was_late_is_offered_one_chunk_at_a_time() -> None:
    spread = Spread(30, 1)
    part = spread.tell(node(0), 0, (), 0, 0.0).offered
    assert len(indices_of(part)) == OFFERS_START
    spread.tell(node(1), 0, (), 0, LATER_S)  # who waits no longer than we can tell
    assert len(indices_of(spread.tell(node(0), 0, (), 0, LATER_S).offered)) == 1


def test_what_was_sent_a_moment_ago_is_on_its_way_once() -> None:
    spread = Spread(8, 2)
    hoarded = indices_of(spread.tell(node(0), 0, (), 0, 0.0).offered)
    for now_s in (0.9 * LATER_S, 1.8 * LATER_S):  # asked for again, and sent again
        spread.sent(node(0), [*hoarded, 1000], now_s)
        spread.sent(node(9), hoarded, now_s)  # who is gone by now
    spread.tell(node(1), 0xFF & ~mask_of(hoarded), (), 0, 1.8 * LATER_S)
    orphans = spread.tell(node(1), 0xFF & ~mask_of(hoarded), hoarded, 0, 1.8 * LATER_S)
    assert orphans.offered == 0
    assert spread.tell(node(1), 0xFF & ~mask_of(hoarded), hoarded, 0, 2.1 * LATER_S).offered


def test_what_is_offered_again_has_as_long_as_before() -> None:
    spread = Spread(1, 5)
    times = (0.0, 0.0), (1.0, 1.0), (1.5, 1.0), (2.4, 1.0), (3.0, 3.0)  # when, and out since when
    for share, since in times:
        spread.tell(node(0), 0, (), 0, share * LATER_S)
        assert spread._fetchers[node(0)].out_s == {0: since * LATER_S}
        if share in (0.0, 1.5):
            spread.sent(node(0), (0,), share * LATER_S)


def test_nobody_is_late_while_most_wait_as_long() -> None:
    """As on a busy machine: each would get what is on its way to another."""
    spread = Spread(16, 4)
    parts = [spread.tell(node(i), 0, (), 0, 0.0).offered for i in range(4)]
    assert sum(part.bit_count() for part in parts) == 16
    for i in range(3):
        assert spread.tell(node(i), 0, range(16), 0, 2 * LATER_S).offered == parts[i]
    took = spread.tell(node(3), parts[3], range(16), 0, 2 * LATER_S)
    assert took.offered == 0  # three of four wait


def test_a_few_who_keep_what_they_were_offered_do_not_stretch_patience() -> None:
    spread = Spread(16, 4)
    parts = [spread.tell(node(i), 0, (), 0, 0.0).offered for i in range(4)]
    for i in range(1, 3):
        spread.tell(node(i), parts[i], (), 0, 0.1)
    late = spread.tell(node(1), parts[1], (), 0, 2 * LATER_S).offered
    assert late
    assert not late & ~(parts[0] | parts[3])


def test_names_without_stake_do_not_stretch_patience_however_many() -> None:
    stake_of = {node(0): 4, node(1): 3, node(2): 3}
    spread = Spread(16, 8, stake_of=stake_of)
    parts = [spread.tell(node(i), 0, (), 0, 0.0).offered for i in range(8)]
    for i in range(2):  # all others keep what they were offered
        spread.tell(node(i), parts[i], (), 0, 0.1)
    late = spread.tell(node(0), parts[0], (), 0, 2 * LATER_S).offered
    assert late
    assert not late & (parts[0] | parts[1])


def test_most_stake_stretches_patience_however_few_have_it() -> None:
    spread = Spread(16, 8, stake_of={node(0): 1, node(1): 4})
    parts = [spread.tell(node(i), 0, (), 0, 0.0).offered for i in range(8)]
    for i in (0, *range(2, 8)):
        spread.tell(node(i), parts[i], (), 0, 0.1)
    assert not spread.tell(node(0), parts[0], (), 0, 2 * LATER_S).offered & parts[1]


def test_the_first_of_many_who_come_are_not_most_of_them() -> None:
    spread = Spread(16, 8)
    parts = [spread.tell(node(i), 0, (), 0, 0.0).offered for i in range(3)]
    spread.tell(node(0), parts[0], (), 0, 0.1)
    assert spread.tell(node(0), parts[0], (), 0, 2 * LATER_S).offered
    kept = [spread.tell(node(i), 0, (), 0, 2 * LATER_S).offered for i in (1, 2)]
    assert [part.bit_count() for part in kept] == [1, 1]  # as for who was late


def test_patience_with_most_is_over_when_they_have_it() -> None:
    spread, held, now_s, limits_s = Spread(2000, 4), [0] * 4, 0.0, list[float]()
    for wait_s in (2.0, *(0.05,) * 8):
        for i in range(4):
            held[i] |= spread.tell(node(i), held[i], (), 0, now_s).offered
        now_s += wait_s
        for i in range(4):
            held[i] = reduce(or_, held)
            spread.tell(node(i), held[i], (), 0, now_s)
        limits_s.append(spread._patience.limit_s)
    assert (limits_s[0], limits_s[-1]) == (PATIENCE_S_MAX, PATIENCE_S_MIN)


def test_what_was_late_goes_out_twice_though_patience_grows_meanwhile() -> None:
    """One liar claims late what it has, so that the next one alone gets what the first kept."""
    spread = Spread(32, 4)
    kept, claimed, *parts = (spread.tell(node(i), 0, (), 0, 0.0).offered for i in range(4))
    for i, part in enumerate(parts, 2):
        spread.tell(node(i), part, (), 0, 0.05)
    spread.sent(node(1), indices_of(claimed), 0.5)
    spread.tell(node(1), 0, (), 0, LATER_S)
    spread.tell(node(1), claimed, (), 0, LATER_S)
    assert spread._patience.limit_s > 3.0
    first = spread.tell(node(4), 0, (), 0, LATER_S).offered
    second = spread.tell(node(5), 0, (), 0, LATER_S).offered
    assert first & second & kept


def test_patience_while_most_wait_has_an_end() -> None:
    spread = Spread(4, 2)
    parts = [spread.tell(node(i), 0, (), 0, 0.0).offered for i in range(2)]
    for share in (0.25, 0.5, 0.99):
        assert spread.tell(node(0), 0, (), 0, share * PATIENCE_S_MAX).offered == parts[0]
    late = spread.tell(node(2), 0, (), 0, PATIENCE_S_MAX + 1.0).offered
    assert late & (parts[0] | parts[1])


def test_an_orphan_goes_out_again_once_a_patience_and_twice_as_often_each_time() -> None:
    spread = Spread(1, 1)
    spread.tell(node(0), 0, (), 0, 0.0)
    spread.tell(node(0), 1, (), 0, 0.0)  # claims it, and gives it to nobody
    takers = Counter[int]()
    for number in range(1, 30):
        turn = 1 if number < 10 else 2 if number < 20 else 3
        told = spread.tell(node(number), 0, (0,), 0, turn * LATER_S)
        assert (node(0), 1) in told.holders  # first it is told who has it
        takers[turn] += spread.tell(node(number), 0, (0,), 0, turn * LATER_S).offered
    assert takers == {1: 2, 2: 4, 3: 8}


def test_an_orphan_is_not_offered_while_its_copy_may_still_come() -> None:
    spread = Spread(1, 1)
    spread.tell(node(0), 0, (), 0, 0.0)
    spread.tell(node(0), 1, (), 0, 0.5)
    assert not spread.tell(node(1), 0, (0,), 0, 0.9).offered


def test_a_claim_to_what_was_never_offered_keeps_it_from_nobody() -> None:
    spread = Spread(8, 2)
    spread.tell(node(9), 0xFF, (), 0, 0.0)
    assert len(indices_of(spread.tell(node(1), 0, (), 0, 0.0).offered)) == 4


def test_who_claims_at_once_gets_an_even_share_until_others_have_it_from_there() -> None:
    spread, claimed = Spread(40, 4), 0
    spread.tell(node(1), 0, (), 0, 0.0)
    for _ in range(20):
        claimed |= spread.tell(node(0), claimed, (), 0, 0.0).offered
    assert claimed.bit_count() == 10
    spread.tell(node(1), claimed & -claimed, (), 0, 0.1)  # one of them has come on
    claimed |= spread.tell(node(0), claimed, (), 0, 0.1).offered
    assert claimed.bit_count() == 11
    assert not spread.tell(node(0), claimed, (), 0, 0.2).offered
    # but who fetches alone, as others have gone, is not held up for ever
    assert spread.tell(node(0), claimed, (), 0, 3.0).offered


def test_who_claims_its_share_and_comes_again_with_nothing_gets_no_other() -> None:
    spread, claimed = Spread(40, 4), 0
    spread.tell(node(1), 0, (), 0, 0.0)
    for _ in range(20):
        claimed |= spread.tell(node(0), claimed, (), 0, 0.0).offered
    assert claimed.bit_count() == 10
    assert not spread.tell(node(0), 0, (), 0, 0.1).offered


def test_who_comes_alone_is_offered_everything_as_it_takes_it() -> None:
    """Late, from several that are whole by now: parts of one share each would not be the whole."""
    spread, held = Spread(40, 4), 0
    for _ in range(20):
        held |= spread.tell(node(0), held, (), 0, 0.0).offered
    assert held == (1 << 40) - 1


def test_nobody_is_told_of_more_than_its_neighbours() -> None:
    spread = Spread(20, 20)
    for number in range(20):
        spread.tell(node(number), 1 << number, (), 0, 0.0)
    first = spread.tell(node(0), 1, (), 0, 0.0)
    assert len(first.holders) == NEIGHBOURS_MAX
    assert node(0) not in dict(first.holders)


def test_patience_follows_the_usual_wait_within_bounds() -> None:
    patience = Patience()
    assert patience.limit_s == PATIENCE_S_MIN
    for _ in range(5):
        patience.took(0.5)
    assert patience.limit_s == 2.0
    for _ in range(20):
        patience.took(1000.0)
    assert patience.limit_s == PATIENCE_S_MAX


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 60), st.integers(1, 12), st.integers(0, 3))
def test_everybody_honest_has_all_in_the_end_and_first_copies_go_out_once(
    chunk_count: int, honest: int, liars: int
) -> None:
    """Liars claim all that they are offered; honest ones take from each other at once."""
    spread = Spread(chunk_count, honest + liars)
    held = dict.fromkeys(range(honest), 0)
    heard = dict.fromkeys(range(honest + liars), 0)
    copies, now_s, whole = Counter[int](), 0.0, (1 << chunk_count) - 1
    for _ in range(400):
        now_s += 0.05
        for number in range(honest + liars):
            mine = held.get(number, whole)
            orphans = [i for i in range(chunk_count) if not mine >> i & 1]
            told = spread.tell(node(number), mine, orphans, heard[number], now_s)
            heard[number] = told.news
            assert len(indices_of(told.offered)) <= OFFERS_MAX
            copies.update(indices_of(told.offered & ~mine))
            if number in held:
                held[number] |= told.offered
                for other, mask in told.holders:
                    if other[0] in held:
                        held[number] |= mask
        if all(mask == whole for mask in held.values()):
            break
    assert all(mask == whole for mask in held.values())
    if not liars:
        assert copies == Counter(range(chunk_count))


def test_who_has_more_by_now_is_named_again_rather_than_another_copy_sent() -> None:
    spread, count = Spread(2, 2), NEIGHBOURS_MAX + 6
    first = spread.tell(node(0), 0, (), 0, 0.0).offered
    for number in range(1, count):  # neighbours of each other; who is offered the rest keeps it
        spread.tell(node(number), 0, (), 0, 0.0)
    spread.tell(node(0), first, (), 0, 0.1)
    far = next(  # one of whose neighbours it is none
        number for number in range(2, count) if not spread.tell(node(number), 0, (), 0, 0.2).holders
    )
    spread.tell(node(far), 0, indices_of(first), 0, 0.3)
    told = spread.tell(node(0), 3, (), 0, PATIENCE_S_MAX)
    told = spread.tell(node(far), 0, indices_of(3 & ~first), told.news, PATIENCE_S_MAX)
    assert (told.offered, told.holders) == (0, ((node(0), 3),))


def test_who_took_a_chunk_is_named_before_who_just_claims_it() -> None:
    spread, count = Spread(1, 1), 4 * NEIGHBOURS_MAX
    for liar in range(count):
        spread.tell(node(liar), 1, (), 0, 0.0)
    assert spread.tell(node(count), 0, (), 0, 0.0).offered
    spread.tell(node(count), 1, (), 0, 0.1)
    for number in range(count + 1, count + 9):
        told = spread.tell(node(number), 0, (0,), 0, 0.2)
        assert node(count) in dict(told.holders)


def test_nobody_is_its_own_neighbour_or_anybody_s_twice() -> None:
    spread, count = Spread(40, 1), 3 * NEIGHBOURS_MAX
    for number in range(count):
        spread.tell(node(number), 0, (), 0, 0.0)
    for number in range(count):
        spread.tell(node(number), 1, (), 0, 0.0)
    for number in range(count):
        assert len(set(named(spread, number))) == len(named(spread, number)) <= NEIGHBOURS_MAX
        assert node(number) not in named(spread, number)


def named(spread: Spread, number: int) -> list[NodeId]:
    return [name for name, _ in spread.tell(node(number), 1, (), 0, 0.0).holders]


def test_who_claims_all_but_a_few_is_offered_those() -> None:
    spread = Spread(4096, 7, b"salt")
    lacked = mask_of([3, 77, 4095])
    every = (1 << 4096) - 1
    assert spread.tell(node(1), every & ~lacked, (), 0, 0.0).offered == lacked
    assert spread.tell(node(1), every, (), 0, 0.1).offered == 0
    before = spread.tell(node(2), 0, (), 0, 0.2).offered
    assert before
    assert not before & lacked  # somebody has these


def test_a_claim_to_all_of_a_large_blob_costs_its_holder_no_more_than_any_other_word() -> None:
    """It was looked for in vain among all chunks, fifty times a second for each who claims it."""
    spread = Spread(1 << 15, 7, b"salt")
    every, none = (1 << (1 << 15)) - 1, 0

    def least_s(number: int, have: int) -> float:
        spread.tell(node(number), have, (), 0, 0.0)
        took_s = []
        for _ in range(8):
            began_s = time.perf_counter()
            spread.tell(node(number), have, (), 0, 0.0)
            took_s.append(time.perf_counter() - began_s)
        return min(took_s)

    assert least_s(2, every) < 20 * least_s(1, none)


def test_who_lacks_few_is_offered_no_more_than_its_share_of_them() -> None:
    spread, lacked = Spread(64, 16), mask_of(range(6))
    every = (1 << 64) - 1
    have = every & ~lacked
    spread.tell(node(0), every, (), 0, 0.0)
    for _ in range(9):
        have |= spread.tell(node(1), have, (), 0, 0.0).offered
    assert (have & lacked).bit_count() == 64 // 16


def test_several_that_have_it_whole_offer_chunks_of_their_own_first() -> None:
    first, other = (Spread(256, 4, salt).tell(node(1), 0, (), 0, 0.0) for salt in (b"one", b"two"))
    assert first.offered != other.offered
    assert first.offered.bit_count() == other.offered.bit_count() == OFFERS_START


def test_what_was_late_goes_out_after_all_that_was_never_out() -> None:
    spread = Spread(12, 2)
    late = spread.tell(node(0), 0, (), 0, 0.0).offered
    assert 0 < late.bit_count() <= 6
    assert not spread.tell(node(1), 0, (), 0, LATER_S).offered & late


def test_the_second_copy_of_what_was_late_is_not_for_who_has_the_first_under_way() -> None:
    spread, others = Spread(8, 2), 0xFE
    assert spread.tell(node(0), others, (), 0, 0.0).offered == 1
    offers = [spread.tell(node(number), others, (), 0, LATER_S).offered for number in (1, 1, 2, 3)]
    assert offers == [1, 1, 1, 0]


def test_of_one_that_claims_more_than_the_blob_has_nobody_is_told_more() -> None:
    spread = Spread(8, 2)
    spread.tell(node(0), 1 << 99 | 1, (), 0, 0.0)
    assert spread.tell(node(1), 0, (), 0, 0.0).holders == ((node(0), 1),)
