"""One node's directory on disk: what lies where, who may use it, and which program wrote it.

D/VERSION      format of everything below; a newer one is refused
D/config.yaml  this node's settings          D/genesis.json  what its network is
D/keys/        0700, files 0600              D/node.lock     held by the running daemon
D/control.sock 0600                          D/events.jsonl  the event log, rotated
D/chain/       everything certified          D/work/         caches: states, updates
D/agreement/   what this node signed         D/trainer/      the worker's own
D/network      the chain id all that is of   D/networks/     what it has of other networks
D/api-read.token, D/api-admin.token  0600: only where `api.listen` is set (see token_files)
D/history/     rounds and contributions for years, where history.enabled or api.listen is set
D/traces.jsonl one round a line, rotated: only where `traces.file` is set
D/dashboard.html  0600: leads a browser to the dashboard (see cli.dashboard)
D/api-audit.jsonl  0600: what was asked of it there that may change it
D/tags.json    names that its operator gave to vertices
D/trusted      vertices that the chains of its networks must hold (see trusted)
D/weights.safetensors  first weights, where the network began with some; members have them, too
"""

import errno
import fcntl
import os
import shlex
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from daa_node.adapters import daemon_lock
from daa_node.adapters.durable_files import sync
from daa_node.errors import NodeError, StorageFailed, UserError

STORE_VERSION = 2  # 1: no packs in chain/; raised with each format of cli.store_formats, too
STORE_VERSION_MIN = 1  # whose directory the next run makes one of ours
VERSION_DIGITS_MAX = 9  # what has more is no number that a program wrote
# What belongs to one network, and is put aside while the node is in another one. The list of chains
# for which the keys have begun to sign stays: it is of all of them.
OF_A_NETWORK = ("chain", "work", "trainer", "history", "agreement/wal", "agreement/guard")
NAME_CHARACTERS = 16  # of a chain id, in a directory's name
TEXT_BYTES_MAX = 64 * 1024 * 1024  # a genesis of the largest network is a quarter of this


class DataDirectory:
    """Paths below `root`. Making one touches nothing."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.version = root / "VERSION"
        self.begun = root / "VERSION.part"  # until a node is whole
        self.config = root / "config.yaml"
        self.genesis = root / "genesis.json"
        self.weights = root / "weights.safetensors"
        self.keys = root / "keys"
        self.lock = root / daemon_lock.NAME
        self.control = root / "control.sock"
        self.events = root / "events.jsonl"
        self.traces = root / "traces.jsonl"
        self.audit = root / "api-audit.jsonl"
        self.chain = root / "chain"
        self.work = root / "work"
        self.agreement = root / "agreement"
        self.trainer = root / "trainer"
        self.history = root / "history" / "rounds.sqlite"
        self.tags = root / "tags.json"
        self.trusted = root / "trusted"
        self.network = root / "network"
        self.networks = root / "networks"

    def create(self) -> None:
        """Make the directory, 0700; no node yet, until `complete`.

        Raises UserError if anything is there already.
        """
        self.check_free()
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
            version = self.begun.open("x")  # of two inits at once, one has the directory
        except OSError as failure:
            raise StorageFailed(f"cannot create {self.root}: {failure.strerror}") from failure
        try:
            with version:
                version.write(f"{STORE_VERSION}\n")
        except OSError as failure:
            self.clear()
            raise StorageFailed(f"cannot create {self.root}: {failure.strerror}") from failure

    def is_free(self) -> bool:
        """Whether nothing is here. Raises UserError for what cannot hold a node."""
        try:
            return not any(self.root.iterdir())
        except FileNotFoundError:
            return True
        except NotADirectoryError:
            raise UserError(f"{self.root} is a file: choose another --dir") from None
        except OSError as failure:
            raise UserError(f"cannot look into {self.root}: {failure.strerror}") from None

    def check_free(self) -> None:
        """Raise UserError if anything is here already."""
        if not self.is_free():
            self._check_whole()
            raise UserError(
                f"{self.root} is not empty: a node's directory is never overwritten; "
                "choose another --dir"
            )

    def complete(self) -> None:
        """All that makes a node lies here: from now on it is one. Raises StorageFailed."""
        try:
            sync(self.begun)
            self.begun.rename(self.version)
            sync(self.root)
        except OSError as failure:
            raise StorageFailed(f"cannot create {self.root}: {failure.strerror}") from failure

    def clear(self) -> None:
        """Remove what `create` and its caller have just made: for a caller that cannot go on."""
        for made in (self.keys, self.agreement):
            shutil.rmtree(made, ignore_errors=True)
        with suppress(OSError):
            self.config.unlink(missing_ok=True)
            self.genesis.unlink(missing_ok=True)
            self.trusted.unlink(missing_ok=True)
            self.version.unlink(missing_ok=True)
            self.begun.unlink(missing_ok=True)
            self.root.rmdir()

    def _check_whole(self) -> None:
        if self.begun.exists() and not self.version.exists():
            raise UserError(
                f"{self.root} holds half a node: its `daa-node init` was ended in the middle. No "
                f"network knows its keys: remove {self.root}, and make the node again"
            )

    def check(self) -> None:
        """Raise UserError unless this is a node's directory that this program can read.

        Raises StorageFailed for a disk that fails.
        """
        try:
            self._check()
        except OSError as failure:
            told = f"cannot look into {self.root}: {failure.strerror}"
            if failure.errno in (errno.EIO, errno.ESTALE, errno.ETIMEDOUT):  # it may be back soon
                raise StorageFailed(f"{told}; look at its disk (`dmesg`)") from None
            raise UserError(f"{told}; run daa-node as the owner of it") from None

    def is_readable(self) -> bool:
        """Whether a node is here, and on a disk that answers."""
        try:
            self.check()
        except NodeError:
            return False
        return True

    def _check(self) -> None:
        named = shlex.quote(str(self.root))
        if not self.root.is_dir():
            raise UserError(
                f"there is no node in {self.root}: say with --dir where yours is, or make one with "
                f"`daa-node init --dir {named}`"
            )
        self._check_whole()
        try:
            text = self.version.read_text().strip()
        except FileNotFoundError:
            raise UserError(
                f"{self.root} holds no node (it has no file VERSION): say with --dir where yours "
                "is, or make one with `daa-node init --dir D`"
            ) from None
        except (OSError, UnicodeDecodeError) as failure:
            raise UserError(f"cannot read {self.version}: {failure}") from None
        if not (text.isascii() and text.isdigit() and len(text) <= VERSION_DIGITS_MAX):
            raise UserError(f"{self.version} holds {text[:40]!r}, not a version number")
        if int(text) > STORE_VERSION:
            raise UserError(
                f"{self.root} was written by a newer daa-node: its store has version {text}, this "
                f"program reads up to {STORE_VERSION}; update the program"
            )
        if int(text) < STORE_VERSION_MIN:
            raise UserError(
                f"{self.version} says {text}, and this program reads directories from version "
                f"{STORE_VERSION_MIN} on; restore the file, or run the program that wrote it"
            )

    def upgrade(self) -> None:
        """What this program writes from now on, an older one is to refuse. Raises StorageFailed."""
        try:
            if int(self.version.read_text()) < STORE_VERSION:
                write_durably(self.version, f"{STORE_VERSION}\n".encode())
        except OSError as failure:
            raise StorageFailed(f"cannot write {self.version}: {failure}") from failure

    def take_up(self, chain: str) -> Path | None:
        """Make this the directory of a node of `chain`; where what it has of another one went.

        None if it was of no other. Whoever is killed in the middle calls this again, with the same
        chain or another: each thing lies in one of two places, and what is of `chain` comes back.
        Raises StorageFailed.
        """
        aside = None
        try:
            held = self._network_held(chain)
            if held != chain:
                aside = self._aside(held)
                _move(self.root, aside)
            if held != chain or not self.network.exists():
                write_durably(self.network, f"{chain}\n".encode())
            _move(self._aside(chain), self.root)
        except (OSError, UnicodeDecodeError) as failure:
            raise StorageFailed(f"cannot change the network of {self.root}: {failure}") from failure
        return aside

    def work_of(self, chain: str) -> Path:
        """Where `work` of that network lies, if it is anywhere: here, or put aside."""
        try:
            is_here = self._network_held(chain) == chain
        except (OSError, UnicodeDecodeError) as failure:
            raise StorageFailed(f"cannot read {self.network}: {failure}") from failure
        return (self.root if is_here else self._aside(chain)) / self.work.name

    def _network_held(self, chain: str) -> str:
        """The chain whose things lie here: `chain`, where none is named yet."""
        return self.network.read_text().strip() if self.network.exists() else chain

    def _aside(self, chain: str) -> Path:
        return self.networks / chain[:NAME_CHARACTERS]

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Hold the directory for one daemon. Raises UserError that names the other's pid."""
        try:
            descriptor = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as failure:
            raise StorageFailed(f"cannot open {self.lock}: {failure.strerror}") from failure
        try:
            if not daemon_lock.take(descriptor):
                raise self.in_use(daemon_lock.pid_in(descriptor))
            try:
                os.ftruncate(descriptor, 0)
                os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            except OSError as failure:
                raise StorageFailed(f"cannot write {self.lock}: {failure.strerror}") from failure
            yield
            os.ftruncate(descriptor, 0)
        finally:
            os.close(descriptor)

    def holder(self) -> str | None:
        """The pid of the daemon that runs here, or "unknown"; None if none does.

        Raises StorageFailed.
        """
        try:
            return daemon_lock.holder(self.lock)
        except OSError as failure:
            raise StorageFailed(f"cannot open {self.lock}: {failure.strerror}") from failure

    def in_use(self, pid: str) -> UserError:
        """For a second daemon."""
        return UserError(
            f"a daemon is already running in {self.root} (pid {pid}): stop it with "
            f"`daa-node drain --dir {shlex.quote(str(self.root))}`, or give this one its own --dir",
            exit_code=1,
        )

    @contextmanager
    def tags_held(self) -> Iterator[None]:
        """Change the tags alone: of two commands the second one waits. A daemon does not mind.

        Raises StorageFailed.
        """
        try:
            descriptor = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as failure:
            raise StorageFailed(f"cannot open {self.root}: {failure.strerror}") from failure
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)  # for as long as a small file takes
            yield
        finally:
            os.close(descriptor)


def _move(source: Path, target: Path) -> None:
    """All that `source` has of a network; it may be there in part. Raises OSError."""
    for name in OF_A_NETWORK:
        old, new = source / name, target / name
        if not old.exists():
            continue
        if new.exists():
            raise UserError(
                f"{old} and {new} are both there, and only one of them can be this node's: move "
                "the one that was put there by hand away"
            )
        new.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        old.rename(new)
        for directory in {old.parent, new.parent, source, source.parent, target, target.parent}:
            sync(directory)


def write_durably(path: Path, payload: bytes) -> None:
    """The whole of it or what was there. Raises OSError."""
    partial = path.with_name(f"{path.name}.part")
    try:
        with partial.open("wb") as file:
            file.write(payload)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        sync(path.parent)
    except BaseException:
        with suppress(OSError):
            partial.unlink(missing_ok=True)
        raise


def rewrite(path: Path, text: str) -> None:
    """Other text in a person's file, which keeps its mode. Raises StorageFailed."""
    path = path.resolve()  # a link stays one
    try:
        mode = stat.S_IMODE(path.stat().st_mode)
        write_durably(path, text.encode())
        path.chmod(mode)
    except OSError as fault:
        raise StorageFailed(f"cannot write {path}: {fault.strerror}") from fault


def read_text(path: Path, what: str, remedy: str) -> str:
    """The text of a file that a person named or made. Raises UserError with the remedy."""
    try:
        with path.open("rb") as file:
            payload = file.read(TEXT_BYTES_MAX + 1)
    except FileNotFoundError:
        raise UserError(f"there is no {what} at {path}: {remedy}") from None
    except OSError as failure:
        raise UserError(f"cannot read {path}: {failure.strerror}") from None
    if len(payload) > TEXT_BYTES_MAX:
        raise UserError(f"{path} is larger than {TEXT_BYTES_MAX} bytes: this is no {what}")
    try:
        return payload.decode()
    except UnicodeDecodeError as broken:
        raise UserError(f"{path} is not UTF-8 text: byte {broken.start}") from None
