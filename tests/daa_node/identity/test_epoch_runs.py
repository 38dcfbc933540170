"""Who votes when is told for each epoch, and takes room for changes alone."""

import random

from daa_consensus.committee import Committee, Validator
from daa_dag.ids import NodeId, digest_of
from daa_node.identity.epoch_runs import Epoch, EpochRuns

NAMES = sorted(NodeId(bytes(digest_of(b"%d" % number))) for number in range(3))


def epoch_of(stake: int) -> Epoch:
    return Epoch(Committee(tuple(Validator(name, stake) for name in NAMES)), tuple(NAMES))


def test_each_epoch_has_what_it_began_with() -> None:
    chance = random.Random(7)
    plain, kept = [epoch_of(1)], EpochRuns([(epoch_of(1), 1)])
    for _ in range(200):
        epoch = epoch_of(chance.choice((1, 1, 1, 2)))
        plain.append(epoch)
        kept.append(epoch)
        for each in (kept, kept.copy(), EpochRuns(kept.runs())):
            assert len(each) == len(plain)
            assert [each.at(number) for number in range(len(plain))] == plain
            assert each.newest == each.at(len(plain)) == plain[-1]


def test_a_copy_is_led_on_alone() -> None:
    kept = EpochRuns([(epoch_of(1), 5)])
    ahead = kept.copy()
    ahead.append(epoch_of(2))
    assert kept.runs() == [(epoch_of(1), 5)]
    assert ahead.runs() == [(epoch_of(1), 5), (epoch_of(2), 1)]


def test_a_year_in_which_nothing_changes_is_one_run() -> None:
    kept = EpochRuns([(epoch_of(1), 1)])
    for _ in range(131_400):  # epochs of four rounds of a minute
        kept.append(epoch_of(1))
    assert kept.runs() == [(epoch_of(1), 131_401)]
    assert (len(kept._epochs), len(kept._firsts)) == (1, 1)
