"""Transfers share access links evenly: against closed forms, in small worlds and in large ones."""

import pytest

from simnet.heap.training_links import Access, AccessLinks
from simnet.heap.training_reach import Cut, classes_of
from simnet.links import NS

MB = 1_000_000


def finish_s(links: AccessLinks) -> dict[tuple[int, int], float]:
    """When each node holds each update, by (author, node), if nothing else happens."""
    found: dict[tuple[int, int], float] = {}
    while (at_ns := links.next_ns()) is not None:
        for held in links.advance(at_ns).held:
            found |= {(held.author, node): at_ns / NS for node in held.nodes}
    return found


def links_of(*access: tuple[float, float]) -> AccessLinks:
    links = AccessLinks([Access(up, down) for up, down in access], ["node"] * len(access), 0.0)
    links.new_round()
    return links


def test_an_author_serves_each_of_the_others_over_its_own_link() -> None:
    links = links_of(*[(1 * MB, 100 * MB)] * 4)
    links.offer(0, 2 * MB)
    assert finish_s(links) == {(0, node): pytest.approx(6.0) for node in (1, 2, 3)}


def test_a_thin_receiver_is_late_alone() -> None:
    links = links_of((10 * MB, MB), (10 * MB, 100 * MB), (10 * MB, 100 * MB), (10 * MB, 0.5 * MB))
    for author in (0, 1):
        links.offer(author, MB)
    found = finish_s(links)
    assert found[0, 3] == found[1, 3] == pytest.approx(4.0)  # two megabytes at half a one a second
    assert found[0, 2] == pytest.approx(0.3)  # its author's link, shared by three
    assert found[1, 0] == pytest.approx(1.0)


def test_no_stream_is_faster_than_a_window_each_round_trip() -> None:
    links = AccessLinks([Access(1e12, 1e12)] * 2, ["node"] * 2, round_trip_s=1.0)
    links.new_round()
    links.offer(0, 80 * 2**20)
    assert finish_s(links)[0, 1] == pytest.approx(10.0)


def test_who_holds_an_update_serves_it_once_its_author_is_gone() -> None:
    links = links_of((10 * MB, 10 * MB), (10 * MB, 10 * MB), (10 * MB, MB))
    links.offer(0, 10 * MB)
    links.advance(3 * NS)  # node 1 has had it after 2 s, node 2 three tenths
    links.set_active(0, False)
    assert links.source_of(0, 2) == 1
    assert finish_s(links)[0, 2] == pytest.approx(10.0)


def test_a_transfer_waits_for_its_receiver_and_goes_on_where_it_stood() -> None:
    links = links_of((MB, MB), (MB, MB))
    links.offer(0, 10 * MB)
    links.advance(4 * NS)
    links.set_active(1, False)
    assert links.next_ns() is None
    links.advance(100 * NS)
    links.set_active(1, True)
    assert finish_s(links)[0, 1] == pytest.approx(106.0)


def test_a_lost_disk_fetches_again_what_it_held() -> None:
    links = links_of((MB, MB), (MB, MB), (MB, MB))
    links.offer(0, MB)
    assert finish_s(links)[0, 1] == pytest.approx(2.0)
    links.lose_disk(1)
    assert finish_s(links) == {(0, 1): pytest.approx(3.0)}


def test_a_slow_link_heals() -> None:
    links = links_of((MB, MB), (MB, MB))
    links.slow(0, 10.0)
    links.offer(0, MB)
    links.advance(5 * NS)
    links.slow(0, 1.0)
    assert finish_s(links)[0, 1] == pytest.approx(5.5)


def test_catching_up_takes_what_all_the_others_can_give_together() -> None:
    links = links_of((MB, 10 * MB), (MB, 10 * MB), (MB, 10 * MB))
    links.pull(0, 10 * MB)
    at_ns = links.next_ns()
    assert at_ns is not None
    assert at_ns / NS == pytest.approx(5.0)  # two uplinks of a megabyte a second
    assert links.advance(at_ns).pulled == [0]


def test_nodes_that_are_alike_share_a_column_and_one_of_them_may_leave() -> None:
    """Beyond 64 nodes; 99 receivers at one author's rate, and the 98 left when one is gone."""
    links = links_of(*[(99 * MB, 100 * MB)] * 100)
    links.offer(7, 10 * MB)
    links.advance(5 * NS)
    links.set_active(9, False)  # half of it is there
    found = finish_s(links)
    assert (7, 9) not in found
    assert {round(at_s, 2) for at_s in found.values()} == {9.95}  # 5 + 5 x 98 / 99
    assert len(found) == 98
    links.set_active(9, True)
    assert list(finish_s(links)) == [(7, 9)]


def cut(*parts: set[int]) -> list[Cut]:
    return [Cut(tuple(frozenset(part) for part in parts), 0)]


def test_nothing_moves_over_a_cut_and_what_was_under_way_goes_on_once_it_has_healed() -> None:
    links = links_of(*[(MB, MB)] * 3)
    links.offer(0, MB)
    links.advance(1 * NS)
    links.set_classes(classes_of(cut({0, 1}, {2}), 3))
    assert finish_s(links) == {(0, 1): pytest.approx(1.5)}  # alone on its author's link now
    assert links.source_of(0, 2) == -1
    links.advance(10 * NS)
    links.set_classes(classes_of((), 3))
    assert finish_s(links) == {(0, 2): pytest.approx(10.5)}


def test_who_is_cut_off_from_an_author_fetches_from_a_holder_that_it_reaches() -> None:
    """Nodes 0 and 2 reach node 1, and not each other."""
    links = links_of(*[(MB, MB)] * 3)
    links.offer(0, MB)
    links.set_classes(classes_of(cut({0, 1}, {1, 2}), 3))
    assert finish_s(links) == {(0, 1): pytest.approx(1.0), (0, 2): pytest.approx(2.0)}
    assert links.source_of(0, 2) == 1
    links.pull(2, MB)
    at_ns = links.next_ns()
    assert at_ns is not None
    assert at_ns / NS == pytest.approx(3.0)  # node 1 alone gives it


def test_receivers_that_are_alike_part_where_a_cut_parts_them() -> None:
    links = links_of(*[(99 * MB, 100 * MB)] * 100)
    links.offer(7, 10 * MB)
    links.advance(5 * NS)
    links.set_classes(classes_of(cut(set(range(50)), set(range(50, 100))), 100))
    found = finish_s(links)
    assert len(found) == 49
    assert {round(at_s, 2) for at_s in found.values()} == {7.47}  # 5 + 5 x 49 / 99
    links.set_classes(classes_of((), 100))
    assert len(finish_s(links)) == 50
