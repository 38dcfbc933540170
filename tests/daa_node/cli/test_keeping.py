"""A daemon keeps a history where its settings say so, and nothing else makes the file."""

from pathlib import Path

import pytest

from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.keeping import history_of
from daa_node.config import NodeConfig, load

API = "api: {listen: '127.0.0.1:9180'}\n"


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("", False),
        (API, True),
        (API + "history: {enabled: null}", True),
        (API + "history: {enabled: false}", False),
        (API + "history: {rounds_days: 7}", True),
        ("history: {enabled: true}", True),
    ],
)
def test_it_is_kept_where_the_api_is_unless_the_settings_say_otherwise(
    text: str, is_kept: bool, tmp_path: Path
) -> None:
    parts = history_of(load("config.yaml", text).value, DataDirectory(tmp_path))
    assert (parts is not None) is is_kept


def test_it_is_off_as_it_comes_and_making_it_touches_no_disk(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    assert history_of(NodeConfig(), directory) is None
    parts = history_of(load("config.yaml", "history: {enabled: true}").value, directory)
    assert parts is not None
    assert (parts.config.rounds_days, list(tmp_path.iterdir())) == (28, [])
    parts.store.open()
    assert directory.history.exists()
    parts.store.close()
