"""A link delays, orders, drops and carries what its model says: against closed forms."""

import random
from dataclasses import replace

import pytest

from simnet.world.links import MILLION, MS, NS, RETRANSMITS_MAX, Link, LinkModel

MBIT_S = 1_000_000
KB = 1000


def link(model: LinkModel, seed: int = 1) -> Link:
    return Link(model, random.Random(seed))


def test_a_message_takes_its_latency_and_no_more_on_an_idle_unlimited_link() -> None:
    one = link(LinkModel(latency_ns=30 * MS))
    assert one.arrival_ns(5, 1) == 5 + 30 * MS
    assert one.arrival_ns(5, 1 << 30) == 5 + 30 * MS
    assert (one.carried, one.dropped) == (2, 0)


def test_messages_wait_for_those_before_them_at_the_rate_of_the_link() -> None:
    one = link(LinkModel(latency_ns=10 * MS, bits_per_s=8 * MBIT_S))
    # 1 kB at 8 Mbit/s is one millisecond
    assert [one.arrival_ns(0, KB) for _ in range(3)] == [11 * MS, 12 * MS, 13 * MS]
    assert one.arrival_ns(100 * MS, KB) == 111 * MS


def test_what_would_wait_longer_than_the_queue_is_lost() -> None:
    one = link(LinkModel(bits_per_s=8 * MBIT_S, queue_ns=10 * MS))
    arrived = [one.arrival_ns(0, KB) for _ in range(20)]
    # ten wait at most 10 ms, the eleventh exactly that
    assert [at is not None for at in arrived] == [True] * 11 + [False] * 9
    assert (one.carried, one.dropped) == (11, 9)
    assert one.arrival_ns(5 * MS, KB) == 12 * MS


def test_a_stream_waits_where_a_datagram_is_lost() -> None:
    one = link(LinkModel(bits_per_s=8 * MBIT_S, queue_ns=10 * MS))
    assert [one.stream_arrival_ns(0, KB) for _ in range(20)][-1] == 20 * MS
    assert one.dropped == 0


def test_jitter_is_spread_evenly_over_its_range_and_keeps_the_order() -> None:
    one = link(LinkModel(latency_ns=20 * MS, jitter_ns=10 * MS))
    apart = [one.arrival_ns(i * NS, 1) for i in range(4000)]
    late_ms = [((at or 0) - i * NS) / MS - 20 for i, at in enumerate(apart)]
    assert min(late_ms) >= 0
    assert max(late_ms) <= 10
    assert sum(late_ms) / len(late_ms) == pytest.approx(5, abs=0.25)
    close = [one.arrival_ns(5000 * NS + i, 1) or 0 for i in range(500)]
    assert close == sorted(close)


@pytest.mark.parametrize("percent", [1, 10, 50])
def test_the_share_of_lost_messages_is_the_link_s(percent: int) -> None:
    one = link(LinkModel(loss_ppm=percent * MILLION // 100))
    lost = sum(one.arrival_ns(i, 1) is None for i in range(100_000))
    assert lost / 100_000 == pytest.approx(percent / 100, rel=0.1)
    assert (one.dropped, one.carried) == (lost, 100_000 - lost)


def test_a_link_that_loses_everything_delivers_no_datagram_and_ends_a_stream_s_wait() -> None:
    one = link(LinkModel(latency_ns=MS, loss_ppm=MILLION))
    assert one.arrival_ns(0, 1) is None
    assert one.stream_arrival_ns(0, 1) == MS + RETRANSMITS_MAX * 2 * MS


def test_a_lost_segment_of_a_stream_costs_round_trips_and_holds_back_what_follows() -> None:
    one = link(LinkModel(latency_ns=10 * MS, loss_ppm=MILLION // 5))
    arrivals = [one.stream_arrival_ns(i * NS, 1) for i in range(5000)]
    extra = [(at - i * NS - 10 * MS) / (20 * MS) for i, at in enumerate(arrivals)]
    assert all(each == int(each) for each in extra)
    assert sum(extra) / len(extra) == pytest.approx(0.25, rel=0.1)  # p / (1 - p)
    close = [one.stream_arrival_ns(6000 * NS + i, 1) for i in range(500)]
    assert close == sorted(close)
    assert len(set(close)) < 200  # they wait behind the lost ones


def test_segments_that_are_lost_side_by_side_are_sent_again_side_by_side() -> None:
    one = link(LinkModel(latency_ns=10 * MS, loss_ppm=MILLION))
    longest_ns = 10 * MS + RETRANSMITS_MAX * 20 * MS
    assert [one.stream_arrival_ns(i * MS, 1) for i in range(50)] == [
        longest_ns + i * MS for i in range(50)
    ]


def test_a_link_that_reorders_lets_some_messages_overtake_by_at_most_twice_the_latency() -> None:
    one = link(LinkModel(latency_ns=10 * MS, reorder_ppm=MILLION // 10))
    arrivals = [one.arrival_ns(i * MS, 1) or 0 for i in range(2000)]
    assert arrivals != sorted(arrivals)
    late = [at - i * MS for i, at in enumerate(arrivals)]
    assert min(late) == 10 * MS
    assert 25 * MS < max(late) <= 30 * MS
    delayed = sum(each > 10 * MS for each in late)
    assert delayed / 2000 == pytest.approx(0.1, rel=0.3)


def test_a_slowed_link_is_slower_in_latency_and_rate_and_no_other_way() -> None:
    model = LinkModel(10 * MS, 2 * MS, 8 * MBIT_S, 5, 7, NS)
    assert model.slowed(4) == LinkModel(40 * MS, 8 * MS, 2 * MBIT_S, 5, 7, 4 * NS)


def test_a_link_can_be_slowed_to_a_crawl_but_not_into_an_unlimited_one() -> None:
    crawl = LinkModel(bits_per_s=500).slowed(1000)
    assert crawl.bits_per_s == 1
    assert LinkModel().slowed(1000).bits_per_s == 0


def test_one_seed_one_story_whatever_else_the_model_draws() -> None:
    model = LinkModel(10 * MS, 5 * MS, MBIT_S, 50_000, 10_000)
    stories = [
        [each.arrival_ns(i * MS, 100) for i in range(300)]
        for each in (link(model), link(replace(model)), link(model, 2))
    ]
    assert stories[0] == stories[1] != stories[2]
