"""One file for whoever helps: what doctor found, and what led to it, without secrets (redaction).

    README.txt      what is in it, and what was taken out
    about.json      versions of this program, of Python and of what it is built on; the system
    findings.json   as `doctor --json`
    settings.json   each setting
    network.json    name, chain id and sizes of the network
    status.json, peers.json    of the daemon, if one answers
    events.jsonl    the newest events        worker.log, daemon.log    their ends

Each member has a bound, and the archive is made in memory: what is written is all of it or nothing.
It is a new file of mode 0600; none is overwritten.
"""

import io
import json
import locale
import os
import platform
import sys
import tarfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

from daa_node import config as node_config
from daa_node.adapters.durable_files import storage
from daa_node.cli.data_directory import STORE_VERSION, DataDirectory
from daa_node.cli.doctor.findings import Finding
from daa_node.cli.doctor.redaction import PATH, Redactor, redactor_of
from daa_node.cli.doctor.scene import Scene, lines_at_end, tail_of
from daa_node.config import NodeConfig
from daa_node.errors import UserError
from daa_node.genesis import Genesis
from daa_node.observability.events import as_line
from daa_node.wire import protocols

EVENTS_BYTES_MAX = 2**20  # some thousand of the newest
LOG_BYTES_MAX = 64 * 1024  # of each other log, its end
MEMBER_BYTES_MAX = 2 * 2**20  # of what a daemon tells: the peers of a large network
PACKAGES = (
    "daa-compute",
    "daa-compute-page",
    "torch",
    "trio",
    "libp2p",
    "numpy",
    "pydantic",
    "blake3",
)
README = """\
What `daa-node doctor --bundle` wrote. It holds no key, no token and no invite. Taken out were also
paths, public addresses, names of hosts, and the name of the user. What stands for them:
<secret> <invite> <dir> (the directory of the node) <home> <packages> <path> <host> <user>
<ip-N> <host-N> <mail>

Ids of nodes, peers, vertices and chains stay: everybody in the network knows them. So do words
that other nodes have sent. Look through it before you send it.

"""


def check_new(path: Path) -> None:
    """Raise UserError for a file that is there, or one that can have no place."""
    if os.path.lexists(path):
        raise UserError(f"{path} exists: a bundle overwrites nothing, name another file")
    if not path.parent.is_dir():
        raise UserError(f"{path}: {path.parent} is no directory: make it, or name another file")


def members_of(scene: Scene, findings: Sequence[Finding]) -> dict[str, bytes]:
    """By name; of what is no node's directory the findings alone."""
    redactor = redactor_of(scene.directory, scene.config, scene.made, _texts(scene, findings))
    members = {
        "about.json": _json(redactor, _about()),
        "findings.json": _json(redactor, [asdict(finding) for finding in findings]),
    }
    if "directory" not in scene.faults:
        members |= dict(_of_node(scene, redactor))
    listed = "".join(f"{name}  {len(body)} bytes\n" for name, body in members.items())
    return {"README.txt": (README + listed).encode(), **members}


def _texts(scene: Scene, findings: Sequence[Finding]) -> Iterator[str]:
    """Whatever tells of hosts, as it is."""
    yield from (finding.cause for finding in findings)
    if "directory" in scene.faults:
        return
    yield "" if scene.config is None else json.dumps(_settings(scene.config))
    yield json.dumps([scene.status, scene.peers])
    yield from (event.decode(errors="replace") for event in _newest(scene.directory.events))
    yield from (lines_at_end(path, LOG_BYTES_MAX) for path in _logs(scene.directory))


def _of_node(scene: Scene, redactor: Redactor) -> Iterator[tuple[str, bytes]]:
    directory = scene.directory
    if scene.config is not None:
        yield "settings.json", _json(redactor, _settings(scene.config))
    if scene.made is not None:
        yield "network.json", _json(redactor, _network(scene.made))
    if scene.status:
        yield "status.json", _json(redactor, scene.status)
        yield "peers.json", _json(redactor, scene.peers)
    yield "events.jsonl", _events(directory.events, redactor)
    for path in _logs(directory):
        told = lines_at_end(path, LOG_BYTES_MAX)
        if told:
            yield path.name, redactor.text(told).encode()


def _logs(directory: DataDirectory) -> tuple[Path, Path]:
    return directory.trainer / "worker.log", directory.root / "daemon.log"


def write(path: Path, members: Mapping[str, bytes]) -> int:
    """Its bytes. Raises UserError if there is such a file, StorageFailed when the disk refuses."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for name, body in members.items():
            entry = tarfile.TarInfo(f"daa-bundle/{name}")
            entry.size, entry.mode, entry.mtime = len(body), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(body))
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with storage(f"write {path}"):
        try:
            descriptor = os.open(path, flags, 0o600)
        except FileExistsError:
            check_new(path)
            raise
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(packed.getvalue())
                file.flush()
                os.fsync(file.fileno())
        except OSError:
            with suppress(OSError):
                path.unlink()
            raise
    return len(packed.getvalue())


def _json(redactor: Redactor, value: Any) -> bytes:
    size_bytes = len(json.dumps(value))
    if size_bytes > MEMBER_BYTES_MAX:
        value = {"left_out": f"{size_bytes} bytes, at most {MEMBER_BYTES_MAX}"}
    return json.dumps(redactor.value(value), indent=1).encode() + b"\n"


def _newest(path: Path) -> list[bytes]:
    """Lines of the event log, oldest first."""
    tail = tail_of(path, EVENTS_BYTES_MAX)
    older = tail_of(path.with_name(f"{path.name}.1"), EVENTS_BYTES_MAX - len(tail))
    return (older + tail).splitlines()


def _events(path: Path, redactor: Redactor) -> bytes:
    """The newest, oldest first; lines that are no event left out."""
    kept = []
    for line in _newest(path):
        try:
            event = json.loads(line)
            if isinstance(event, dict):
                kept.append(as_line(redactor.value(event)).encode() + b"\n")
        except (ValueError, RecursionError):
            continue  # cut at the bound, or torn by a power cut
    return b"".join(kept)


def _settings(config: NodeConfig) -> dict[str, Any]:
    """Paths, also relative ones, left out."""
    found: dict[str, Any] = {}
    for keys, value in node_config.values(config):
        held: Any = config
        for key in keys:
            held = getattr(held, key)
        is_path = isinstance(held, Path)
        found[".".join(keys)] = PATH if is_path else value
    return found


def _network(made: Genesis) -> dict[str, Any]:
    job = made.job
    return {
        "name": job.name,
        "chain_id": made.chain_id.hex(),
        "validators": len(made.body.validators),
        "quorum": made.committee.quorum,
        "stake": made.committee.total,
        "trainers": len(made.body.trainers),
        "model": job.model.kind,
        "parameters": job.model.parameter_count(),
        "data": job.data.kind,
        "rounds": job.rounds.model_dump(mode="json"),
        "agreement": job.agreement.model_dump(mode="json"),
        "updates": job.updates.model_dump(mode="json"),
        "end": job.end.model_dump(mode="json"),
    }


def _about() -> dict[str, Any]:
    return {
        "made_at": time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime()),
        "packages": {name: _version(name) for name in PACKAGES},
        "protocol_version": protocols.PROTOCOL_VERSION,
        "store_version": STORE_VERSION,
        "python": sys.version,
        "system": platform.platform(),
        "machine": platform.machine(),
        "cores": os.cpu_count(),
        "encoding": [locale.getpreferredencoding(False), sys.getfilesystemencoding()],
    }


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None  # torch is not everywhere
