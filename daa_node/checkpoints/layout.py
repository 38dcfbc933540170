"""What lies where under a chain directory, and the note of what is being written to it.

    chain/vertices/<vertex id>              canonical vertex
    chain/blocks/<block id>                 canonical block of the finalized header chain
    chain/certificates/<vertex id>.exec     execution certificate of a vertex
    chain/certificates/<block id>.final     finalization certificate of a block
    chain/deltas/<delta root>               an agreed aggregate, whole
    chain/manifests/<root>                  of a delta, or of a snapshot's weights or momentum
    chain/chunks/<digest>                   256 KiB pieces of snapshots, shared between them
    chain/packs/<digest>                    many of all these in one file (see daa_node.packs)
    work/publishing/chain                   the note: groups of names on their way in or out
    work/staged/<number>                    pages that wait for a snapshot (see gap)

Ids and roots are 64 hex digits. A file under chain/ is whole and never changes; wherever a file is
meant, a record of a pack is as good. A group of files is written in the order of the note and
counts once its last file is there; what a crash leaves of a group is removed at the next start, and
until then the note tells a verifier why it lies there. Groups that go after groups that come make
room for them: they stay if one of those did not come.
"""

import re
from collections.abc import Container
from dataclasses import dataclass
from typing import Literal

from daa_dag import canonical
from daa_dag.errors import Malformed
from daa_dag.ids import BlockId, VertexId

VERTICES = "vertices"
BLOCKS = "blocks"
CERTIFICATES = "certificates"
DELTAS = "deltas"
MANIFESTS = "manifests"
CHUNKS = "chunks"
PROOFS = (VERTICES, BLOCKS, CERTIFICATES)  # that no policy lets go
KINDS = (*PROOFS, DELTAS, MANIFESTS, CHUNKS)

_DIGEST_NAME = re.compile(r"[0-9a-f]{64}")
_CERTIFICATE_NAME = re.compile(r"[0-9a-f]{64}\.(exec|final)")

STATES = "states"  # kinds of the work store
UPDATES = "updates"
PUBLISHING = "publishing"
NOTE = "chain"
STAGED = "staged"
EXEC_SUFFIX, FINAL_SUFFIX = ".exec", ".final"

# Of a note that a verifier reads: a million names, the chunks of a 128 GiB snapshot, twice. What a
# node writes may be longer: nothing bounds how many blocks lie between two vertices.
NOTE_BYTES_MAX = 1_000_000 * 80


def exec_name(vertex_id: VertexId) -> str:
    return vertex_id.hex() + EXEC_SUFFIX


def final_name(block_id: BlockId) -> str:
    return block_id.hex() + FINAL_SUFFIX


@dataclass(frozen=True, slots=True)
class Group:
    """Files, as `kind/name`, that come together (in this order) or go together (in any)."""

    verb: Literal["add", "drop"]
    names: tuple[str, ...]


def unsettled(groups: list[Group], there: Container[str]) -> tuple[list[str], list[str]]:
    """The names that do not count yet, and those that count no more, while `there` are on disk."""
    arriving: list[str] = []
    leaving: list[str] = []
    for group in groups:
        if group.verb == "add" and group.names[-1] not in there:
            arriving.extend(group.names)
        elif group.verb == "drop" and not arriving:
            leaving.extend(group.names)
    return arriving, leaving


def encode_note(groups: list[Group]) -> bytes:
    return canonical.encode([[group.verb, list(group.names)] for group in groups])


def decode_note(payload: bytes) -> list[Group]:
    """Raises Malformed or NotCanonical; names are checked to be those of a chain's files."""
    value = canonical.decode(payload, len(payload))
    if not isinstance(value, list):
        raise Malformed("a publishing note is a list of groups")
    groups = []
    for item in value:
        match item:
            case ["add" | "drop" as verb, [*names]] if all(is_fitting(name) for name in names):
                if verb == "add" and not names:
                    raise Malformed("a group that comes has a last file")
                groups.append(Group(verb, tuple(names)))
            case _:
                raise Malformed("a publishing note lists groups of file names")
    return groups


def is_fitting(name: object) -> bool:
    """Whether a file of a chain may have this `kind/name`."""
    if not isinstance(name, str):
        return False
    kind, _, rest = name.partition("/")
    pattern = _CERTIFICATE_NAME if kind == CERTIFICATES else _DIGEST_NAME
    return kind in KINDS and pattern.fullmatch(rest) is not None
