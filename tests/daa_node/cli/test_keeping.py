"""A daemon keeps a history where its settings say so, and nothing else makes the file."""

from pathlib import Path

from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.keeping import history_of
from daa_node.config import NodeConfig, load


def test_it_is_off_as_it_comes_and_making_it_touches_no_disk(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    assert history_of(NodeConfig(), directory) is None
    parts = history_of(load("config.yaml", "history: {enabled: true}").value, directory)
    assert parts is not None
    assert (parts.config.rounds_days, list(tmp_path.iterdir())) == (28, [])
    parts.store.open()
    assert directory.history.exists()
    parts.store.close()
