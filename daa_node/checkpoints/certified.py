"""Which vertices of a chain directory are certified: headers and proofs, no model state.

    contents     each vertex, block and certificate by itself: names, digests, every signature
    headers      one final chain of blocks from the genesis block
    results      each vertex is the one that its final set and its execution make

Trusts the genesis alone. What is wrong is a problem with the file's path; `verify` goes on from
here to the states, `export` writes nothing but what holds here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from daa_consensus.bft.evidence import decode_evidence
from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    ResultPayload,
    SetPayload,
    decode_signed,
    genesis_block,
)
from daa_consensus.enrolment import encode_enrolment, enrolments, signer_of
from daa_consensus.errors import ConsensusError
from daa_consensus.operations import encode_operation, membership_operations
from daa_consensus.votes import Signed
from daa_dag.checkpoint import VERTEX_BYTES_MAX, Vertex, decode_vertex, result_root
from daa_dag.ids import BlockId, NodeId, VertexId
from daa_node.checkpoints.contents import ChainFacts, Contents, read_contents
from daa_node.checkpoints.files import ChainReader, Listing
from daa_node.checkpoints.headers import Outcome, judge_headers
from daa_node.checkpoints.layout import (
    BLOCKS,
    CERTIFICATES,
    DELTAS,
    MANIFESTS,
    VERTICES,
    exec_name,
    final_name,
)
from daa_node.checkpoints.plain_files import Problem, Unreadable
from daa_node.checkpoints.publish import step_of, vertex_on
from daa_node.errors import PeerFault, UserError
from daa_node.identity.enrolling import check_enrolment_signature, keys_enrolled
from daa_node.identity.validators import check_signatures, keys_brought


class Past(Protocol):
    """Certified vertices of one chain, each on the one below, as commands ask for them.

    All raise UserError.
    """

    @property
    def files(self) -> ChainReader: ...

    @property
    def height(self) -> int:
        """Of the newest."""

    def find(self, text: str) -> Vertex:
        """The one of this height or id, or start of an id; `tip` is the newest."""

    def at(self, height: int) -> Vertex: ...

    def has_snapshot(self, vertex: Vertex) -> bool:
        """Whether both manifests of its state are here."""


def way_to(past: Past, vertex: Vertex) -> list[Vertex]:
    """From the nearest one below, or itself, whose state is here or is the first one, up to it."""
    way = [vertex]
    while way[-1].height and not past.has_snapshot(way[-1]):
        way.append(past.at(way[-1].height - 1))
    return way[::-1]


@dataclass(slots=True)
class Certified:
    """What the headers and proofs of a directory make certain."""

    files: ChainReader
    listing: Listing
    contents: Contents
    chain: list[Vertex]  # that hold, by height from 0 up
    placed: list[Vertex]  # above the genesis, named by a final result, whether they hold or not
    promised: list[Outcome]  # final results above the newest whose vertex is here, lowest first
    final_height: int  # of the vertex that the newest final result names, here or not
    # Certificates of vertices that are not here, by name, each with its epoch, whose end proves
    # these vertices (see Judge).
    light: dict[str, int]
    used: set[str]  # names of files that belong to the chain
    problems: list[Problem]

    def find(self, text: str) -> Vertex:
        """The certified vertex of this height or id, or start of an id; `tip` is the newest.

        Raises UserError when there is none, or more than one.
        """
        ids = [vertex.vertex_id for vertex in self.chain]
        return self.chain[find_certified(text, ids, self.promised)]

    @property
    def height(self) -> int:
        return self.chain[-1].height

    def at(self, height: int) -> Vertex:
        return self.chain[height]

    def has_snapshot(self, vertex: Vertex) -> bool:
        """Whether both manifests of its state are listed."""
        roots = (vertex.model_root, vertex.outer_state_root)
        return all(f"{MANIFESTS}/{root.hex()}" in self.listing.sizes for root in roots)


def find_certified(text: str, ids: Sequence[VertexId], promised: Sequence[Outcome]) -> int:
    """The height of a vertex of a chain that has these ids by height.

    Raises UserError as `Certified.find` does.
    """
    if text == "tip" and promised:
        newest = promised[-1].result
        raise UserError(
            f"the headers make vertex {newest.vertex_id.hex()} final, and it is not here: "
            f"name a height up to {len(ids) - 1}, or get the missing files",
            exit_code=1,
        )
    height = find_place(text, ids, range(len(ids)))
    if height is None:
        raise no_certified(text, len(ids) - 1)
    return height


def no_certified(text: str, highest: int) -> UserError:
    return UserError(
        f"no certified vertex {text} is here: heights 0 to {highest} are certified. If there "
        "should be more, `daa-node checkpoint verify` says what is wrong",
        exit_code=1,
    )


def find_place(text: str, ids: Sequence[VertexId], heights: Sequence[int]) -> int | None:
    """By height, id, or 8 digits or more of the start of an id; `tip` is the last.

    Raises UserError for what is none of these, and for a start that fits several.
    """
    if text == "tip":
        return len(ids) - 1
    if text.isdecimal() and len(text) < 8:
        found = [place for place, height in enumerate(heights) if height == int(text)]
    elif len(text) < 8:
        raise UserError(f"{text!r} is no height, no tag, and not 8 or more digits of an id")
    else:
        start = text.lower()
        found = [place for place, one in enumerate(ids) if one.hex().startswith(start)]
    if len(found) > 1:
        told = ", ".join(ids[place].hex()[:16] for place in found)
        raise UserError(f"{text} could be any of {told}: give more of the id")
    return found[0] if found else None


def read_vertex(files: ChainReader, vertex_id: VertexId) -> Vertex:
    """Raises Unreadable and DagError."""
    vertex = decode_vertex(files.read(f"{VERTICES}/{vertex_id.hex()}", VERTEX_BYTES_MAX))
    if vertex.vertex_id != vertex_id:
        raise Unreadable(f"holds what belongs in {VERTICES}/{vertex.vertex_id.hex()}")
    return vertex


def certified_chain(files: ChainReader, facts: ChainFacts) -> Certified:
    """Judge headers and proofs among a chain's files. Blocking; takes no lock."""
    listing = files.listing()
    first = facts.first_vertex
    problems = list(listing.strange)
    contents = read_contents(files, listing, facts, problems)
    judge = Judge(facts, listing, contents, problems)
    genesis = genesis_block(facts.chain_id, first.vertex_id)
    judge.check_first(genesis, first)
    outcomes = judge.check_headers(genesis)
    chain = judge.check_results(first, outcomes)
    return Certified(
        files=files,
        listing=listing,
        contents=contents,
        chain=chain,
        placed=judge.placed,
        promised=judge.promised,
        final_height=len(outcomes),
        light=judge.light,
        used=judge.used,
        problems=problems,
    )


class Judge:
    """One pass over what was read; problems go into the list that was given."""

    def __init__(
        self,
        facts: ChainFacts,
        listing: Listing,
        contents: Contents,
        problems: list[Problem],
        asked: Mapping[NodeId, bytes] | None = None,
    ) -> None:
        """`asked`: keys of whoever asked to be let in below what was read."""
        self._facts = facts
        self._listing = listing
        self.contents = contents
        self._problems = problems
        self._closed_round = 0  # the newest that a final block closes
        # Of what was judged below: whether each vertex stands on one that holds, and whether a
        # write under way has ended the chain.
        self.is_unbroken, self.has_ended = True, False
        self.placed: list[Vertex] = []
        self.promised: list[Outcome] = []
        self.light: dict[str, int] = {}  # see Certified
        self.used: set[str] = set()
        # of whoever asked to be let in, those that validators have forgotten among them
        self.asked: dict[NodeId, bytes] = dict(asked or {})
        for block in contents.blocks.values():
            if isinstance(block.payload, SetPayload):
                operations = block.payload.operations
                self.asked |= keys_brought(membership_operations(operations))
                self.asked |= keys_enrolled(enrolments(operations))
        # those of trainers that are gone again, too
        contents.validators.public_keys.update(facts.public_keys)
        contents.validators.public_keys.update(
            {n: k for n, k in self.asked.items() if n not in contents.validators.public_keys}
        )

    def _wrong(self, where: str, what: str) -> None:
        self._problems.append(Problem(what, where))

    def _need(self, name: str, why: str) -> None:
        """`name` belongs to the chain; a missing file is a problem, a damaged one was named."""
        self.used.add(name)
        if name not in self._listing.sizes:
            self._wrong(name, f"is missing: {why}")

    def _need_first(self, name: str, why: str) -> None:
        """As `_need`, what the first start makes; unless it was cut off, and will be finished."""
        if name not in self._listing.arriving:
            self._need(name, why)

    def check_first(self, genesis: Block, first: Vertex) -> None:
        """What the first start makes, which nothing certifies."""
        self._need_first(f"{BLOCKS}/{genesis.id.hex()}", "the genesis block")
        self._need_first(f"{VERTICES}/{first.vertex_id.hex()}", "the genesis vertex")

    def check_headers(self, genesis: Block) -> list[Outcome]:
        """How each round on the one final path above this block ended, oldest first."""
        contents = self.contents
        certified = set()
        for block_id, certificate in contents.finals.items():
            name, statement = f"{CERTIFICATES}/{final_name(block_id)}", certificate.statement
            self.used.add(name)
            self._need(f"{BLOCKS}/{block_id.hex()}", f"{name} makes it final")
            block = contents.blocks.get(block_id)
            if block is None:
                continue
            said = (statement.domain.epoch, statement.view, statement.height)
            if said != (block.epoch, block.view, block.height):
                self._wrong(name, "names another epoch, view or height than its block has")
            else:
                certified.add(block_id)
        damaged = {
            BlockId(bytes.fromhex(name.partition("/")[2])) for name in self._listing.names(BLOCKS)
        } - contents.blocks.keys()
        judged = judge_headers(
            contents.blocks, certified, damaged, genesis, self._facts.epoch_rounds
        )
        self._problems += judged.problems
        self.used |= {f"{BLOCKS}/{block_id.hex()}" for block_id in judged.final}
        final = [contents.blocks[each] for each in judged.final if each in contents.blocks]
        closing = [b.height for b in final if isinstance(b.payload, ResultPayload | AbortPayload)]
        self._closed_round = max(closing, default=0)
        return judged.outcomes

    def check_results(self, first: Vertex, outcomes: list[Outcome]) -> list[Vertex]:
        """The vertices that hold, from this one up, as far as they stand on each other."""
        contents, chain = self.contents, [first]
        stored = [self._is_stored(outcome.result.vertex_id) for outcome in outcomes]
        newest_stored = max((at for at, is_stored in enumerate(stored) if is_stored), default=-1)
        self.promised = outcomes[newest_stored + 1 :]
        self.light = self._light(outcomes)
        for outcome in outcomes:
            vertex_id = outcome.result.vertex_id
            vertex_name = f"{VERTICES}/{vertex_id.hex()}"
            # the daemon was in the middle of writing it, and will finish or undo that
            self.has_ended |= outcome in self.promised and self._is_arriving(vertex_id)
            if self.has_ended:
                break
            block_name = f"{BLOCKS}/{outcome.block.id.hex()}"
            self._need(vertex_name, f"{block_name} makes it final")
            proof_name = f"{CERTIFICATES}/{exec_name(vertex_id)}"
            if proof_name not in self.light:
                self._need(proof_name, f"nothing certifies {vertex_name}")
            vertex = contents.vertices.get(vertex_id)
            if vertex is None:
                self.is_unbroken = False
                continue
            self.placed.append(vertex)
            self.used.add(f"{DELTAS}/{vertex.delta_root.hex()}")
            executed = self._is_executed(vertex, outcome)
            if not self.is_unbroken:
                continue
            wrong = self._misfit(chain[-1], vertex, outcome)
            if wrong is not None:
                self._wrong(vertex_name, wrong)
            self.is_unbroken = executed and wrong is None
            if self.is_unbroken:
                chain.append(vertex)
        return chain

    def _light(self, outcomes: Sequence[Outcome]) -> dict[str, int]:
        """Certificates of vertices that are not here and need not be, each with its epoch.

        Up to the end of an epoch that is over: it may have been let go, or never come to who joined
        far behind, and what made that end final has made the results below it final, vertices and
        roots. Below a vertex of the same epoch that has its own, a missing one was lost.
        """
        light, others = dict[str, int](), set[int]()
        for outcome in reversed(outcomes):
            epoch = outcome.block.epoch
            is_over = (epoch + 1) * self._facts.epoch_rounds <= self._closed_round
            name = f"{CERTIFICATES}/{exec_name(outcome.result.vertex_id)}"
            if is_over and epoch not in others and name not in self._listing.sizes:
                light[name] = epoch
            else:
                others.add(epoch)
        return light

    def _is_stored(self, vertex_id: VertexId) -> bool:
        names = {f"{VERTICES}/{vertex_id.hex()}", f"{CERTIFICATES}/{exec_name(vertex_id)}"}
        # While they arrive they prove nothing: what they stand on may not have come yet.
        return bool((names & self._listing.sizes.keys()) - self._listing.arriving)

    def _is_arriving(self, vertex_id: VertexId) -> bool:
        """Whether a write was under way that would have brought the vertex with its proof."""
        return f"{VERTICES}/{vertex_id.hex()}" in self._listing.arriving

    def _is_executed(self, vertex: Vertex, outcome: Outcome) -> bool:
        """Whether block and certificate say that the set was executed to this vertex.

        Where the end of an epoch stands for the certificate, the block says it, which is final.
        """
        root = result_root(vertex.model_root, vertex.outer_state_root, vertex.delta_root)
        good = outcome.result.result_root == root
        if not good:
            self._wrong(
                f"{BLOCKS}/{outcome.block.id.hex()}", "names other roots than its vertex has"
            )
        certificate = self.contents.execs.get(vertex.vertex_id)
        name = f"{CERTIFICATES}/{exec_name(vertex.vertex_id)}"
        if certificate is None:
            return good and name in self.light  # else missing or damaged: named already
        statement = certificate.statement
        if statement.value != [vertex.vertex_id, root]:
            self._wrong(name, "certifies other roots than its vertex has")
            good = False
        epoch = None if outcome.set_block is None else outcome.set_block.epoch
        if statement.height != outcome.result.round or epoch not in (None, statement.domain.epoch):
            self._wrong(name, "certifies another round or epoch than the one that ended so")
            good = False
        return good

    def _misfit(self, parent: Vertex, vertex: Vertex, outcome: Outcome) -> str | None:
        """Why this is not the vertex that the final set makes on top of `parent`."""
        set_block = outcome.set_block
        if set_block is None:
            return "cannot be placed: the block of its set is missing or damaged"
        payload = set_block.payload
        assert isinstance(payload, SetPayload)
        validators = self.contents.validators
        contributors = validators.contributors(payload.round)
        vouchers = validators.rolls.trainers(payload.round)
        committee = validators.committee(set_block.epoch)
        authors = {offer.author for offer in payload.offers}
        if not authors <= set(contributors):
            return "its set has an author who may not contribute"
        if any(offer.base_vertex_id != parent.vertex_id for offer in payload.offers):
            return "its set has a contribution on another base"
        unplanned = self._facts.set_fault(parent, contributors, committee, vouchers, payload)
        if unplanned is not None:
            return f"its set does not follow from the plan: {unplanned}"
        try:
            self._check_carried(payload)
            expected = vertex_on(parent, set_block, step_of(vertex), validators)
        except ConsensusError as fault:
            return f"its set carries bad evidence: {fault}"
        except PeerFault as fault:
            return f"its set carries a statement that nobody signed: {fault}"
        if vertex != expected:
            return "is not the vertex that its parent and its final set make"
        return None

    def _check_carried(self, payload: SetPayload) -> None:
        """Every signature in the evidence, requests and rejoins of a set.

        A quorum vouched for them; whoever reads the chain later need not take its word. Whether a
        name was free is another matter: it may have been given away since. Raises PeerFault for a
        bad signature, ConsensusError for what has no such shape.
        """
        validators, limits = self.contents.validators, self._facts.limits
        for encoded in payload.evidence:
            evidence = decode_evidence(encoded, limits)
            if evidence.is_late_for(payload.round):
                raise PeerFault("late_evidence", evidence.offence)
            for part in evidence.parts:
                if isinstance(part, Signed):
                    validators.verify_statement(part)
                else:
                    validators.verify(part)
        requests = list(membership_operations(payload.operations))
        for operation in requests:
            check_signatures(operation, validators.chain_id, validators.public_keys)
        known = {encode_operation(operation) for operation in requests}
        for enrolment in enrolments(payload.operations):
            key = validators.public_keys.get(signer_of(enrolment.request.action))
            check_enrolment_signature(enrolment, validators.chain_id, key)
            known.add(encode_enrolment(enrolment))
        for encoded in payload.operations:
            if encoded not in known:
                validators.verify_statement(decode_signed(encoded, limits))
