"""Which protocol versions members speak, as they have said in final sets, and which one is used.

    a quorum of the ended and of the next committee speaks the next version
        at one boundary:        it is announced
        at the one after, too:  it is used from there on

A member's newest word counts, and it may say one an epoch. A word is bound to the epoch that it is
said in, so that nobody brings an old one again. The version rises by one at a time and never goes
back: a word for a later one is a word for all up to it, of which a quorum must speak each.

Why a quorum: with f the most that may lie, f liars and f + 1 honest ones are one. A smaller weight
would let liars alone, or with fewer, change what all others have to speak; of a greater one they
would be needed, and could stand in the way for ever. Where liars made up the quorum and are silent
afterwards, the chain waits for others to be upgraded. It cannot fork: the version is in the root
that everything of the epoch is signed under, and follows from final blocks alone.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from daa_consensus.committee import Committee
from daa_consensus.operations import Speak
from daa_dag.ids import NodeId

SPOKEN = range(1, 2)  # the versions that this release speaks


@dataclass(frozen=True, slots=True)
class ProtocolWords:
    """`said`: of members, each the newest version that it speaks; those that are in use left out.

    `heard_of` have said one in this epoch. `announced`: the next version is used from the next
    epoch on, if a quorum speaks it still.
    """

    said: Mapping[NodeId, int] = field(default_factory=dict)
    heard_of: frozenset[NodeId] = frozenset()
    announced: bool = False

    def admit(self, word: Speak, in_use: int) -> bool:
        """Whether it says something new, for the first time in this epoch."""
        known = self.said.get(word.subject, in_use)
        return word.subject not in self.heard_of and in_use <= word.version != known

    def heard(self, word: Speak, in_use: int) -> "ProtocolWords":
        """With a word that is admitted; one for the version in use takes back what was said."""
        said = {name: version for name, version in self.said.items() if name != word.subject}
        if word.version > in_use:
            said[word.subject] = word.version
        return replace(self, said=said, heard_of=self.heard_of | {word.subject})

    def ended(
        self, old: Committee, new: Committee, convicted: Collection[NodeId]
    ) -> tuple[Committee, "ProtocolWords"]:
        """What the end of an epoch of `old` makes of its version: `new` with it, and what is left.

        `new` is the next epoch's; which version it has is not looked at.
        """
        version = old.version + 1
        speakers = {name for name, most in self.said.items() if most >= version} - {*convicted}
        accepted = all(each.weight(speakers) >= each.quorum for each in (old, new))
        used = accepted and self.announced
        if not used:
            version = old.version
        said = {n: most for n, most in self.said.items() if n in new.stake_of and most > version}
        committee = new if new.version == version else replace(new, version=version)
        return committee, ProtocolWords(said, frozenset(), accepted and not used)


UNSAID = ProtocolWords()
