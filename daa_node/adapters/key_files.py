"""A node's private keys on disk: three small text files that nobody else may read.

    keys/            0700
      ml_dsa.key     0600    daa-key 1 ml-dsa-65
      ml_kem.key     0600    <seed in hex>
      libp2p.key     0600    <first 16 hex digits of blake3 over the two lines above>
    agreement/begun  0600    <node id>, then the chain ids for which they have begun to sign here

The directory of keys appears whole or not at all (written beside, synced, renamed) and is never
overwritten: a lost identity is lost stake.
"""

import os
import shutil
import stat
from pathlib import Path

from blake3 import blake3

from daa_dag.ids import ChainId, NodeId
from daa_node.errors import StorageFailed, UserError
from daa_node.identity.keys import (
    ED25519_SEED_BYTES,
    ML_DSA_SEED_BYTES,
    ML_KEM_SEED_BYTES,
    NodeKeys,
)

KEY_FORMAT_VERSION = 1
BEGUN = "begun"
BEGUN_VERSION, BEGUN_WORD = 1, b"daa-begun"  # a later format begins with the word and its number
KEY_FILE_BYTES_MAX = 1024  # the longest is 180
_FILES = {
    "ml_dsa.key": ("ml-dsa-65", ML_DSA_SEED_BYTES),
    "ml_kem.key": ("ml-kem-768", ML_KEM_SEED_BYTES),
    "libp2p.key": ("ed25519", ED25519_SEED_BYTES),
}
NAMES = tuple(_FILES)


def create_keys(directory: Path, keys: NodeKeys | None = None) -> NodeKeys:
    """Make an identity in `directory`, which must not exist yet; durable once this returns.

    A fresh one, unless a simulation gives its own `keys`.

    Raises UserError when an identity is there already, StorageFailed when the disk refuses.
    """
    if directory.exists():
        raise UserError(f"{directory} exists already: an identity is never overwritten")
    keys = keys or NodeKeys.generate()
    staged = directory.with_name(f"{directory.name}.new-{os.getpid()}")
    seeds = (keys.ml_dsa_seed, keys.ml_kem_seed, keys.ed25519_seed)
    try:
        staged.mkdir(mode=0o700, parents=True)
        for name, seed in zip(_FILES, seeds, strict=True):
            _write(staged / name, _text_of(_FILES[name][0], seed))
        _sync_directory(staged)
        # Refused by the kernel when another process made the directory meanwhile.
        staged.rename(directory)
        _sync_directory(directory.parent)
    except OSError as fault:
        shutil.rmtree(staged, ignore_errors=True)
        raise StorageFailed(f"cannot create keys in {directory}: {fault}") from fault
    return keys


def load_keys(directory: Path) -> NodeKeys:
    """Read the three keys. Raises UserError with the file, what is wrong with it and the remedy."""
    if not directory.is_dir():
        raise UserError(
            f"no keys at {directory}: restore them from your backup, or make a new node in another "
            "directory with `daa-node init --dir D`"
        )
    _check_private(directory, directory.stat(), 0o700)
    seeds = [_load(directory / name, word, size) for name, (word, size) in _FILES.items()]
    return NodeKeys(*seeds)


def mark_unused(agreement: Path, node_id: NodeId) -> None:
    """For keys that are just being made; durable once this returns. Raises StorageFailed."""
    path = agreement / BEGUN
    try:
        agreement.mkdir(mode=0o700)
        _write(path, _lines([node_id.hex()]))
        _sync_directory(agreement)
        _sync_directory(agreement.parent)
    except OSError as fault:
        raise StorageFailed(f"cannot write {path}: {fault}") from fault


class KeyUse:
    """Whether the keys have begun to sign on a chain, as far as their own directory can show.

    What shows that they have not is made with them and lies with the log of what they sign, so that
    it goes where the log goes: whoever has copied the keys alone, or lost the log, has no proof.
    It names the chains for which they did begin, so that a start with the wrong genesis takes
    nothing from the right one.
    """

    def __init__(self, agreement: Path, node_id: NodeId, chain_id: ChainId) -> None:
        self._path = agreement / BEGUN
        self._name = node_id.hex()
        self._chain = chain_id.hex()

    @property
    def begun(self) -> bool:
        chains = self._chains()
        return chains is None or self._chain in chains

    def begin(self) -> None:
        """From now on they sign for this chain; durable once this returns. Raises StorageFailed."""
        chains = self._chains()
        if chains is None or self._chain in chains:
            return  # what is no proof becomes none
        staged = self._path.with_name(f"{BEGUN}.new")
        try:
            staged.unlink(missing_ok=True)
            _write(staged, _lines([self._name, *chains, self._chain]))
            staged.rename(self._path)
            _sync_directory(self._path.parent)
        except OSError as fault:
            raise StorageFailed(f"cannot write {self._path}: {fault}") from fault

    def _chains(self) -> list[str] | None:
        """For which they have begun; None if nothing shows that these are all of them."""
        try:
            payload = self._path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as fault:
            raise StorageFailed(f"cannot read {self._path}: {fault}") from fault
        lines = payload.decode("ascii", "replace").splitlines()[:-1]
        if lines[:1] != [self._name] or payload != _lines(lines):
            return None
        return lines[1:]


def _lines(lines: list[str]) -> bytes:
    """With a last line that says how many there are: half a file proves nothing."""
    return "".join(f"{line}\n" for line in [*lines, f"{len(lines)} lines"]).encode()


def _load(path: Path, word: str, seed_bytes: int) -> bytes:
    try:
        # Not following a link: its target's mode is not what the operator looked at.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        raise UserError(
            f"{path} is missing: restore it from your backup; the other keys are useless alone"
        ) from None
    except OSError as fault:
        raise UserError(f"cannot read {path}: {fault.strerror}") from None
    with os.fdopen(descriptor, "rb") as file:
        _check_private(path, os.fstat(file.fileno()), 0o600)
        payload = file.read(KEY_FILE_BYTES_MAX + 1)
    return _seed_of(path, payload, word, seed_bytes)


def _check_private(path: Path, status: os.stat_result, mode_wanted: int) -> None:
    mode = stat.S_IMODE(status.st_mode)
    if status.st_uid != os.geteuid():
        raise UserError(
            f"{path} belongs to user {status.st_uid}, this process runs as user {os.geteuid()}: "
            f"run as its owner, or chown it"
        )
    if mode & 0o077:
        raise UserError(
            f"{path} has mode {mode:04o}: others on this host may read the private key; "
            f"run `chmod {mode_wanted:o} {path}`, and make a new identity if others may have"
        )


def _seed_of(path: Path, payload: bytes, word: str, seed_bytes: int) -> bytes:
    lines = payload.decode("ascii", errors="replace").splitlines()
    header = lines[0].split(" ") if lines else []
    if len(header) != 3 or header[0] != "daa-key":
        raise UserError(f"{path} is not a key file of this program")
    if header[1] != str(KEY_FORMAT_VERSION):
        raise UserError(
            f"{path} has key format version {header[1]:.20}, this program reads version "
            f"{KEY_FORMAT_VERSION}: use the program that wrote it"
        )
    if header[2] != word:
        raise UserError(f"{path} holds a key of kind {header[2]:.20}, {word} expected")
    damaged = UserError(f"{path} is truncated or damaged: restore it from your backup")
    if len(lines) != 3:
        raise damaged
    try:
        seed = bytes.fromhex(lines[1])
    except ValueError:
        raise damaged from None
    if len(seed) != seed_bytes or payload != _text_of(word, seed):
        raise damaged
    return seed


def _text_of(word: str, seed: bytes) -> bytes:
    body = f"daa-key {KEY_FORMAT_VERSION} {word}\n{seed.hex()}\n".encode()
    return body + blake3(body).hexdigest()[:16].encode() + b"\n"


def _write(path: Path, payload: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(payload)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
