"""The two doors for HTTP that a daemon may have: the page's, and the operator's own."""

from collections.abc import Callable
from contextlib import closing
from random import Random

from daa_node.adapters.certificate import Certificate
from daa_node.adapters.descriptors import Shortage
from daa_node.adapters.event_file import EventFile
from daa_node.adapters.http_door import HttpDoor
from daa_node.adapters.operator_door import operator_door, public_door
from daa_node.adapters.site_directory import DASHBOARD, read_site
from daa_node.adapters.system_clock import SystemEntropy
from daa_node.adapters.token_files import open_tokens
from daa_node.api.settings_routes import Settings
from daa_node.cli import keeping
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.live_settings import LiveSettings
from daa_node.config import NodeConfig
from daa_node.node_parts import OperatorApi
from daa_node.observability.config import LogConfig
from daa_node.observability.events import PAGE_MISSING, STORAGE_FAILED, EventLog
from daa_node.wire.page_files import Site

# Some ten thousand commands of an operator's programs, and as many before these.
AUDIT = LogConfig(file_bytes_max=2_000_000, files_max=1)


def certificate(config: NodeConfig, directory: DataDirectory) -> Certificate | None:
    """Relative paths start at this node's own directory."""
    if not config.gateway.enabled:
        return None
    return _certificate(directory, config.gateway.tls_certificate, config.gateway.tls_key)


def _certificate(
    directory: DataDirectory, chain: str | None, key: str | None
) -> Certificate | None:
    if chain is None or key is None:
        return None
    root = directory.root.resolve()
    return Certificate(root / chain, root / key)


def page_door(
    config: NodeConfig, certificate: Certificate | None, events: EventLog, shortage: Shortage
) -> HttpDoor | None:
    """For volunteers' browsers; None where the node is no gateway."""
    if not config.gateway.enabled:
        return None
    return HttpDoor(config.gateway, certificate, events, shortage, _lots())


def operator_api(
    settings: LiveSettings, directory: DataDirectory, events: EventLog, shortage: Shortage
) -> tuple[list[HttpDoor], OperatorApi] | None:
    """Its doors, and its tokens, which are made at the first start; None where it is off.

    The caller holds the directory's lock. Raises UserError and StorageFailed (see token_files).
    """
    config = settings.now
    if config.api.listen is None:
        return None
    tokens = open_tokens(directory.root, SystemEntropy())
    certificate = _certificate(directory, config.api.certificate, config.api.key)
    around = events, shortage, _lots(), certificate
    door = operator_door(config.api.listen, *around, config.api.hosts, config.api.behind_proxy)
    of_settings = Settings(settings.told, settings.change)
    public = None
    if config.api.public_listen is not None:
        public = public_door(config.api.public_listen, *around, config.api.hosts)
    page = dashboard(events)
    beside = keeping.baseline_of(config, directory)
    api = OperatorApi(door, tokens, _audit(directory, events), of_settings, page, beside, public)
    return [door] if public is None else [door, public], api


def _audit(directory: DataDirectory, events: EventLog) -> Callable[[str], None]:
    def lost(why: str) -> None:
        events.emit(STORAGE_FAILED, detail=why)

    def write(line: str) -> None:
        # few lines, and far apart: no file stays open for them
        with closing(EventFile(directory.audit, lambda: AUDIT, lost, mode=0o600)) as file:
            file.write_line(line)

    return write


def dashboard(events: EventLog) -> Site:
    """The operator's page; without files where it was not built, or cannot be read."""
    try:
        return Site(read_site(DASHBOARD))
    except OSError as fault:
        events.emit(PAGE_MISSING, detail=f"cannot read the dashboard: {fault}")
        return Site({})


def _lots() -> Random:
    return Random(SystemEntropy().bytes(16))
