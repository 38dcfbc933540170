"""Where peers say that they stand, and what of it the machine need not be stepped with."""

import random
from copy import deepcopy

from daa_consensus.bft.catch_up import CatchUp, Standing
from daa_consensus.bft.events import PeerPosition
from daa_consensus.committee import Committee, Validator
from tests.daa_consensus.bft.simulation import node_id

DELTA_NS = 10
MEMBERS = [node_id(index) for index in range(3)]
STRANGER = node_id(9)


def test_what_is_no_news_changes_nothing_and_makes_no_offer_due() -> None:
    skipped = told = 0
    for seed in range(200):
        chance = random.Random(seed)
        committee = Committee(tuple(Validator(node, 1) for node in sorted(MEMBERS)))
        heard, mine, now_ns = CatchUp(committee, DELTA_NS), Standing(0, 1, 0), 0
        for _ in range(60):
            now_ns += chance.choice([0, 1, DELTA_NS])
            if chance.random() < 0.3:
                mine = Standing(0, mine.view + 1, chance.randint(mine.finalized_view, mine.view))
            view = max(0, mine.view + chance.randint(-1, 1))
            peer = chance.choice([*MEMBERS, STRANGER])
            said = PeerPosition(peer, 0, view, max(0, view - chance.randint(1, 2)))
            if heard.is_news(said, mine):
                told += 1
                heard.note(now_ns, said, mine)
                continue
            skipped += 1
            before = deepcopy((heard._slots, heard._lagging, heard.ahead_of(0, mine.view)))
            assert not heard.note(now_ns, said, mine)
            assert (heard._slots, heard._lagging, heard.ahead_of(0, mine.view)) == before
    assert skipped > 1_000
    assert told > 1_000


def test_who_stays_behind_is_news_each_time() -> None:
    heard = CatchUp(Committee((Validator(MEMBERS[0], 1),)), DELTA_NS)
    behind, mine = PeerPosition(MEMBERS[0], 0, 2, 1), Standing(0, 3, 2)
    for _ in range(5):
        assert heard.is_news(behind, mine)
        heard.note(0, behind, mine)
    assert heard.is_news(PeerPosition(MEMBERS[0], 0, 3, 2), mine)  # which ends the watch
