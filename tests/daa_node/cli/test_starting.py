"""What settings a daemon does not start with, whose code it runs, and what it tells of itself."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.starting import check_start, once
from daa_node.config import NodeConfig
from daa_node.errors import UserError
from daa_node.genesis import Genesis
from daa_node.training.config import TrainerConfig
from tests.daa_node.cli.test_compose import network
from tests.daa_node.training.own_modules import PACKAGE, job_of

LIGHT = TrainerConfig(contribute=False)


def network_of(builder: str | None) -> Genesis:
    """One whose model somebody has written, and maybe its data set, too."""
    data = SimpleNamespace(builder=builder)
    return cast(Genesis, SimpleNamespace(job=SimpleNamespace(model=job_of().model, data=data)))


def test_only_where_nothing_is_trained_nobodys_code_has_to_be_allowed(tmp_path: Path) -> None:
    directory, made = DataDirectory(tmp_path), network_of("others.data:build")
    with pytest.raises(UserError, match="allow_modules"):
        check_start(made, directory, NodeConfig())
    allowing = NodeConfig(trainer=TrainerConfig(allow_modules=(PACKAGE,)))
    check_start(network_of(None), directory, allowing)
    with pytest.raises(UserError, match="others"):
        check_start(made, directory, allowing)
    check_start(made, directory, NodeConfig(trainer=LIGHT))


def test_nobody_asks_to_train_and_never_does(tmp_path: Path) -> None:
    directory, made = DataDirectory(tmp_path), network_of(None)
    with pytest.raises(UserError, match="enroll is true, which asks to train") as refused:
        check_start(made, directory, NodeConfig(enroll=True, trainer=LIGHT))
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("settings", "admission", "words"),
    [
        ({"enroll": True}, "vouched", "the one by whose invite it came does so by itself"),
        ({"enroll": True}, "open", "once a set has enrolled it"),
        ({}, "vouched", "propose join`. Without a vote it trains with an invite (`daa-node join"),
        ({}, "open", "propose join`. Without a vote it trains with `enroll: true`"),
        ({"enroll": True}, "closed", "trains once it is a validator: `daa-node validators"),
        ({"trainer": {"contribute": False}}, "vouched", "votes once it is a validator"),
    ],
)
def test_who_is_no_founder_is_told_how_it_comes_to_train(
    tmp_path: Path, settings: dict[str, object], admission: str, words: str
) -> None:
    made = network(trainers={"admission": admission})
    told = once(NodeConfig.model_validate(settings), made, DataDirectory(tmp_path))
    assert words in told
    assert ("INVITE" in told) == (admission == "vouched" and not settings.get("trainer"))
