"""One record of a chain from another member: what is asked for by its name, and proves itself.

Blocks and vertices are named by their content, certificates by what they certify, and signed by a
committee that whoever asks knows from the chain. So it makes no difference who answers.
"""

from collections.abc import Callable
from typing import TypeVar

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    Block,
    ResultPayload,
    decode_block,
    decode_certificate,
    encode_block,
    encode_certificate,
)
from daa_consensus.errors import ConsensusError
from daa_consensus.votes import Certificate, Kind
from daa_dag import canonical
from daa_dag.checkpoint import Vertex, decode_vertex, vertex_bytes_max
from daa_dag.errors import DagError
from daa_dag.ids import DIGEST_BYTES, BlockId, VertexId
from daa_node.checkpoints.chain import ChainStore
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    FINAL_SUFFIX,
    PROOFS,
    VERTICES,
    exec_name,
    final_name,
)
from daa_node.checkpoints.page_server import BLOCK_READ_COST_BYTES
from daa_node.checkpoints.shown_proofs import shown_exec, shown_final
from daa_node.errors import PeerFault
from daa_node.identity.validators import Validators
from daa_node.network.requests import Answer, Requests
from daa_node.seams import PeerId

T = TypeVar("T")

REQUEST = "record"  # the request's name; its body is `[kind, name]`, its answer the record or b""
BAD_RECORD = "bad_record"


def answer_bytes_max(limits: Limits) -> int:
    """The largest answer that an honest node makes."""
    vertex = vertex_bytes_max(limits.contributors, max(limits.contributors, limits.validators))
    return max(limits.block_bytes_max, limits.certificate_bytes_max, vertex)


def asked_record(body: bytes) -> tuple[str, str, bytes]:
    """Kind, name, and the digest in the name. Raises PeerFault("malformed")."""
    try:
        match canonical.decode(body, len(body)):
            case [str(kind), str(name)] if kind in PROOFS:
                digits, _, ending = name.partition(".")
                digest = bytes.fromhex(digits)
            case _:
                raise ValueError("it is of no kind that is shown by its name")
    except (DagError, ValueError) as fault:
        raise PeerFault("malformed", f"a record is asked for by kind and name: {fault}") from None
    endings = ("exec", FINAL_SUFFIX[1:]) if kind == CERTIFICATES else ("",)
    if len(digest) != DIGEST_BYTES or digest.hex() != digits or ending not in endings:
        raise PeerFault("malformed", "no record of a chain has that name")
    return kind, name, digest


class Records:
    """Shows what lies here, read as we read it ourselves: what is damaged is not here."""

    def __init__(self, chain: ChainStore) -> None:
        self._chain = chain

    def serve(self, requests: Requests) -> None:
        """Answer who asks from now on."""
        requests.register(REQUEST, self._answer, of_history=True)

    async def _answer(self, _peer_id: PeerId, body: bytes) -> Answer:
        return Answer(await self.answer(body), BLOCK_READ_COST_BYTES)

    async def answer(self, body: bytes) -> bytes:
        """The record, or b"". Raises PeerFault and StorageFailed."""
        chain = self._chain
        kind, name, digest = asked_record(body)
        if kind == BLOCKS:
            block = await chain.block(BlockId(digest))
            return b"" if block is None else encode_block(block)
        if kind == VERTICES:
            vertex = await chain.vertex(VertexId(digest))
            return b"" if vertex is None else vertex.encode()
        if name.endswith(FINAL_SUFFIX):
            certificate = await shown_final(chain, BlockId(digest))
        else:
            certificate = await shown_exec(chain, VertexId(digest))
        return b"" if certificate is None else encode_certificate(certificate)


def opened_block(payload: bytes, block_id: BlockId, limits: Limits) -> Block:
    """Raises PeerFault unless it is that block."""
    block = _decoded(lambda: decode_block(payload, limits))
    if block.id != block_id:
        raise PeerFault(BAD_RECORD, f"another block than {block_id.hex()}")
    return block


def opened_vertex(payload: bytes, vertex_id: VertexId) -> Vertex:
    """Raises PeerFault unless it is that vertex."""
    vertex = _decoded(lambda: decode_vertex(payload))
    if vertex.vertex_id != vertex_id:
        raise PeerFault(BAD_RECORD, f"another vertex than {vertex_id.hex()}")
    return vertex


def opened_final(payload: bytes, block: Block, validators: Validators) -> Certificate:
    """Raises PeerFault unless the committee of the block's epoch has made it final."""
    certificate = _decoded(lambda: decode_certificate(payload, validators.limits))
    said = certificate.statement
    slot = (said.kind, said.domain.epoch, said.view, said.value)
    if slot != (Kind.FINALIZE, block.epoch, block.view, block.id):
        raise PeerFault(BAD_RECORD, f"it does not finalize {block.id.hex()}")
    validators.verify(certificate)
    return certificate


def opened_exec(
    payload: bytes, result: ResultPayload, epoch: int, validators: Validators
) -> Certificate:
    """Raises PeerFault unless the committee of that epoch has executed a set to this result."""
    certificate = _decoded(lambda: decode_certificate(payload, validators.limits))
    said = certificate.statement
    told = (said.kind, said.domain.epoch, said.height, said.value)
    if told != (Kind.EXEC, epoch, result.round, [result.vertex_id, result.result_root]):
        raise PeerFault(BAD_RECORD, f"it does not certify {result.vertex_id.hex()}")
    validators.verify(certificate)
    return certificate


def name_of_block(block_id: BlockId) -> str:
    return f"{BLOCKS}/{block_id.hex()}"


def name_of_vertex(vertex_id: VertexId) -> str:
    return f"{VERTICES}/{vertex_id.hex()}"


def name_of_final(block_id: BlockId) -> str:
    return f"{CERTIFICATES}/{final_name(block_id)}"


def name_of_exec(vertex_id: VertexId) -> str:
    return f"{CERTIFICATES}/{exec_name(vertex_id)}"


def _decoded(decode: Callable[[], T]) -> T:
    try:
        return decode()
    except (DagError, ConsensusError) as fault:
        raise PeerFault(BAD_RECORD, str(fault)) from None
