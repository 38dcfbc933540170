"""Which past this node's operator trusts: of each network the vertex that its chain must hold.

D/trusted holds one line a network, chain id and vertex id in hexadecimal digits. `join --trust`
writes it, each start of the daemon reads it.
"""

from collections.abc import Mapping
from pathlib import Path

from daa_dag.ids import DIGEST_BYTES, ChainId, VertexId
from daa_node.cli.data_directory import read_text, write_durably
from daa_node.errors import StorageFailed, UserError

DIGITS = 2 * DIGEST_BYTES
REMEDY = "remove it to trust no vertex, or give `daa-node join --trust` again"


def read_trusted(path: Path) -> dict[ChainId, VertexId]:
    """Empty if nothing was ever trusted. Raises UserError for a file that is damaged."""
    if not path.exists():
        return {}
    found: dict[ChainId, VertexId] = {}
    for number, line in enumerate(read_text(path, "trusted vertices", REMEDY).splitlines(), 1):
        match line.split():
            case [chain, vertex] if len(chain) == len(vertex) == DIGITS:
                pass
            case _:
                raise UserError(f"{path}, line {number}: not two ids. {REMEDY}")
        try:
            found[ChainId(bytes.fromhex(chain))] = VertexId(bytes.fromhex(vertex))
        except ValueError:
            raise UserError(f"{path}, line {number}: not two ids. {REMEDY}") from None
    if not found:
        raise UserError(f"{path} is empty. {REMEDY}")
    return found


def trusted_text(trusted: Mapping[ChainId, VertexId]) -> str:
    return "".join(f"{chain.hex()} {vertex.hex()}\n" for chain, vertex in sorted(trusted.items()))


def keep_trusted(path: Path, chain_id: ChainId, vertex_id: VertexId) -> None:
    """From now on for good; of other networks it changes nothing. Raises StorageFailed."""
    text = trusted_text(read_trusted(path) | {chain_id: vertex_id})
    try:
        write_durably(path, text.encode())
    except OSError as failure:
        raise StorageFailed(f"cannot write {path}: {failure.strerror}") from failure
