"""Books of our own about which protocol version each epoch must use, by members' words alone."""

from collections.abc import Set as AbstractSet

from daa_consensus.committee import Committee
from daa_consensus.membership import Membership
from daa_consensus.operations import Speak
from daa_dag.ids import NodeId


class VersionAudit:
    """Words as final sets bring them, and what each boundary must make of them."""

    def __init__(self) -> None:
        self._newest: dict[NodeId, tuple[int, int]] = {}  # what each said, and in which epoch
        self._agreed_in = -1  # the epoch at whose begin a quorum of both committees spoke the next

    def hear(self, word: Speak, expires_epoch: int, now: Membership) -> None:
        """Of a final set in the epoch of `now`: the first that counts of each member."""
        _, said_in = self._newest.get(word.subject, (0, -1))
        is_here = word.subject in now.committee.stake_of and word.subject not in now.convicted
        if is_here and said_in < now.epoch == expires_epoch - 1:
            self._newest[word.subject] = (word.version, now.epoch)

    def fault(self, old: Committee, new: Membership, convicted: AbstractSet[NodeId]) -> str | None:
        """Why the epoch of `new` must not use the version that its committee has."""
        wanted = old.version + 1
        speakers = {n for n, (most, _) in self._newest.items() if most >= wanted} - convicted
        weights = [(c.weight(speakers), c.quorum) for c in (old, new.committee)]
        agreed = all(weight >= quorum for weight, quorum in weights)
        due = agreed and self._agreed_in == new.epoch - 1
        if agreed and not due:
            self._agreed_in = new.epoch
        self._newest = {n: w for n, w in self._newest.items() if n in new.committee.stake_of}
        used = new.committee.version
        if used != old.version + due:
            return f"epoch {new.epoch} uses protocol {used} after {old.version}: {weights} speak it"
        return None
