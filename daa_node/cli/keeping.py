"""What a daemon is given to keep its history in, and to send traces out, where settings say so."""

from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

from daa_node.adapters.event_file import EventFile
from daa_node.adapters.past_events import logged
from daa_node.adapters.sqlite_history import SqliteHistory
from daa_node.adapters.trace_export import Export, export_traces, sent_to
from daa_node.chronicle.baseline import FILE_BYTES_MAX, Baseline, baseline_in
from daa_node.chronicle.store import HistoryParts
from daa_node.chronicle.traces import Tracer
from daa_node.cli.data_directory import DataDirectory
from daa_node.config import NodeConfig
from daa_node.errors import UserError
from daa_node.observability.events import EventLog


def history_of(config: NodeConfig, directory: DataDirectory) -> HistoryParts | None:
    """None where it is off. Nothing is opened yet."""
    if not config.history.is_kept(config.api.listen is not None):
        return None
    store = SqliteHistory(directory.history)
    return HistoryParts(store, config.history, partial(logged, directory.events))


def baseline_of(config: NodeConfig, directory: DataDirectory) -> Callable[[], Baseline] | None:
    """What reads the run that is compared with; None where none is named."""
    if config.history.baseline is None:
        return None
    return partial(_baseline_at, directory.root / config.history.baseline)


def _baseline_at(path: Path) -> Baseline:
    """Blocks. Raises UserError."""
    try:
        if not path.is_file():  # a pipe would be waited for
            raise UserError(
                f"history.baseline: {path} is no file: put one there, or name another in "
                "config.yaml (paths start at the node's directory)"
            )
        with path.open("rb") as file:
            text = file.read(FILE_BYTES_MAX + 1)
    except OSError as fault:
        raise UserError(
            f"history.baseline: cannot read {path}: {fault.strerror or fault}"
        ) from None
    if len(text) > FILE_BYTES_MAX:
        raise UserError(f"history.baseline: {path} has more than {FILE_BYTES_MAX} bytes")
    return baseline_in(text, path.name)


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
