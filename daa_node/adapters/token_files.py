"""The two tokens of a node's HTTP API on disk: made once, and read by nobody else.

    api-read.token   0600   64 hex digits and a newline
    api-admin.token  0600   the same

Whoever removes one makes the next start draw another.
"""

import os
import re
import stat
from pathlib import Path

from daa_node.adapters.durable_files import sync
from daa_node.api.tokens import TOKEN_BYTES, TOKEN_CHARACTERS, Tokens
from daa_node.errors import StorageFailed, UserError
from daa_node.seams import Entropy

READ_NAME, ADMIN_NAME = "api-read.token", "api-admin.token"
_TOKEN = re.compile(rf"[0-9a-f]{{{TOKEN_CHARACTERS}}}\n")


def open_tokens(directory: Path, entropy: Entropy) -> Tokens:
    """Those that lie there, or new ones. The caller holds the directory's lock.

    Raises UserError for what is no token, others may read, or is the same twice; StorageFailed
    when the disk refuses.
    """
    tokens = Tokens(
        read=_open(directory / READ_NAME, entropy), admin=_open(directory / ADMIN_NAME, entropy)
    )
    if tokens.read == tokens.admin:
        raise UserError(
            f"{directory / READ_NAME} and {ADMIN_NAME} hold the same token, so whoever may read "
            "could change the node, too: remove both, and the next start makes new ones"
        )
    return tokens


def read_token(directory: Path) -> str:
    """The one that reads, as the node has made it. Raises UserError."""
    path = directory / READ_NAME
    found = _read(path)
    if found is None:
        raise UserError(f"there is no {path}: a node with `api.listen` makes it when it starts")
    return found


def _open(path: Path, entropy: Entropy) -> str:
    found = _read(path)
    return _make(path, entropy) if found is None else found


def _read(path: Path) -> str | None:
    """None where there is no file. Raises UserError for what is no token, or others may read."""
    try:
        # Not following a link: its target's mode is not what the operator looked at.
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK)
    except FileNotFoundError:
        return None
    except OSError as fault:
        raise UserError(f"cannot read {path}: {fault.strerror}") from None
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise UserError(f"{path} is no file: remove it, and the next start makes a new token")
        if status.st_uid != os.geteuid() or stat.S_IMODE(status.st_mode) & 0o077:
            raise UserError(
                f"others on this host may read {path}: remove it, and the next start makes a new "
                "token that they have not seen"
            )
        text = os.read(descriptor, TOKEN_CHARACTERS + 2).decode("ascii", "replace")
    except OSError as fault:
        raise UserError(f"cannot read {path}: {fault.strerror}") from None
    finally:
        os.close(descriptor)
    if not _TOKEN.fullmatch(text):
        raise UserError(
            f"{path} holds no token of {TOKEN_CHARACTERS} hex digits: remove it, and the next "
            "start makes a new one"
        )
    return text.strip()


def _make(path: Path, entropy: Entropy) -> str:
    token = entropy.bytes(TOKEN_BYTES).hex()
    staged = path.with_name(f"{path.name}.new")
    try:
        staged.unlink(missing_ok=True)  # of a start that was killed in the middle
        descriptor = os.open(staged, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(descriptor, "w") as file:
            file.write(f"{token}\n")
            file.flush()
            os.fsync(file.fileno())
        staged.rename(path)
        sync(path.parent)
    except OSError as fault:
        raise StorageFailed(f"cannot make {path}: {fault.strerror}") from fault
    return token
