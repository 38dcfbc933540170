"""A node's own chain as that node has left it: what it certified before, no command judges again.

    kept     ids by height up to the newest packing, and who voted by then (see kept_ids)
    newer    what lies above it, of some dozens of rounds: judged as `verify` judges it
    read     of what is kept, the vertices that somebody asks for, each by its id

So it takes as long of a year as of a day. It trusts what this node has certified, which a start
trusts, too; `verify`, and `import` of others' directories, trust neither. Where anything is
missing, damaged or otherwise than it should be, the whole chain is judged (see certified).
"""

from collections.abc import Collection, Iterable
from contextlib import suppress

from daa_consensus.bft.messages import Block, ResultPayload, decode_block, decode_certificate
from daa_consensus.errors import ConsensusError
from daa_dag.checkpoint import Vertex
from daa_dag.errors import DagError
from daa_dag.ids import BlockId, VertexId
from daa_node.checkpoints.certified import (
    Certified,
    Judge,
    Past,
    certified_chain,
    find_certified,
    no_certified,
    read_vertex,
    way_to,
)
from daa_node.checkpoints.contents import ChainFacts, Start, read_contents
from daa_node.checkpoints.files import ChainFiles, Listing
from daa_node.checkpoints.headers import Outcome
from daa_node.checkpoints.kept_ids import KeptIds, kept_ids
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    FINAL_SUFFIX,
    MANIFESTS,
    VERTICES,
    exec_name,
    final_name,
)
from daa_node.checkpoints.plain_files import Problem, Unreadable
from daa_node.errors import PeerFault, UserError
from daa_node.identity.other_protocol import OtherProtocol
from daa_node.identity.validators import Validators, recall
from daa_node.identity.validators_record import decode_validators


class Otherwise(Exception):
    """It is not as a daemon leaves it: for somebody else to name."""


def own_chain(files: ChainFiles, facts: ChainFacts) -> Past:
    """Its certified vertices. Blocking; takes no lock."""
    kept = kept_ids(files)
    if kept is not None:
        with suppress(Otherwise, Unreadable, DagError, ConsensusError, PeerFault, OtherProtocol):
            return opened(files, facts, kept)
    return certified_chain(files, facts)


class OwnChain:
    """A Past of a directory, read as it is asked for."""

    def __init__(
        self,
        files: ChainFiles,
        facts: ChainFacts,
        ids: list[VertexId],
        newer: list[Vertex],
        promised: list[Outcome],
        leaving: Collection[str],
    ) -> None:
        """`ids` by height of what is certified, `newer` of these are read already."""
        self.files = files
        self._facts = facts
        self._ids = ids
        self._read = {vertex.height: vertex for vertex in newer}
        self._promised = promised
        self._leaving = leaving
        self._judged: Certified | None = None  # all of it, once something that was read was damaged

    @property
    def height(self) -> int:
        return len(self._ids) - 1 if self._judged is None else self._judged.height

    def find(self, text: str) -> Vertex:
        """As `Certified.find`. All that leads to its state is read by then."""
        height = find_certified(text, self._ids, self._promised)
        with suppress(UserError):  # something is damaged: what was judged tells
            vertex = self.at(height)
            way_to(self, vertex)
        return vertex if self._judged is None else self._judged.find(text)

    def at(self, height: int) -> Vertex:
        """Raises UserError where it, or one below, is damaged."""
        if self._judged is None and height not in self._read:
            try:
                self._read[height] = read_vertex(self.files, self._ids[height])
            except (Unreadable, DagError):
                self._judged = certified_chain(self.files, self._facts)
        if self._judged is None:
            return self._read[height]
        if height > self._judged.height:
            raise no_certified(str(height), self._judged.height)
        return self._judged.at(height)

    def has_snapshot(self, vertex: Vertex) -> bool:
        roots = (vertex.model_root, vertex.outer_state_root)
        names = [f"{MANIFESTS}/{root.hex()}" for root in roots]
        try:
            return all(name not in self._leaving and self.files.has(name) for name in names)
        except Unreadable:
            return False


def begun_at(
    files: ChainFiles, facts: ChainFacts, kept: KeptIds
) -> tuple[Block, Vertex, Validators]:
    """The block up to which it was kept who votes, the newest vertex there, and who they are."""
    known, ids = kept.summary.membership, kept.ids
    if known is None or ids[:1] != [facts.first_vertex.vertex_id]:
        raise Otherwise
    validators = facts.validators()
    recall(validators, decode_validators(known.record))
    below = _block(files, facts, known.tip)
    first = read_vertex(files, _standing_on(files, facts, below))
    if ids[first.height : first.height + 1] != [first.vertex_id]:
        raise Otherwise
    return below, first, validators


def opened(files: ChainFiles, facts: ChainFacts, kept: KeptIds) -> OwnChain:
    """Judge what is newer than what was kept. Raises Otherwise, and whatever judging raises."""
    below, first, validators = begun_at(files, facts, kept)
    problems: list[Problem] = []
    proofs = [name for name in kept.beside.names(CERTIFICATES) if name.endswith(FINAL_SUFFIX)]
    proofs.append(f"{CERTIFICATES}/{final_name(kept.summary.tip)}")
    listing = above(files, facts, below, kept.beside, proofs)
    contents = read_contents(files, listing, facts, problems, Start(below, validators))
    judge = Judge(facts, listing, contents, problems)
    chain = judge.check_results(first, judge.check_headers(below))
    if problems:
        raise Otherwise
    ids = [*kept.ids[: first.height], *(vertex.vertex_id for vertex in chain)]
    return OwnChain(files, facts, ids, chain, judge.promised, kept.beside.leaving)


def above(
    files: ChainFiles, facts: ChainFacts, below: Block, beside: Listing, proofs: Iterable[str]
) -> Listing:
    """The blocks that are final above this one, with all that proves them and their results.

    `proofs` lead to them; `beside` are files of their own.
    """
    blocks = dict[BlockId, Block]()
    for name in proofs:
        payload = files.read(name, facts.limits.certificate_bytes_max)
        statement = decode_certificate(payload, facts.limits).statement
        block_id = BlockId(bytes.fromhex(name.partition("/")[2].removesuffix(FINAL_SUFFIX)))
        if (statement.domain.epoch, statement.view) <= (below.epoch, below.view):
            continue  # of what was kept, or a proof of it that came late
        while block_id != below.id and block_id not in blocks:
            blocks[block_id] = block = _block(files, facts, block_id)
            if (block.epoch, block.view) <= (below.epoch, below.view):
                raise Otherwise  # it stands beside it
            block_id = block.parent_id
    names = set[str]()
    for block_id, block in blocks.items():
        block_name, final = f"{BLOCKS}/{block_id.hex()}", f"{CERTIFICATES}/{final_name(block_id)}"
        names.add(block_name)
        # Of a file of its own the certificate is one, too: packs need not be searched.
        if final in beside.sizes or (block_name not in beside.sizes and files.has(final)):
            names.add(final)
        if isinstance(block.payload, ResultPayload):
            vertex_id = block.payload.vertex_id
            parts = (f"{VERTICES}/{vertex_id.hex()}", f"{CERTIFICATES}/{exec_name(vertex_id)}")
            names |= {name for name in parts if files.has(name)}
    return Listing(dict.fromkeys(names, 0), (), beside.arriving, frozenset())


def _standing_on(files: ChainFiles, facts: ChainFacts, block: Block) -> VertexId:
    """The newest vertex as of this block."""
    while block.view:
        if isinstance(block.payload, ResultPayload):
            return block.payload.vertex_id
        block = _block(files, facts, block.parent_id)
    return facts.first_vertex.vertex_id


def _block(files: ChainFiles, facts: ChainFacts, block_id: BlockId) -> Block:
    limits = facts.limits
    block = decode_block(files.read(f"{BLOCKS}/{block_id.hex()}", limits.block_bytes_max), limits)
    if block.id != block_id:
        raise Unreadable("holds another block")
    return block
