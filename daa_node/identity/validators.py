"""Who votes in each epoch, who trains in each round, by which keys: as the final chain has it.

The genesis says who begins; everything after it follows from final blocks, in order, so that a node
that restarts, or a verifier, comes to the same history by reading the chain again. One object a
node: its agreement feeds it, everybody else asks.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from daa_consensus.bft.chain import follow
from daa_consensus.bft.limits import Limits
from daa_consensus.bft.messages import Block, SetPayload
from daa_consensus.committee import Committee, Domain, count_next_max
from daa_consensus.membership import Membership, Waiting
from daa_consensus.operations import Action, Join, Leave, Operation, Rotate
from daa_consensus.protocol_words import SPOKEN
from daa_consensus.roll import Admission, Roll
from daa_consensus.votes import Certificate, Signed, Statement
from daa_dag import canonical
from daa_dag.errors import DagError
from daa_dag.ids import ChainId, Digest, NodeId, node_id_of
from daa_node.errors import PeerFault
from daa_node.identity.envelope import Check, verify_certificate, verify_signed
from daa_node.identity.epoch_runs import Epoch, EpochRuns
from daa_node.identity.keys import NodeKeys, ed25519_public_key_of, verify, verify_ed25519
from daa_node.identity.other_protocol import check_spoken
from daa_node.identity.roll_history import RollHistory
from daa_node.identity.validators_record import ValidatorsRecord, Verdict
from daa_node.seams import PeerId

LATER_EPOCH = "later-epoch"  # no lie: we are behind whoever says this
GONE_KEPT = 256  # of who is on the roll no more: 2 kB each
TAKEN = "taken"  # no lie either: whoever says this may be behind us, and have judged it rightly


@dataclass(frozen=True, slots=True)
class MemberKeys:
    """The public keys that a validator is known by.

    `proof` is the Ed25519 signature of the peer that `peer_id` names, which agrees to be this
    node's: nobody takes another's peer id for a node of its own.
    """

    ml_dsa: bytes
    ml_kem: bytes
    peer_id: PeerId
    proof: bytes

    @classmethod
    def of(cls, keys: NodeKeys, transport: NodeKeys | None = None) -> "MemberKeys":
        """A node's, proven; `transport` are keys whose peer id it goes by, if not its own."""
        peer = transport or keys
        bare = cls(keys.ml_dsa_public_key, keys.ml_kem_public_key, peer.peer_id, b"")
        return replace(bare, proof=peer.sign_ed25519(bare._claim()))

    def encode(self) -> bytes:
        return canonical.encode([self.ml_dsa, self.ml_kem, self.peer_id, self.proof])

    def check_proof(self) -> None:
        """Raises PeerFault unless the peer has agreed."""
        transport_key = ed25519_public_key_of(self.peer_id)
        if not verify_ed25519(transport_key, self.proof, self._claim()):
            raise PeerFault("bad-signature", f"{self.peer_id} has not agreed to be this node's")

    def _claim(self) -> bytes:
        return canonical.encode(["daa/v1/member-keys", self.ml_dsa, self.ml_kem, self.peer_id])


def decode_member_keys(payload: bytes, node_id: NodeId) -> MemberKeys:
    """Raises PeerFault unless these are keys, and `node_id` follows from them."""
    try:
        match canonical.decode(payload, len(payload)):
            case [bytes(ml_dsa), bytes(ml_kem), str(peer_id), bytes(proof)]:
                pass
            case _:
                raise PeerFault("malformed", "keys are two public keys, a peer id and its proof")
    except DagError as fault:
        raise PeerFault("malformed", f"keys: {fault}") from None
    ed25519_public_key_of(peer_id)
    if node_id_of(ml_dsa) != node_id:
        raise PeerFault("malformed", f"{node_id.hex()[:16]} does not follow from its key")
    return MemberKeys(ml_dsa, ml_kem, PeerId(peer_id), proof)


def newcomer_of(action: Action) -> tuple[NodeId, MemberKeys] | None:
    """Whose keys the action brings in, if it does. Raises PeerFault for what are none."""
    match action:
        case Join(subject=newcomer, keys=encoded) | Rotate(successor=newcomer, keys=encoded):
            return newcomer, decode_member_keys(encoded, newcomer)
        case _:
            return None


def check_signatures(
    operation: Operation,
    chain_id: ChainId,
    public_keys: Mapping[NodeId, bytes],
    check: Check = verify,
) -> None:
    """Return when every signature is good. Raises PeerFault, LATER_EPOCH if a signer is unknown.

    Keys that the operation brings itself are none of `public_keys`, or the same there.
    """
    request, brought = operation.request, dict[NodeId, bytes]()
    newcomer = newcomer_of(request.action)
    if newcomer is not None:
        brought[newcomer[0]] = newcomer[1].ml_dsa
        newcomer[1].check_proof()
    statement = request.statement(chain_id)
    for signer, signature in operation.signatures:
        public_key = brought.get(signer) or public_keys.get(signer)
        if public_key is None:
            raise PeerFault(LATER_EPOCH, f"no key is known for {signer.hex()}")
        if not check(public_key, signature, statement.sign_bytes(), statement.context):
            raise PeerFault("bad-signature", f"an operation in the name of {signer.hex()}")


def keys_brought(operations: Iterable[Operation]) -> dict[NodeId, bytes]:
    """ML-DSA-65 keys of newcomers, by the names that follow from them."""
    found: dict[NodeId, bytes] = {}
    for operation in operations:
        try:
            newcomer = newcomer_of(operation.request.action)
        except PeerFault:
            continue
        if newcomer is not None:
            found[newcomer[0]] = newcomer[1].ml_dsa
    return found


def check_free(peer_ids: Mapping[NodeId, PeerId], name: NodeId, brought: MemberKeys) -> None:
    """Return when nobody else has the name or the peer id. Raises PeerFault(TAKEN)."""
    if peer_ids.get(name, brought.peer_id) != brought.peer_id:
        raise PeerFault(TAKEN, "a node that was a member comes as another peer")
    if any(p == brought.peer_id for node, p in peer_ids.items() if node != name):
        raise PeerFault(TAKEN, f"{brought.peer_id} is another member")


def _newcomers(waiting: Iterable[Waiting]) -> dict[NodeId, Action]:
    """Whom the requests that wait would bring in, and by which request."""
    found: dict[NodeId, Action] = {}
    for action in (item.request.action for item in waiting):
        match action:
            case Join(subject=newcomer) | Rotate(successor=newcomer):
                found.setdefault(newcomer, action)
            case _:
                pass
    return found


def _keys_in(action: Action) -> bytes:
    assert isinstance(action, Join | Rotate), "others bring no keys"
    return action.keys


def part_of(name: NodeId, now: Membership) -> str:
    """What this one is, in a word."""
    if name in now.committee.stake_of:
        return "validator"
    return "observer" if now.roll.entry_of(name) is None else "trainer"


def _convicted_at(
    verdicts: Sequence[Verdict], round_number: int, closed: bool
) -> tuple[NodeId, ...]:
    before = (v for v in reversed(verdicts) if v[:2] <= (round_number, closed))
    return next((verdict.convicted for verdict in before), ())


class Validators:
    """`now` is what holds above the newest block that was followed. `check` judges signatures."""

    def __init__(
        self,
        chain_id: ChainId,
        epoch_rounds: int,
        first: Membership,
        public_keys: Mapping[NodeId, bytes],
        peer_ids: Mapping[NodeId, PeerId],
        contributors: Collection[NodeId],
        check: Check = verify,
    ) -> None:
        self.speaks = SPOKEN  # protocol versions: into an epoch of another one nothing leads it
        self.chain_id = chain_id
        self.epoch_rounds = epoch_rounds
        self._first = self.now = first
        self.check = check
        roll = first.roll
        voting = {*contributors} - {entry.name for entry in roll.entries}
        self._epochs = EpochRuns([(Epoch(first.committee, tuple(sorted(voting))), 1)])
        self.rolls = RollHistory(roll)
        # ML-DSA-65, of everybody who ever was a validator, waits to be one, or trains
        self.public_keys = dict(public_keys)
        self.peer_ids = dict(peer_ids)
        # known only while their request waits, or they stand on the roll
        self._passing = frozenset(entry.name for entry in roll.entries)
        # What they have said is still shown, by honest ones, too. Oldest first.
        self._gone: dict[NodeId, None] = {}
        self._verdicts: list[Verdict] = []  # oldest first
        self._followed = (0, 0)  # slot of the newest block taken in
        self.limits = Limits(0, 0)
        self._make_room(self._epochs.newest)
        # Whom to write to: who votes, who is about to, who has just stopped, and trainers.
        self.listeners = self._who_listens()

    def voters(self) -> Collection[NodeId]:
        """Of the newest epoch."""
        return self.now.committee.stake_of.keys()

    def may_contribute(self, name: NodeId, epoch: int) -> bool:
        """Whether a round of the epoch may have a contribution of this one, convicted or not."""
        votes = name in self._epochs.at(min(epoch, self.now.epoch)).contributors
        if votes or name in self._gone or self.now.roll.entry_of(name) is not None:
            return True
        # Who is, or was, a member besides leaves the roll and is not gone.
        first = epoch * self.epoch_rounds + 1
        return self.rolls.has_drawn(name, first, first + self.epoch_rounds - 1)

    def copy(self) -> "Validators":
        """A history that can be led on without this one: to judge what is not final here yet."""
        twin = Validators(
            self.chain_id,
            self.epoch_rounds,
            self._first,
            self.public_keys,
            self.peer_ids,
            self._epochs.at(0).contributors,
            self.check,
        )
        twin.speaks = self.speaks
        twin.now, twin._epochs, twin.rolls = self.now, self._epochs.copy(), self.rolls.copy()
        # Shared: they only grow, and only blocks that are proved final are followed. Who leads the
        # copy on, over pages, needs room for what those who have come since write.
        twin.limits = self.limits
        twin._followed, twin._verdicts = self._followed, list(self._verdicts)
        twin._passing, twin.listeners = self._passing, self.listeners
        twin._gone = dict(self._gone)
        return twin

    def follow(self, blocks: Iterable[Block]) -> bool:
        """Take in final blocks, oldest first; whether membership is another now.

        Those that were taken in before change nothing: pages begin below what is final here.
        Raises OtherProtocol where an epoch would begin that this program must say nothing in; the
        block that ends the one before, and all above it, are not taken in.
        """
        before = self.now
        for block in blocks:
            if (block.epoch, block.view) <= self._followed:
                continue
            then = follow(self.now, block, self.epoch_rounds)
            check_spoken(then, self.speaks, self.epoch_rounds)
            self._followed = (block.epoch, block.view)
            epoch, convicted, waited = self.now.epoch, self.now.convicted, self.now.waiting
            roll = self.now.roll
            self.now = then
            if self.now.roll is not roll:
                self.rolls.note(self.now.roll, block)
            if self.now.waiting != waited or self.now.roll.entries != roll.entries:
                self._learn_who_passes(roll)
            if self.now.convicted != convicted:
                closed = not isinstance(block.payload, SetPayload)
                self._verdicts.append(Verdict(block.height, closed, self.now.convicted))
            if self.now.epoch != epoch:
                self._epochs.append(Epoch(self.now.committee, self._contributors_now()))
                self._make_room(self._epochs.newest)
        if self.now == before:
            return False
        self.listeners = self._who_listens()
        return True

    def epoch_of(self, round_number: int) -> int:
        return (round_number - 1) // self.epoch_rounds

    def committee(self, epoch: int) -> Committee:
        """Of an epoch that has begun here, else of the newest that has."""
        return self._epochs.at(min(epoch, self.now.epoch)).committee

    def contributors(self, round_number: int) -> tuple[NodeId, ...]:
        """Who may contribute to the round: of its epoch, without who stands convicted as it opens.

        The round is at most the one after the newest that was followed.
        """
        epoch = min(self.epoch_of(round_number), self.now.epoch)
        barred = _convicted_at(self._verdicts, round_number - 1, closed=True)
        names = {*self._epochs.at(epoch).contributors, *self.rolls.trainers(round_number)}
        return tuple(sorted(names.difference(barred)))

    def roll_root_above(self, set_block: Block) -> Digest:
        """Of the roll once this set is final; as `convicted_by`."""
        if (set_block.epoch, set_block.view) <= self._followed:
            return self.rolls.root(set_block.height)
        return follow(self.now, set_block, self.epoch_rounds).roll.root

    def convicted_by(self, set_block: Block) -> tuple[NodeId, ...]:
        """Who stands convicted once this set is final, sorted.

        A set that was not followed yet stands on the newest block that was.
        """
        if (set_block.epoch, set_block.view) <= self._followed:
            return tuple(sorted(_convicted_at(self._verdicts, set_block.height, closed=False)))
        return tuple(sorted(follow(self.now, set_block, self.epoch_rounds).convicted))

    def domain(self, epoch: int) -> Domain:
        return Domain(self.chain_id, epoch, self.committee(epoch).root)

    def committee_behind(self, statement: Statement) -> Committee:
        """Who answers for the statement. Raises PeerFault, LATER_EPOCH if that is not known yet.

        A later epoch's statement that names the newest committee known is that committee's.
        """
        theirs = statement.domain
        if theirs.epoch > self.now.epoch and theirs != self.domain(theirs.epoch):
            raise PeerFault(LATER_EPOCH, f"epoch {theirs.epoch}, here it is {self.now.epoch}")
        return self.committee(theirs.epoch)

    def verify_statement(self, signed: Signed) -> None:
        """Return when its signer said this in the domain of its epoch. Raises PeerFault."""
        domain = self.domain(signed.statement.domain.epoch)
        verify_signed(signed, self.public_keys, domain, self.check)

    def verify(self, certificate: Certificate) -> None:
        """Return when a quorum of its epoch's committee signed it all. Raises PeerFault."""
        committee = self.committee_behind(certificate.statement)
        domain = self.domain(certificate.statement.domain.epoch)
        verify_certificate(certificate, committee, self.public_keys, domain, self.check)

    def check_operation(self, operation: Operation) -> None:
        """Return when the keys that it brings fit and every signature is good. Raises PeerFault.

        LATER_EPOCH if a signer is unknown: it may be a member of an epoch that we have yet to see.
        TAKEN if the chain has come to give the name or the peer id to somebody else: it was good
        once, and is so still for whoever has not seen that.
        """
        check_signatures(operation, self.chain_id, self.public_keys, self.check)
        self.check_names(operation)

    def check_names(self, operation: Operation) -> None:
        """Return when what it brings has names that are free still. Raises PeerFault(TAKEN)."""
        newcomer = newcomer_of(operation.request.action)
        if newcomer is not None:
            check_free(self.peer_ids, *newcomer)

    def _who_listens(self) -> frozenset[NodeId]:
        now, before = self.now.committee, self._epochs.at(max(0, self.now.epoch - 1)).committee
        newcomers = _newcomers(self.now.waiting)
        return frozenset({*now.stake_of, *before.stake_of, *newcomers, *self.now.trainers})

    def _learn_who_passes(self, before: Roll) -> None:
        """Know the keys of newcomers and trainers, and forget those of whom nobody let in."""
        known_by = {name: _keys_in(action) for name, action in _newcomers(self.now.waiting).items()}
        known_by |= {entry.name: entry.keys for entry in self.now.roll.entries}
        # Who was let in is known for good, by what it signs, whatever else waits in its name.
        passing = self._passing - self.now.committee.stake_of.keys()
        for name in sorted(passing - known_by.keys()):
            self.peer_ids.pop(name, None)
            if before.entry_of(name) is None:
                del self.public_keys[name]
            else:
                self._gone[name] = None
        passing &= known_by.keys()
        while len(self._gone) > GONE_KEPT:
            del self.public_keys[next(iter(self._gone))], self._gone[next(iter(self._gone))]
        for name in sorted(known_by.keys() - (self.public_keys.keys() - self._gone.keys())):
            self._gone.pop(name, None)
            try:
                keys = decode_member_keys(known_by[name], name)
            except PeerFault:
                continue  # no honest validator voted for a set with these
            self.public_keys[name], self.peer_ids[name] = keys.ml_dsa, keys.peer_id
            passing |= {name}
        self._passing = passing

    def _contributors_now(self) -> tuple[NodeId, ...]:
        found = set(self._epochs.newest.contributors) - {*self.now.expelled}
        for request in self.now.applied:
            match request.action:
                case Join(subject):
                    found.add(subject)
                case Leave(subject):
                    found.discard(subject)
                case Rotate(subject, successor) if subject in found:
                    found = (found - {subject}) | {successor}
                case _:
                    pass
        return tuple(sorted(found))

    def _make_room(self, newest: Epoch) -> None:
        # Messages of the next epoch arrive before it has begun here.
        limits, roll = self.limits, self.now.roll
        members = len(newest.committee.validators)
        limits.validators = max(limits.validators, count_next_max(members))
        if roll.rules.admission is Admission.CLOSED:
            most = count_next_max(members + len(roll.entries))
        else:
            most = max(count_next_max(members), roll.rules.contributors_max)
        limits.contributors = max(limits.contributors, most)


def record_of(history: Validators) -> ValidatorsRecord:
    """All that it has come to."""
    return ValidatorsRecord(
        epochs=history._epochs.runs(),
        now=history.now,
        verdicts=history._verdicts,
        followed=history._followed,
        public_keys=history.public_keys,
        peer_ids=history.peer_ids,
        passing=history._passing,
        gone=tuple(history._gone),
        rolls=history.rolls.record(),
    )


def recall(history: Validators, record: ValidatorsRecord) -> None:
    """Bring it to what an earlier process had come to, of the same chain.

    Raises OtherProtocol where that spoke a version which this program does not.
    """
    check_spoken(record.now, history.speaks, history.epoch_rounds)
    history._epochs, history._verdicts = EpochRuns(record.epochs), list(record.verdicts)
    history.now, history._followed = record.now, record.followed
    history._passing, history._gone = record.passing, dict.fromkeys(record.gone)
    history.rolls.recall(record.rolls)
    # Not added to: of a trainer that has gone again nobody else knows a name any more.
    history.public_keys.clear()
    history.public_keys.update(record.public_keys)
    history.peer_ids.clear()
    history.peer_ids.update(record.peer_ids)
    for epoch, _ in record.epochs:
        history._make_room(epoch)
    history.listeners = history._who_listens()
