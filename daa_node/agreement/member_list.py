"""The list of members as the final chain leads it on: who is written to, and who is told of it."""

from collections.abc import Callable, Sequence

from daa_consensus.bft.messages import AbortPayload, Block, ResultPayload, SetPayload
from daa_consensus.errors import BadMessage
from daa_consensus.operations import summary
from daa_dag.ids import NodeId
from daa_node.agreement.positions import believed
from daa_node.identity.other_protocol import standing_of
from daa_node.identity.validators import Validators, recall, record_of
from daa_node.identity.validators_record import decode_validators, encode_validators
from daa_node.network.directory import Directory
from daa_node.network.mailbox import Mailbox
from daa_node.observability import events
from daa_node.observability.events import EventLog


class MembersOnDisk:
    """Validators that go with the chain on the disk (see checkpoints.turns)."""

    def __init__(self, validators: Validators, matters: Callable[[Block], bool]) -> None:
        self.validators = validators
        self.matters = matters

    def recall(self, record: bytes) -> bool:
        """False for a record of another version of this program."""
        try:
            recall(self.validators, decode_validators(record))
        except BadMessage:
            return False
        return True

    def follow(self, blocks: Sequence[Block]) -> None:
        self.validators.follow(blocks)

    def record(self) -> bytes:
        return encode_validators(record_of(self.validators))


class MemberList:
    """Keeps mailbox and directory in step with `validators`."""

    def __init__(
        self,
        me: NodeId,
        validators: Validators,
        directory: Directory,
        mailbox: Mailbox,
        log: EventLog,
    ) -> None:
        self._me = me
        self._validators = validators
        self._directory = directory
        self._mailbox = mailbox
        self._log = log
        self._epoch_told = 0
        self._version_told = standing_of(validators).in_use
        # else nobody is ever on it; what the blocks before tell, all the others lead on
        self._has_roll = not validators.rolls.is_inert

    def on_disk(self) -> "MembersOnDisk":
        """To be led on with the chain on the disk: agreement leads ours on to what is not there."""
        return MembersOnDisk(self._validators.copy(), self.matters)

    def take_up(self, on_disk: "MembersOnDisk") -> None:
        """The history of validators is what the chain on the disk tells."""
        recall(self._validators, record_of(on_disk.validators))
        self._epoch_told = self._validators.now.epoch
        self._version_told = standing_of(self._validators).in_use
        self.changed()

    def changed(self) -> None:
        """Membership is another in the chain: write to whoever is to hear of it."""
        now, listeners = self._validators.now, sorted(self._validators.listeners)
        peer_ids = self._validators.peer_ids
        self._directory.enlist({node: peer_ids[node] for node in listeners if node in peer_ids})
        others = [node for node in listeners if node != self._me]
        self._mailbox.follow(others, is_one=self._me in listeners)
        if now.epoch != self._epoch_told:
            self._epoch_told = now.epoch
            self._tell_protocol()
            self._log.emit(
                events.EPOCH_BEGAN,
                epoch=now.epoch,
                validators=len(now.committee.validators),
                stake=now.committee.total,
                changes=[summary(request.action) for request in now.applied],
                expelled=[name.hex()[:16] for name in now.expelled],
                dropped=[f"{summary(request.action)}: {rule}" for request, rule in now.dropped],
            )

    def _tell_protocol(self) -> None:
        """Once an epoch that this concerns, so that nobody misses that an upgrade is due."""
        standing = standing_of(self._validators)
        if standing.in_use != self._version_told:
            self._version_told = standing.in_use
            first_round = self._epoch_told * self._validators.epoch_rounds + 1
            self._log.emit(events.PROTOCOL_USED, version=standing.in_use, round=first_round)
        if standing.next_from is not None:
            self._log.emit(
                events.PROTOCOL_ANNOUNCED,
                version=standing.in_use + 1,
                round=standing.next_from,
                spoken=standing.speaks_next,
            )

    def told_height(self) -> int:
        """How far members are, as enough of them tell everybody for one honest among them.

        Enough for who stands an epoch behind, too: it may be there that they are waited for.
        """
        heights, epoch = self._directory.heights(), self._validators.now.epoch
        committees = map(self._validators.committee, (max(0, epoch - 1), epoch))
        return min(believed(heights, committee) or 0 for committee in committees)

    def matters(self, block: Block) -> bool:
        """Whether who is a member or a trainer may follow from it."""
        match block.payload:
            case SetPayload(evidence=evidence, operations=operations):
                return self._has_roll or bool(evidence or operations)
            case ResultPayload() | AbortPayload():
                return self._has_roll or block.height % self._validators.epoch_rounds == 0
            case _:
                return False
