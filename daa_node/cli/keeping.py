"""What a daemon is given to keep its history in, where its settings say so."""

from functools import partial

from daa_node.adapters.past_events import logged
from daa_node.adapters.sqlite_history import SqliteHistory
from daa_node.chronicle.store import HistoryParts
from daa_node.cli.data_directory import DataDirectory
from daa_node.config import NodeConfig


def history_of(config: NodeConfig, directory: DataDirectory) -> HistoryParts | None:
    """None where it is off. Nothing is opened yet."""
    if not config.history.enabled:
        return None
    store = SqliteHistory(directory.history)
    return HistoryParts(store, config.history, partial(logged, directory.events))
