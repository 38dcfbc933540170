"""What a daemon is given to keep its history in, and to send traces out, where settings say so."""

from collections.abc import Awaitable, Callable
from functools import partial

from daa_node.adapters.event_file import EventFile
from daa_node.adapters.past_events import logged
from daa_node.adapters.sqlite_history import SqliteHistory
from daa_node.adapters.trace_export import Export, export_traces, sent_to
from daa_node.chronicle.store import HistoryParts
from daa_node.chronicle.traces import Tracer
from daa_node.cli.data_directory import DataDirectory
from daa_node.config import NodeConfig
from daa_node.observability.events import EventLog


def history_of(config: NodeConfig, directory: DataDirectory) -> HistoryParts | None:
    """None where it is off. Nothing is opened yet."""
    if not config.history.is_kept(config.api.listen is not None):
        return None
    store = SqliteHistory(directory.history)
    return HistoryParts(store, config.history, partial(logged, directory.events))


def tracing_of(
    config: NodeConfig, directory: DataDirectory, tracer: Tracer
) -> Callable[[EventLog], Awaitable[None]] | None:
    """The task that exports traces; None where nobody takes them."""
    exports: list[Export] = []
    if config.traces.file:
        exports.append(_written_to(directory, config))
    if config.traces.otlp is not None:
        exports.append(sent_to(config.traces.otlp))
    if not exports:
        return None
    return partial(export_traces, tracer=tracer, exports=exports)


def _written_to(directory: DataDirectory, config: NodeConfig) -> Export:
    """As much as of the event log is kept of them, too."""
    faults: list[str] = []
    file = EventFile(directory.traces, lambda: config.log, faults.append)

    def export(trace: bytes) -> str | None:
        faults.clear()
        file.write_line(trace.decode())
        return faults[0] if faults else None

    return export
