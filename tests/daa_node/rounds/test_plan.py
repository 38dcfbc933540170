"""The plan of a round follows from the certified parent alone, in integers."""

from dataclasses import replace

from daa_dag.checkpoint import ZERO_ID, Contributor, Vertex
from daa_dag.ids import BlobRoot, BlockId, ContributionRoot, NodeId, ValidatorSetRoot
from daa_node.rounds.config import RoundsConfig
from daa_node.rounds.plan import make_plan

ALICE, BOB, CAROL = (NodeId(letter * 32) for letter in (b"a", b"b", b"c"))
ZERO_ROOT = BlobRoot(ZERO_ID)
CONFIG = RoundsConfig(inner_steps_max=20, window_ms=10_000)
TOKENS_PER_STEP = 256


def contributor(author: NodeId, us_per_step: int, weight: int = 5_120) -> Contributor:
    return Contributor(author, ContributionRoot(author), weight, 20, weight, us_per_step, 0, 0)


PARENT = Vertex(
    parents=(),
    height=3,
    training_round=4,
    decided_block=BlockId(ZERO_ID),
    contributors=(contributor(ALICE, 10_000), contributor(BOB, 700_000, weight=100)),
    rule="mean",
    f_agg=0,
    delta_root=ZERO_ROOT,
    model_root=ZERO_ROOT,
    outer_state_root=ZERO_ROOT,
    ledger_root=ZERO_ID,
    validator_set_root=ValidatorSetRoot(ZERO_ID),
    tokens_total=10_000,
)


def test_steps_follow_certified_speed_so_that_all_finish_in_one_window() -> None:
    plan = make_plan(PARENT, [CAROL, BOB, ALICE], CONFIG, TOKENS_PER_STEP, newest_round=4)
    steps = {share.author: share.steps_max for share in plan.shares}
    # 7 s of the window: Alice hits the ceiling, Bob fits ten steps, Carol is new: half the ceiling.
    assert steps == {ALICE: 20, BOB: 10, CAROL: 10}
    assert [share.author for share in plan.shares] == sorted(steps)
    assert plan.round == 5


def test_planned_weights_at_most_double_and_stay_under_the_genesis_cap() -> None:
    plan = make_plan(PARENT, [ALICE, BOB], CONFIG, TOKENS_PER_STEP, newest_round=4)
    alice, bob = plan.share_of(ALICE), plan.share_of(BOB)
    assert alice is not None
    assert bob is not None
    assert alice.weight_max == 20 * TOKENS_PER_STEP
    assert bob.weight_max == 256  # 2 x 100 is under one step's tokens: the least that counts


def test_an_aborted_round_changes_the_number_and_nothing_else() -> None:
    plan = make_plan(PARENT, [ALICE], CONFIG, TOKENS_PER_STEP, newest_round=4)
    again = make_plan(PARENT, [ALICE], CONFIG, TOKENS_PER_STEP, newest_round=5)
    assert again == replace(plan, round=6)


def test_the_excluded_have_no_share() -> None:
    parent = replace(PARENT, excluded=(BOB,))
    plan = make_plan(parent, [ALICE, BOB], CONFIG, TOKENS_PER_STEP, newest_round=4)
    assert plan.share_of(BOB) is None
    assert plan.share_of(ALICE) is not None
