"""What a validator knows of the chain: verified messages in, certificates and final blocks out.

Everything here is the same for a validator and an observer: nothing depends on who votes for what.

    vote -> quorum -> certificate of view w -> the next view is w + 1
                      finalization -> ancestors known? -> final          else fetched first

An epoch's votes carry its number; the first view of an epoch follows that of the block which closed
the last one, whichever descendant made that block final (see Chain.split_trailing).

An epoch's committee follows from the chain below it. A certificate of a later epoch counts if it
names the committee that is final here; another one's is not even looked at before the blocks that
make it are final, by the certificate that closed this epoch. So nobody is led into a committee by
blocks that no quorum ever made final.
"""

from dataclasses import replace

from daa_consensus.bft import effects as do
from daa_consensus.bft.ballots import (
    CERTIFIED_KINDS,
    VIEWS_AHEAD_MAX,
    VIEWS_BEHIND_MAX,
    Ballots,
)
from daa_consensus.bft.catch_up import CatchUp, Standing, WantedBlocks
from daa_consensus.bft.chain import Chain, follow
from daa_consensus.bft.effects import Effect
from daa_consensus.bft.events import PeerPosition
from daa_consensus.bft.messages import Block
from daa_consensus.bft.proofs import Proof, Proofs
from daa_consensus.committee import Domain
from daa_consensus.errors import BadMessage
from daa_consensus.membership import Membership
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import BlockId, ChainId

OFFERED_MAX = 16  # certificates an offer; a peer that is further behind gets the next ones next


class Knowledge:
    """`effects` collects what follows from the messages; the machine takes it from there."""

    def __init__(
        self,
        chain_id: ChainId,
        membership: Membership,
        chain: Chain,
        proof: Proof | None,
        delta_ns: int,
    ) -> None:
        self.membership = membership
        self.committee = membership.committee  # of the epoch in which this node stands
        self.chain = chain
        self.domain = Domain(chain_id, chain.epoch, self.committee.root)
        self.view = chain.tip.view + 1
        self.ballots = Ballots(self.committee, chain.tip.view, chain.tip.id)
        self.effects: list[Effect] = []
        self._proofs = Proofs(proof)
        self._pending: Certificate | None = None  # a finalization whose ancestors are not known
        self.catch_up = CatchUp(self.committee, delta_ns)
        self.wanted = WantedBlocks()

    @property
    def slot(self) -> tuple[int, int]:
        return self.domain.epoch, self.view

    @property
    def position(self) -> Standing:
        return Standing(self.domain.epoch, self.view, self.chain.tip.view)

    @property
    def all_final(self) -> bool:
        """Whether nothing above the newest final block is notarized or about to be final."""
        return self.ballots.highest_notarized() == self.chain.tip.view and self._pending is None

    def certificates(self, epoch: int, first_view: int, last_view: int) -> list[Certificate]:
        if epoch != self.domain.epoch:
            return []
        return self.ballots.certificates(first_view, last_view)[:OFFERED_MAX]

    def block(self, block_id: BlockId) -> Block | None:
        return self.chain.get(block_id) or self._proofs.trailing_block(block_id)

    def is_current(self, statement: Statement) -> bool:
        """Whether the statement is of this epoch. Raises BadMessage for another network's."""
        theirs, ours = statement.domain, self.domain
        if theirs.chain_id != ours.chain_id:
            raise BadMessage("a statement of another chain")
        if theirs.epoch != ours.epoch:
            return False
        if theirs.validator_set_root != ours.validator_set_root:
            raise BadMessage("a statement of another validator set in this epoch")
        return True

    def take_proposal(self, signed: Signed, block: Block) -> None:
        """Remember the first Proposal of a view's leader. Raises BadMessage."""
        statement = signed.statement
        if statement.kind != Kind.PROPOSAL or statement.value != block.id:
            raise BadMessage("a Proposal that does not name its block")
        slot = (statement.domain.chain_id, statement.domain.epoch, statement.view, statement.height)
        if slot != (block.chain_id, block.epoch, block.view, block.height):
            raise BadMessage("a Proposal whose block is of another slot")
        if not self.is_current(statement) or not self._in_window(statement.view):
            return
        if signed.signer != self.committee.leader(self.domain, statement.view):
            raise BadMessage(f"a Proposal of view {statement.view} by who does not lead it")
        self._count(signed)
        if self.ballots.proposal(statement.view) == signed:
            self.chain.propose(block)

    def take_vote(self, signed: Signed) -> bool:
        """Count a Notarize, Nullify or Finalize. Raises BadMessage.

        False if it completes no certificate and convicts nobody.
        """
        statement = signed.statement
        if statement.kind not in CERTIFIED_KINDS:
            raise BadMessage(f"{statement.kind} is no vote on a block")
        if not self.is_current(statement):
            return False
        if signed.signer not in self.committee.stake_of:
            raise BadMessage("a vote of no validator")
        return self._in_window(statement.view) and self._count(signed)

    def _in_window(self, view: int) -> bool:
        # What is further behind was forgotten: nobody may fill that room again.
        recent = self.view - VIEWS_BEHIND_MAX <= view <= self.view + VIEWS_AHEAD_MAX
        return recent and view > self.chain.tip.view

    def _count(self, signed: Signed) -> bool:
        certificate, evidence = self.ballots.add(signed)
        self.effects += [do.Accuse(item) for item in evidence]
        if certificate is not None:
            self._hold(certificate)
        return certificate is not None or bool(evidence)

    def take_certificate(
        self, certificate: Certificate, block: Block | None, below: tuple[Block, ...] = ()
    ) -> None:
        """Hold a peer's certificate, its signatures verified. Raises BadMessage or NoQuorum."""
        statement = certificate.statement
        current = self.is_current(statement)
        if statement.kind not in CERTIFIED_KINDS:
            raise BadMessage(f"no certificates of {statement.kind} end a view")
        if not current and not _of_its_future(self.domain, statement):
            return
        certificate.check_weight(self.committee)
        if block is not None and block.id != statement.value:
            raise BadMessage("a certificate with a block that it does not certify")
        if statement.view <= self.chain.tip.view:
            return
        for known in (*below, *([] if block is None else [block])):
            self.chain.add(known)
        self._hold(certificate)

    def _hold(self, certificate: Certificate) -> None:
        kind = certificate.statement.kind
        current = certificate.statement.domain == self.domain
        news = current and self.ballots.certify(certificate)
        if kind == Kind.FINALIZE:
            if self.chain.decisions(_block_id(certificate)) is not None:
                self._finalize(certificate)
            elif self._pending is None or _slot(certificate) > _slot(self._pending):
                self._pending = certificate
        elif news:
            named = _block_id(certificate) if kind == Kind.NOTARIZE else BlockId(b"")
            self.effects.append(do.Keep(certificate, self.chain.get(named)))

    def take_block(self, block: Block, below: tuple[Block, ...]) -> None:
        """A block that was asked for, and ancestors of it, newest first; others are forgotten."""
        if not self.wanted.end(block.id):
            return
        self.chain.add(block)
        for ancestor in below:
            if ancestor.id != block.parent_id:
                break
            block = ancestor
            self.wanted.end(block.id)
            self.chain.add(block)

    def settle(self) -> None:
        """Draw every conclusion: finalize what can be final, leave every view that is over."""
        while self._pending is not None:
            certificate, target = self._pending, _block_id(self._pending)
            if self.chain.missing(target) is not None:
                signers = tuple(signer for signer, _ in certificate.signatures)
                height = certificate.statement.height
                self.effects += self.wanted.walk(self.chain, target, height, signers)
                break
            self._pending = None
            if self.chain.decisions(target) is not None:
                self._finalize(certificate)
        newest = self.ballots.highest_certified()
        if newest >= self.view:
            why = "notarization" if newest in self.ballots.notarized else "nullification"
            self._enter(newest + 1, f"{why} of view {newest}")

    def _finalize(self, certificate: Certificate) -> None:
        path = self.chain.path(_block_id(certificate))
        assert path is not None
        blocks, trailing = self.chain.split_trailing(path)
        if not blocks or certificate.statement.domain.epoch < self.domain.epoch:
            return  # a trailing block of an epoch that is over
        self.chain.finalize(blocks)
        tip = self.chain.tip
        self._proofs.newest = (certificate, tuple(trailing))
        for block in blocks:
            epoch = self.membership.epoch
            self.membership = follow(self.membership, block, self.chain.epoch_rounds)
            if self.membership.epoch != epoch:
                self._proofs.closed(epoch, certificate, path[-1])
        self.effects.append(do.Finalized(tuple(blocks), certificate, tuple(trailing)))
        if self._pending is not None and _slot(self._pending) <= (self.chain.epoch, tip.view):
            self._pending = None
        if self.chain.epoch != self.domain.epoch:
            self.committee = self.membership.committee
            root = self.committee.root
            self.domain = replace(self.domain, epoch=self.chain.epoch, validator_set_root=root)
            self.ballots = Ballots(self.committee, tip.view, tip.id)
            self.catch_up.follow(self.committee)
            self._enter(tip.view + 1, f"epoch {self.chain.epoch} begins")
        else:
            self.ballots.reroot(tip.view, tip.id)

    def _enter(self, view: int, why: str) -> None:
        self.view = view
        self.wanted.clear()  # whatever is still of interest is asked for again
        self.ballots.forget(view)
        self.chain.forget_proposals(view - VIEWS_BEHIND_MAX, self.ballots.notarized.values())
        self.effects.append(do.EnteredView(self.domain.epoch, view, why))

    def spoken_of(self) -> bool:
        """Whether more than f weight has said anything about this view or a later one."""
        speakers = self.ballots.senders(self.view) | self.catch_up.ahead_of(*self.slot)
        return self.committee.weight(speakers) >= self.committee.blocking

    def take_position(self, now_ns: int, theirs: PeerPosition) -> bool:
        """Note where a peer stands; offer what it lacks if it has been behind for a while.

        False if nothing can follow: the peer is not ahead of us, and is due no offer.
        """
        if not self.catch_up.note(now_ns, theirs, self.position):
            return (theirs.epoch, theirs.view) > self.slot
        offered = self._proofs.beyond(theirs.epoch, theirs.finalized_view, self.chain.tip)
        epoch = self.domain.epoch
        first_view = theirs.view if theirs.epoch == epoch else 0
        for certificate in self.certificates(epoch, first_view, self.view):
            notarizes = certificate.statement.kind == Kind.NOTARIZE
            block = self.chain.get(_block_id(certificate)) if notarizes else None
            offered.append((certificate, block))
        if offered:
            self.effects.append(do.Offer(theirs.peer, tuple(offered)))
        return True

    def check_invariants(self) -> None:
        tip = self.chain.tip
        assert self.view > tip.view
        assert self.domain.epoch == self.chain.epoch == self.membership.epoch
        assert self.domain.validator_set_root == self.committee.root
        assert self.catch_up.committee is self.committee
        assert self.ballots.notarized[tip.view] == tip.id
        assert all(tip.view < v <= self.view + VIEWS_AHEAD_MAX for v in self.ballots.views())
        assert self.ballots.highest_certified() < self.view


def _of_its_future(domain: Domain, statement: Statement) -> bool:
    """Whether the same committee finalizes in a later epoch: it vouches for all in between."""
    theirs = statement.domain
    later = statement.kind == Kind.FINALIZE and theirs.epoch > domain.epoch
    return later and theirs.validator_set_root == domain.validator_set_root


def _slot(certificate: Certificate) -> tuple[int, int]:
    return certificate.statement.domain.epoch, certificate.statement.view


def _block_id(certificate: Certificate) -> BlockId:
    value = certificate.statement.value
    assert isinstance(value, bytes)  # decoders and own votes admit nothing else
    return BlockId(value)
