"""`daa-node service`: a systemd unit for one node, hardened as far as training allows.

Two kinds. A system unit runs from boot as the user who owns the node's directory, and sees the rest
of the host read-only. A user unit is one's own: without root, systemd cannot give it a view of the
file system of its own, so it is held by filters of system calls alone.

What stays open has its reason: MemoryDenyWriteExecute, for torch compiles kernels; PrivateDevices,
for a GPU is a device; ProtectHome is read-only, for a virtual environment often lies there.
Source: systemd.service(5), systemd.exec(5), systemd.syntax(7).
"""

import os
import pwd
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from daa_node.cli.options import HERE, Directory
from daa_node.errors import UserError

WRITTEN_BY = "# Written by `daa-node service install`; changes belong in `systemctl edit`.\n"
UNIT_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]{0,63}")  # with - first it would be an option
SYSTEM_UNITS = Path("/etc/systemd/system")
# Where packages of the host have theirs: one of ours of the same name would take its place.
OF_PACKAGES = tuple(Path(top) / "systemd" for top in ("/usr/local/lib", "/usr/lib", "/lib"))
SYSTEMD_RUNS = Path("/run/systemd/system")  # as sd_booted(3) has it
# A drain takes 23 s at most, and then the newest state is written.
STOP_S_MAX = 90
# Of a trio loop that runs: it yields many times a second. A disk may hold it up for a while.
WATCHDOG_S = 120
RESTART_S = 10

service_app = typer.Typer(no_args_is_help=True, help="Have systemd start and watch over a node.")

_EVERYWHERE = """\
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
RestrictNamespaces=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX AF_NETLINK
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged
SystemCallErrorNumber=EPERM
UMask=0077
"""
_OF_THE_SYSTEM = """\
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=read-only
ProtectClock=yes
ProtectControlGroups=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectProc=invisible
PrivateTmp=yes
RemoveIPC=yes
ReadWritePaths={directory}
User={user}
"""
_UNIT = """\
{written_by}[Unit]
Description=daa-compute node in {described}
{after}StartLimitIntervalSec=0

[Service]
Type=notify
NotifyAccess=main
ExecStart={command}
ExecReload=kill -HUP $MAINPID
WorkingDirectory={working_directory}
# the daemon lets its worker finish the round, and ends it then
KillMode=mixed
# the first state of a large model takes long
TimeoutStartSec=infinity
TimeoutStopSec={stop_s}
WatchdogSec={watchdog_s}
Restart=on-failure
RestartSec={restart_s}
# what is wrong with the settings stays so
RestartPreventExitStatus=2
# a worker that is out of memory is started again by the daemon
OOMPolicy=continue
LimitNOFILE=65536
{hardening}
[Install]
WantedBy={target}
"""


@dataclass(frozen=True, slots=True)
class Service:
    """`directory` is absolute; `user` runs a system unit, and None stands for a user unit."""

    directory: Path
    python: str
    user: str | None

    def unit(self) -> str:
        """The text of the unit file. Raises UserError for a path that none can hold."""
        if str(self.directory) != str(self.directory).strip() or self.directory.name[-1:] == "\\":
            raise UserError(f"{str(self.directory)!r} ends as no systemd unit can hold: rename it")
        directory = _quoted(str(self.directory))
        words = (self.python, "-P", "-m", "daa_node", "run", "--dir", str(self.directory))
        hardening, after, target = _EVERYWHERE, "", "default.target"
        if self.user is not None:
            hardening += _OF_THE_SYSTEM.format(directory=directory, user=self.user)
            after = "Wants=network-online.target\nAfter=network-online.target\n"
            target = "multi-user.target"
        return _UNIT.format(
            written_by=WRITTEN_BY,
            described=_as_setting(self.directory),
            after=after,
            command=" ".join(_quoted(word).replace("$", "$$") for word in words),
            working_directory=_as_setting(self.directory),
            stop_s=STOP_S_MAX,
            watchdog_s=WATCHDOG_S,
            restart_s=RESTART_S,
            hardening=hardening,
            target=target,
        )


@service_app.command()
def install(
    directory: Directory = HERE,
    user: Annotated[
        bool, typer.Option("--user", help="For you alone. Usual, unless you are root.")
    ] = False,
    system: Annotated[
        bool, typer.Option("--system", help="From boot, as the owner of D. Usual for root.")
    ] = False,
    name: Annotated[
        str, typer.Option(metavar="NAME", help="Of the unit, when a host has several nodes.")
    ] = "daa-node",
    only_print: Annotated[
        bool, typer.Option("--print", help="Print the unit, and write nothing.")
    ] = False,
) -> None:
    """Write a systemd unit for this node.

    It says what to type then: nothing is started. systemd starts the node again when it fails, and
    hears from it when it is ready. The same command again writes the unit anew.
    """
    from daa_node.cli import report
    from daa_node.cli.data_directory import DataDirectory

    path, control, _ = _place(user, system, name)
    of_system = control == "systemctl"
    DataDirectory(directory).check()
    root = directory.resolve()
    text = Service(root, sys.executable, _owner_of(root) if of_system else None).unit()
    if only_print:
        report.put(text.rstrip("\n"))
        return
    _write(path, text, root)
    report.put(f"{path} is written. To start the node now, and with the machine:")
    report.put(f"  {control} daemon-reload")
    report.put(f"  {control} enable --now {name}")
    if not of_system:
        report.put("  loginctl enable-linger    # so that it runs while you are logged out")
    if not SYSTEMD_RUNS.is_dir():
        report.note(
            "note: systemd does not run this host, so nothing reads that unit. To have the node "
            f"started again without it: daa-node run --supervise --dir {shlex.quote(str(root))}"
        )


@service_app.command()
def remove(
    user: Annotated[bool, typer.Option("--user", help="Your own unit.")] = False,
    system: Annotated[bool, typer.Option("--system", help="The host's unit.")] = False,
    name: Annotated[str, typer.Option(metavar="NAME", help="Of the unit.")] = "daa-node",
) -> None:
    """Remove a unit that `service install` has written.

    The node's directory stays as it is. A unit that still starts with the machine is refused, with
    what to type first.
    """
    from daa_node.adapters.durable_files import storage
    from daa_node.cli import report

    path, control, target = _place(user, system, name)
    with storage(f"remove {path}"):
        if not path.exists():
            raise UserError(
                f"there is no unit at {path}: `service install` wrote none of that name"
            )
        _check_ours(path)
        if os.path.lexists(path.parent / f"{target}.wants" / path.name):
            raise UserError(f"{path} is enabled: run `{control} disable --now {name}` first")
        path.unlink()
    report.put(f"{path} is removed, and the node stays as it is. To have systemd forget it:")
    report.put(f"  {control} daemon-reload")


def _place(user: bool, system: bool, name: str) -> tuple[Path, str, str]:
    """The unit's file, what controls it, and what would start it. Raises UserError."""
    if user and system:
        raise UserError("--user and --system: a unit is of one kind, give one of them")
    if not UNIT_NAME.fullmatch(name):
        raise UserError(f"--name {name!r}: letters, digits, - and _, 64 at most, and no - first")
    if system or (not user and os.geteuid() == 0):
        return SYSTEM_UNITS / f"{name}.service", "systemctl", "multi-user.target"
    return _user_units() / f"{name}.service", "systemctl --user", "default.target"


def _owner_of(root: Path) -> str:
    """Who may run it. Raises UserError where that is root."""
    uid = root.stat().st_uid
    if uid == 0:
        raise UserError(
            f"{root} belongs to root, and a node needs none of root's rights: give it to a user of "
            f"its own (useradd --system daa && chown -R daa: {root}), or take --user"
        )
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _user_units() -> Path:
    """Where systemd looks for units of this user."""
    configured = os.environ.get("XDG_CONFIG_HOME", "")
    home = Path(configured) if configured.startswith("/") else Path.home() / ".config"
    return home / "systemd" / "user"


def _write(path: Path, text: str, root: Path) -> None:
    """Over that of the same node, and nothing else. Raises UserError or StorageFailed."""
    from daa_node.adapters.durable_files import move_durably, storage

    with storage(f"write {path}"):
        _check_ours(path)
        _check_free(path, root)
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(os.fsencode(text))  # the bytes of the path, in any locale
        move_durably(part, path)


def _check_free(path: Path, root: Path) -> None:
    """Raise UserError for a name that another node has, or a unit of the host."""
    for units in OF_PACKAGES:
        theirs = units / path.parent.name / path.name  # .../system, .../user
        if theirs.exists():
            raise UserError(f"{path} would take the place of {theirs}: give another --name")
    if not path.exists():
        return
    setting = re.search(rb"^WorkingDirectory=(.*)$", path.read_bytes(), re.MULTILINE)
    if setting is None or setting[1] == os.fsencode(_as_setting(root)):
        return
    other = Path(os.fsdecode(setting[1]).replace("%%", "%"))
    if (other / "VERSION").exists():  # a node that was moved has left its unit behind
        raise UserError(
            f"{path} is the unit of another node, {other}: give this one another --name"
        )


def _check_ours(path: Path) -> None:
    """Raise UserError for a unit of somebody else's, OSError for one that cannot be read."""
    if path.exists() and not path.read_bytes().startswith(WRITTEN_BY.encode()):
        raise UserError(f"{path} was not written by this command: remove it, or give --name")


def _as_setting(path: Path) -> str:
    return str(path).replace("%", "%%")


def _quoted(word: str) -> str:
    """One word of a unit file. Raises UserError for a character that none holds."""
    if not word.isprintable():
        raise UserError(f"{word!r} has a character that no systemd unit can hold: rename it")
    plain = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{plain}"'
