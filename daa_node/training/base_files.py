"""The files of a base folder: which of them count, and that they are what the genesis names.

No torch: `genesis create` reads the digests, and a worker compares them before it builds anything.
What else lies in the folder is never looked at: `opened` is a view that has those files alone.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from re import fullmatch
from tempfile import TemporaryDirectory

from daa_node.errors import UserError
from daa_node.training.base_config import FILES_MAX, WEIGHTS_NAME, BaseFolder
from daa_node.training.datasets.files import digest_of_content, open_regular

CONFIG = "config.json"
WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"  # of weights in several files
INDEX_BYTES_MAX = 64 * 1024 * 1024
# Of a tokenizer: not what the model computes with, but what goes along with an exported one.
TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "tokenizer.model",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "generation_config.json",
)
SETTING = "model.base"  # of config.yaml

# Of each file: device, inode, bytes, and when it was last written, in nanoseconds.
Marks = Mapping[Path, tuple[int, int, int, int]]


def digests_of(folder: Path) -> dict[str, str]:
    """What a genesis names of it: config.json if there is one, and the weights. Raises UserError.

    Every byte of them is read.
    """
    try:
        names = [*_weights_in(folder)]
        if (folder / CONFIG).exists():
            names.append(CONFIG)
        return {name: digest_of_content(folder / name) for name in sorted(names)}
    except OSError as fault:
        raise UserError(
            f"{fault.filename or folder}: cannot read the model's base: {fault.strerror or fault}. "
            f"A base is a folder with {WEIGHTS}, or with {INDEX} and the files that this names"
        ) from None


@contextmanager
def opened(base: BaseFolder) -> Iterator[Path]:
    """A folder with the files of the genesis alone, once each has its digest. Raises UserError."""
    files = _files(base)
    for file, wanted in files:
        try:
            found = digest_of_content(file)
        except OSError as fault:
            raise _unreadable(file, wanted, fault) from None
        if found != wanted:
            raise UserError(
                f"{file}: the blake3 of its content is {found}, the genesis names {wanted}; "
                "nothing was trained. Copy the base that the network was made for, or say in "
                f"config.yaml, {SETTING}, in which folder it lies"
            )
    with TemporaryDirectory(prefix="daa-base-") as room:
        view = Path(room)
        for file, _ in files:
            (view / file.name).symlink_to(file.resolve())
        # it may be a path to anywhere
        if missing := _weights_in(view) - {file.name for file, _ in files}:
            raise UserError(
                f"{base.path}: the weights of the model's base lie in {min(missing)} as well, of "
                "which the genesis names no digest; nothing was read of it"
            )
        yield view


def check_there(base: BaseFolder) -> None:
    """Raises UserError as `opened` does, for what cannot be read; it may be the wrong one."""
    for file, wanted in _files(base):
        try:
            with open_regular(file) as opening:
                opening.read(1)
        except OSError as fault:
            raise _unreadable(file, wanted, fault) from None


def _files(base: BaseFolder) -> list[tuple[Path, str]]:
    """Each with the digest that it should have. Raises UserError."""
    assert base.files is not None, "a genesis has them"
    if base.path is None:
        told = ", ".join(f"{name} blake3 {digest}" for name, digest in base.files.items())
        raise UserError(
            f"the genesis names its model's base by digest, and no place: say in config.yaml, "
            f"{SETTING}, in which folder it lies on this host. It is: {told}"
        )
    return [(base.path / name, digest) for name, digest in base.files.items()]


def _unreadable(file: Path, wanted: str, fault: OSError) -> UserError:
    return UserError(
        f"{file}: cannot read this file of the model's base: {fault.strerror or fault}; it "
        f"should have the blake3 {wanted}. Put it there, or say in config.yaml, {SETTING}, in "
        "which folder the base lies on this host"
    )


def marks_of(base: BaseFolder | None) -> Marks:
    """By which a file is known that was written since. Taken before the files are `opened`."""
    marks: dict[Path, tuple[int, int, int, int]] = {}
    if base is None or base.path is None:
        return marks
    for name in base.files or ():
        with suppress(OSError):  # whoever opens it says what is wrong
            marks[base.path / name] = _mark(base.path / name)
    return marks


def check_unchanged(marks: Marks) -> None:
    """Return if what was mapped of these files is what it was. Raises UserError.

    A file that another one has replaced, or that is gone, stays as it was to who has mapped it.
    """
    for file, (*which, size_bytes, written_ns) in marks.items():
        try:
            *now, now_bytes, now_ns = _mark(file)
        except OSError:
            continue
        if now == which and (now_bytes, now_ns) != (size_bytes, written_ns):
            raise UserError(
                f"{file}: this file of the model's base was written to while it was in use, so "
                "what was computed with it counts for nothing. To take another file, stop the node "
                "first",
                exit_code=1,
            )


def _mark(file: Path) -> tuple[int, int, int, int]:
    found = file.stat()
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def weights_files(view: Path) -> list[Path]:
    """Of a folder whose names were checked."""
    return sorted(view.glob("*.safetensors"))


def _weights_in(folder: Path) -> set[str]:
    index = folder / INDEX
    if not index.exists():
        return {WEIGHTS}
    if index.stat().st_size > INDEX_BYTES_MAX:
        raise UserError(f"{index} has more than {INDEX_BYTES_MAX} bytes")
    try:
        names = set(json.loads(index.read_text())["weight_map"].values())
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as fault:
        raise UserError(f"{index}: this is no index of safetensors files: {fault!r}") from None
    strange = [
        name for name in names if not isinstance(name, str) or not fullmatch(WEIGHTS_NAME, name)
    ]
    if strange or not 1 <= len(names) <= FILES_MAX - 2:  # and the index, and config.json
        raise UserError(f"{index}: it names {str(strange or len(names))[:80]}, and not its files")
    return {INDEX, *names}
