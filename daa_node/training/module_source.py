"""Find the source of a model, or data set, of somebody's, compare its digest, and only then run it.

    allowed by the settings? --> found, nothing of it run --> digest as in the genesis? --> imported

The installed packages come first, so that what lies in `trainer.module_path` takes the place of
none of them; and of that directory only packages are found that `trainer.allow_modules` names. The
current directory counts for nothing. The digest covers the one file that has the function: what
that imports, the packages around it among them, is what this host has under those names.
"""

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from blake3 import blake3

from daa_node.errors import UserError
from daa_node.training.config import TrainerConfig
from daa_node.training.module_config import check_allowed, module_of

Build = Callable[..., Any]
SOURCE_BYTES_MAX = 16 * 1024 * 1024  # no person writes a file of that size


@dataclass(frozen=True, slots=True)
class ModuleAccess:
    """What one host's settings say of other people's code: which packages, and where else."""

    allowed: tuple[str, ...] = ()
    directory: Path | None = None

    @classmethod
    def of(cls, config: TrainerConfig) -> "ModuleAccess":
        return cls(config.allow_modules, config.module_path)


NO_MODULES = ModuleAccess()


@dataclass(frozen=True, slots=True)
class Source:
    """A module that was found, and read; nothing of it has run."""

    spec: ModuleSpec
    file: Path
    text: bytes

    @property
    def digest(self) -> str:
        return blake3(self.text).hexdigest()


def find_source(path: str, access: ModuleAccess, what: str = "model") -> Source:
    """The file of `package.module:build`. Raises UserError if it may not run here, or is not."""
    check_allowed(path, access.allowed, what)
    name = module_of(path)
    spec: ModuleSpec | None = None
    places: Sequence[str] | None = None
    at = ""
    for part in name.split("."):
        at = f"{at}.{part}" if at else part
        spec = PathFinder.find_spec(at, places)
        if spec is None and places is None and access.directory is not None:
            spec = PathFinder.find_spec(at, [str(access.directory)])
        if spec is None:
            raise UserError(_not_here(path, at, access, what))
        places = list(spec.submodule_search_locations or ())
    assert spec is not None, "a name has a part"
    if not isinstance(spec.loader, SourceFileLoader) or spec.origin is None:
        raise UserError(f"the {what} {path}: {name} is no Python source file, but {spec.origin}")
    file = Path(spec.origin)
    try:
        text = file.read_bytes()
    except OSError as fault:
        raise UserError(f"the {what} {path}: cannot read {file}: {fault.strerror}") from None
    if len(text) > SOURCE_BYTES_MAX:
        raise UserError(f"the {what} {path}: {file} has more than {SOURCE_BYTES_MAX} bytes")
    return Source(spec, file, text)


def find_as_agreed(path: str, digest: str, access: ModuleAccess, what: str = "model") -> Source:
    """The same, of the digest that the genesis names. Raises UserError."""
    source = find_source(path, access, what)
    if source.digest != digest:
        raise UserError(
            f"the {what} {path}: {source.file} has the blake3 digest {source.digest}, and the "
            f"genesis was made with {digest}; nothing was run. Put the file that the network was "
            "made with in its place"
        )
    return source


def load_build(path: str, source: Source, access: ModuleAccess, what: str = "model") -> Build:
    """Import the module, from the bytes that were read, and take its function. Raises UserError."""
    name, _, function = path.partition(":")
    finder = _Finder(source, access)
    sys.meta_path.insert(0, finder)
    try:
        module = importlib.import_module(name)
        build: Build | None = getattr(module, function, None)
    except (Exception, SystemExit) as fault:
        raise UserError(
            f"the {what} {path} cannot be imported: {type(fault).__name__}: {fault}"
        ) from None
    finally:
        finder.source = None
    if build is None or not callable(build):
        raise UserError(f"the {what} {path}: {source.file} has no function {function}")
    return build


class _DigestedSource(SourceFileLoader):
    """Compiles what was read, whatever the file or its cache holds by now."""

    def __init__(self, name: str, file: str, text: bytes) -> None:
        super().__init__(name, file)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        return self.source_to_code(self._text, self.path)


class _Finder:
    """Finds the module itself, and the directory's allowed packages; those also later on."""

    def __init__(self, source: Source, access: ModuleAccess) -> None:
        self.source: Source | None = source
        self._directory = access.directory
        self._tops = {name.partition(".")[0] for name in access.allowed}

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        source = self.source
        if source is not None and name == source.spec.name:
            assert source.spec.origin is not None
            source.spec.loader = _DigestedSource(name, source.spec.origin, source.text)
            return source.spec
        if path is not None or name not in self._tops or self._directory is None:
            return None
        if PathFinder.find_spec(name, None) is not None:
            return None  # what is installed comes first
        return PathFinder.find_spec(name, [str(self._directory)])


def _not_here(path: str, missing: str, access: ModuleAccess, what: str) -> str:
    where = "installed" if access.directory is None else f"installed, nor in {access.directory}"
    remedy = "install it, or set trainer.module_path in config.yaml to the directory that has it"
    return f"the {what} {path}: there is no {missing} here: it is not {where}; {remedy}"
