"""Each file of a chain judged by itself: canonical bytes, its own name, every signature.

What holds goes into Contents; what does not is a problem with the file's path. How the
things fit together is for `certified` and `verify` to judge.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    GenesisPayload,
    ResultPayload,
    SetPayload,
    decode_block,
    decode_certificate,
)
from daa_consensus.committee import VALIDATORS_MAX, Committee, Domain
from daa_consensus.errors import ConsensusError
from daa_consensus.membership import Membership
from daa_consensus.protocol_words import SPOKEN
from daa_consensus.votes import Certificate, Kind
from daa_dag.checkpoint import VERTEX_BYTES_MAX, Vertex, decode_vertex
from daa_dag.errors import DagError
from daa_dag.ids import BlockId, ChainId, NodeId, ValidatorSetRoot, VertexId
from daa_node.checkpoints.files import ChainReader, Listing
from daa_node.checkpoints.layout import BLOCKS, CERTIFICATES, VERTICES
from daa_node.checkpoints.plain_files import Problem, Unreadable
from daa_node.checkpoints.publish import genesis_vertex
from daa_node.checkpoints.replay import StateRules
from daa_node.errors import PeerFault
from daa_node.identity.validators import Validators

T = TypeVar("T")


@dataclass(frozen=True)
class ChainFacts:
    """What a genesis says, as far as a verifier needs it."""

    chain_id: ChainId
    first: Membership  # of epoch 0
    public_keys: Mapping[NodeId, bytes]  # ML-DSA-65, of the committee
    contributors: frozenset[NodeId]
    epoch_rounds: int
    states: StateRules
    # Why a set on top of a parent is not as planned; then: who may contribute, who votes, and
    # who vouches for which trainer.
    set_fault: Callable[
        [Vertex, Sequence[NodeId], Committee, Mapping[NodeId, NodeId | None], SetPayload],
        str | None,
    ]
    speaks: range = SPOKEN  # protocol versions

    @property
    def limits(self) -> Limits:
        """Of files: the committee may have grown to any size since the genesis."""
        return Limits(VALIDATORS_MAX, VALIDATORS_MAX)

    @property
    def first_vertex(self) -> Vertex:
        """Height 0."""
        committee, roll = self.first.committee, self.first.roll
        return genesis_vertex(self.states.first_state, committee.root, roll.root)

    def validators(self) -> Validators:
        """The history as it begins."""
        made = Validators(
            self.chain_id,
            self.epoch_rounds,
            self.first,
            self.public_keys,
            {},
            self.contributors,
        )
        made.speaks = self.speaks
        return made

    def domain(self, epoch: int) -> Domain:
        return Domain(self.chain_id, epoch, self.first.committee.root)


@dataclass(slots=True)
class Contents:
    """Headers and proofs that hold by themselves, by their ids."""

    vertices: dict[VertexId, Vertex] = field(default_factory=dict)
    blocks: dict[BlockId, Block] = field(default_factory=dict)
    # without their signatures
    finals: dict[BlockId, Certificate] = field(default_factory=dict)
    execs: dict[VertexId, Certificate] = field(default_factory=dict)
    # As far as the chain leads: each epoch's committee made the next one final.
    validators: Validators = field(init=False)


@dataclass(frozen=True, slots=True)
class Start:
    """The end of an epoch up to which a chain was judged: what is listed stands on it."""

    below: Block
    validators: Validators  # as of that block; led on with what is judged
    leads: bool = True  # False: above a gap, where nobody knows who votes next


def read_contents(
    files: ChainReader,
    listing: Listing,
    facts: ChainFacts,
    problems: list[Problem],
    start: Start | None = None,
) -> Contents:
    """Read and judge every listed vertex, block and certificate."""
    reader = _Reader(files, listing, problems)
    contents, limits = Contents(), facts.limits
    for vertex in reader.each(VERTICES, VERTEX_BYTES_MAX, decode_vertex, vertex_name):
        contents.vertices[vertex.vertex_id] = vertex
    for block in reader.each(
        BLOCKS,
        limits.block_bytes_max,
        lambda payload: block_of(payload, facts),
        lambda block: block.id.hex(),
    ):
        contents.blocks[block.id] = block
    unsigned = [
        Certificate(certificate.statement, ())
        for certificate in reader.each(
            CERTIFICATES,
            limits.certificate_bytes_max,
            lambda payload: certificate_of(payload, facts),
            certificate_name,
        )
    ]
    verify = _Judge(files, facts).verify
    if start is None:
        start_at = [b for b in contents.blocks.values() if isinstance(b.payload, GenesisPayload)]
        validators = facts.validators()
    else:
        start_at, validators = [start.below], start.validators
        contents.blocks[start.below.id] = start.below
    below = start_at[0].id if start_at and (start is None or start.leads) else None
    contents.validators = _lead_on(validators, below, contents.blocks, unsigned, verify)
    for certificate in unsigned:
        try:
            verify(certificate, contents.validators)
        except (Unreadable, DagError, ConsensusError, PeerFault) as fault:
            name = f"{CERTIFICATES}/{certificate_name(certificate)}"
            problems.append(Problem(f"is damaged or forged: {fault}", name))
            continue
        thing = _certified_thing(certificate)
        if certificate.statement.kind is Kind.EXEC:
            contents.execs[VertexId(thing)] = certificate
        else:
            contents.finals[BlockId(thing)] = certificate
    return contents


class _Judge:
    """Reads signatures when they are judged: those of a long chain do not fit into memory."""

    def __init__(self, files: ChainReader, facts: ChainFacts) -> None:
        self._files = files
        self._facts = facts

    def verify(self, certificate: Certificate, validators: Validators) -> None:
        """Return when the file of this statement holds a quorum's signatures of it.

        Raises PeerFault, or what reading and decoding raise, since the file may have changed.
        """
        name = f"{CERTIFICATES}/{certificate_name(certificate)}"
        payload = self._files.read(name, self._facts.limits.certificate_bytes_max, again=True)
        signed = certificate_of(payload, self._facts)
        if signed.statement != certificate.statement:
            raise PeerFault("other-statement", "it has changed since it was first read")
        validators.verify(signed)


_Verify = Callable[[Certificate, Validators], None]


def judged_file(
    files: ChainReader,
    name: str,
    size_bytes_max: int,
    decode: Callable[[bytes], T],
    name_of: Callable[[T], str],
    again: bool = False,
) -> T | Problem:
    """What the file holds, if its bytes are good and it has their name."""
    try:
        thing = decode(files.read(name, size_bytes_max, again))
    except Unreadable as fault:
        return Problem(str(fault), name)
    except (DagError, ConsensusError, PeerFault) as fault:
        return Problem(f"is damaged or forged: {fault}", name)
    own_name = f"{name.partition('/')[0]}/{name_of(thing)}"
    return thing if own_name == name else Problem(f"holds what belongs in {own_name}", name)


class _Reader:
    """Reads the files of one kind after another."""

    def __init__(self, files: ChainReader, listing: Listing, problems: list[Problem]) -> None:
        self._files = files
        self._listing = listing
        self._problems = problems

    def each(
        self,
        kind: str,
        size_bytes_max: int,
        decode: Callable[[bytes], T],
        name_of: Callable[[T], str],
    ) -> Iterator[T]:
        """The things of this kind whose bytes are good and whose file has their name."""
        for name in self._listing.names(kind):
            found = judged_file(self._files, name, size_bytes_max, decode, name_of)
            if isinstance(found, Problem):
                self._problems.append(found)
            else:
                yield found


def vertex_name(vertex: Vertex) -> str:
    return vertex.vertex_id.hex()


def block_of(payload: bytes, facts: ChainFacts) -> Block:
    """One of this chain. Raises DagError, ConsensusError and PeerFault."""
    block = decode_block(payload, facts.limits)
    if block.chain_id != facts.chain_id:
        raise PeerFault("foreign-chain", f"a block of chain {block.chain_id.hex()}")
    return block


def certificate_of(payload: bytes, facts: ChainFacts) -> Certificate:
    """Its shape and kind; the signatures are judged once it is known whose they should be."""
    certificate = decode_certificate(payload, facts.limits)
    statement = certificate.statement
    if statement.kind not in (Kind.EXEC, Kind.FINALIZE):
        raise PeerFault("wrong-kind", f"a certificate of {statement.kind} is not stored")
    return certificate


def _lead_on(
    validators: Validators,
    below: BlockId | None,
    blocks: Mapping[BlockId, Block],
    certificates: Iterable[Certificate],
    verify: _Verify,
) -> Validators:
    """The history that the chain proves from that block up, each epoch by its own finalization."""
    finals: dict[int, list[Certificate]] = {}  # by epoch, the latest view first
    for certificate in certificates:
        if certificate.statement.kind is Kind.FINALIZE:
            finals.setdefault(certificate.statement.domain.epoch, []).append(certificate)
    for of_epoch in finals.values():
        of_epoch.sort(key=lambda certificate: -certificate.statement.view)
    refused: set[BlockId] = set()  # by the committee that they name: that will not change
    while below is not None:
        epoch = validators.now.epoch
        path = _proved_path(validators, blocks, finals, below, verify, refused)
        validators.follow(path)
        if validators.now.epoch == epoch:
            break
        closing = [b for b in path if _ends_epoch(b, validators.epoch_rounds)]
        below = closing[-1].id  # the next epoch stands on it, whatever proof lies above
    return validators


def _proved_path(
    validators: Validators,
    blocks: Mapping[BlockId, Block],
    finals: Mapping[int, Sequence[Certificate]],
    below: BlockId,
    verify: _Verify,
    refused: set[BlockId],
) -> list[Block]:
    """The blocks above `below` that this epoch's committee makes final: to its end, or furthest."""
    furthest = below
    way = _WayDown(blocks, below, validators.epoch_rounds)
    for certificate in _candidates(finals, validators.now.epoch, validators.now.committee.root):
        block_id = BlockId(_certified_thing(certificate))
        ends = way.ends_epoch(block_id)
        if ends is None or (furthest != below and not ends) or block_id in refused:
            continue
        try:
            verify(certificate, validators)
        except (Unreadable, DagError, ConsensusError, PeerFault):
            refused.add(block_id)  # named when all certificates are judged
            continue
        furthest = block_id
        if ends:
            break
    return way.up_to(furthest)


class _WayDown:
    """Which blocks stand on one; each is looked at once, however many certificates lie above."""

    def __init__(self, blocks: Mapping[BlockId, Block], below: BlockId, epoch_rounds: int) -> None:
        self._blocks = blocks
        self._epoch_rounds = epoch_rounds
        self._below = below
        self._known: dict[BlockId, bool | None] = {below: False}

    def ends_epoch(self, block_id: BlockId) -> bool | None:
        """Whether an epoch ends on the way down from there; None if it does not lead there."""
        above, block = list[Block](), self._blocks.get(block_id)
        while block is not None and block.id not in self._known:
            above.append(block)
            block = self._blocks.get(block.parent_id)
        ends = None if block is None else self._known[block.id]
        for block in reversed(above):
            if ends is not None:
                ends = ends or _ends_epoch(block, self._epoch_rounds)
            self._known[block.id] = ends
        return ends

    def up_to(self, block_id: BlockId) -> list[Block]:
        """Of one that leads down, the blocks of the way."""
        path: list[Block] = []
        while block_id != self._below:
            path.append(self._blocks[block_id])
            block_id = path[-1].parent_id
        return path[::-1]


def _ends_epoch(block: Block, epoch_rounds: int) -> bool:
    closes = isinstance(block.payload, ResultPayload | AbortPayload)
    return closes and block.height % epoch_rounds == 0


def _candidates(
    finals: Mapping[int, Sequence[Certificate]], epoch: int, committee: ValidatorSetRoot
) -> Iterator[Certificate]:
    """This epoch's own first; of a later epoch one counts that names the same committee."""
    yield from finals.get(epoch, ())
    for later in sorted((number for number in finals if number > epoch), reverse=True):
        for certificate in finals[later]:
            if certificate.statement.domain.validator_set_root == committee:
                yield certificate


def _certified_thing(certificate: Certificate) -> bytes:
    value = certificate.statement.value
    thing = value[0] if isinstance(value, list) else value
    assert isinstance(thing, bytes), "the decoder lets nothing else through"
    return thing


def certificate_name(certificate: Certificate) -> str:
    """Of its file."""
    suffix = ".exec" if certificate.statement.kind is Kind.EXEC else ".final"
    return _certified_thing(certificate).hex() + suffix
