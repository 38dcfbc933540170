"""Names that a person gives to vertices, in one file beside the chain: never a part of it.

A tag is this host's own note. It proves nothing, nobody else sees it, and a vertex that has one is
pruned like any other. The file keeps the tags of each network that the directory has been of:

    {"<chain id>": {"<name>": "<vertex id>"}}
"""

import json
import re
from typing import Annotated

from pydantic import Field, TypeAdapter, ValidationError

from daa_dag.ids import ChainId, VertexId
from daa_node.errors import UserError

TAGS_MAX = 1_000  # of one network: people give names by hand
CHAINS_MAX = 1_000  # networks of one directory
NAME_CHARACTERS_MAX = 64
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9._-]*")
_ID_START = re.compile(r"[0-9A-Fa-f]{8,}")
_RESERVED = ("tip",)

_Hex = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]
_File = TypeAdapter(dict[_Hex, dict[str, _Hex]])


class Tags:
    """Those of one network; the others in the file stay as they are."""

    def __init__(self, chain_id: ChainId, of_chains: dict[str, dict[str, str]]) -> None:
        self._of_chains = of_chains
        self._chain = chain_id.hex()

    def names(self) -> dict[str, VertexId]:
        """By name, in the order of names."""
        own = self._of_chains.get(self._chain, {})
        return {name: VertexId(bytes.fromhex(own[name])) for name in sorted(own)}

    def of_vertices(self) -> dict[VertexId, list[str]]:
        """Names by vertex."""
        found: dict[VertexId, list[str]] = {}
        for name, vertex_id in self.names().items():
            found.setdefault(vertex_id, []).append(name)
        return found

    def spelled_out(self, text: str) -> str:
        """The id in hex that `text` is a tag of, or `text` itself."""
        found = self.names().get(text)
        return text if found is None else found.hex()

    def put(self, name: str, vertex_id: VertexId, move: bool) -> None:
        """Raises UserError for a name that is none, or one that is taken unless `move`."""
        _check_name(name)
        known = self.names()
        held = known.get(name)
        if held is not None and held != vertex_id and not move:
            raise UserError(
                f"the tag {name} is given already, to vertex {held.hex()[:16]}: choose another "
                "name, or add --move"
            )
        if held is None and len(known) >= TAGS_MAX:
            raise UserError(f"there are {TAGS_MAX} tags, the most there may be: remove one")
        self._of_chains.setdefault(self._chain, {})[name] = vertex_id.hex()

    def remove(self, name: str) -> None:
        """Raises UserError if there is no such tag."""
        if name not in self.names():
            raise UserError(f"there is no tag {name}: `daa-node checkpoint tags` lists them")
        del self._of_chains[self._chain][name]

    def as_text(self) -> str:
        return json.dumps(self._of_chains, indent=1, sort_keys=True) + "\n"


def parse_tags(where: str, text: str, chain_id: ChainId) -> Tags:
    """The tags in the file called `where`. Raises UserError with what is wrong with it."""
    try:
        found = _File.validate_json(text)
    except ValidationError as invalid:
        first = invalid.errors()[0]
        place = ".".join(map(str, first["loc"]))
        raise UserError(
            f"{where} is no file of tags: {place + ': ' if place else ''}{first['msg'].lower()}; "
            "mend it, or remove it: a tag is a note of this host alone"
        ) from None
    if len(found) > CHAINS_MAX or any(len(tags) > TAGS_MAX for tags in found.values()):
        raise UserError(f"{where} has over {TAGS_MAX} tags of one network: remove some")
    for tags in found.values():
        for name in tags:
            _check_name(name)
    return Tags(chain_id, found)


def _check_name(name: str) -> None:
    if not _NAME.fullmatch(name) or len(name) > NAME_CHARACTERS_MAX:
        raise UserError(
            f"{name[:80]!r} is no name for a tag: a letter, then letters, digits, dots, dashes and "
            f"underscores, {NAME_CHARACTERS_MAX} characters at most"
        )
    if name in _RESERVED or _ID_START.fullmatch(name):
        raise UserError(f"{name!r} cannot be a tag: it means a vertex already")
