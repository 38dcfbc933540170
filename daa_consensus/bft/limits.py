"""What bounds every message: the largest that an honest node composes, summed from its fields."""

from dataclasses import dataclass

from daa_consensus.bft.values import WORD_BYTES_MAX
from daa_consensus.enrolment import ENROLMENT_BYTES_MAX, PAIRS_A_SET_MAX, VOUCH_BYTES_MAX
from daa_consensus.operations import OPERATION_BYTES_MAX
from daa_consensus.votes import SIGNATURE_BYTES_MAX
from daa_dag.sizes import DIGEST, NUMBER, blob, fields, items, text

# Inner states that a contribution commits to: the ends of up to 16 segments. Sixteen digests more
# than one are 0.5 kB an offer, a sixth of the signature under it.
SNAPSHOTS_MAX = 17
# States that an author opens of a segment in dispute: both ends, and one after each step between.
OPENED_MAX = 129
OFFER_BYTES_MAX = fields(
    *(NUMBER, DIGEST, DIGEST, DIGEST, NUMBER, text(WORD_BYTES_MAX)),
    *(NUMBER, NUMBER, NUMBER, NUMBER, NUMBER, items(SNAPSHOTS_MAX, DIGEST)),
)
# Chain, epoch, set root, kind, view, height; the value is counted where it differs.
_STATEMENT = DIGEST + NUMBER + DIGEST + text(len("proposal")) + NUMBER + NUMBER
_EXECUTION = fields(DIGEST, DIGEST)
_LENGTH = 5  # of a string of bytes, at most
_PAIR = fields(DIGEST, blob(SIGNATURE_BYTES_MAX))


@dataclass(slots=True)
class Limits:
    """What bounds a message: the largest that an honest node composes, summed from its fields.

    They grow with the committee: whoever holds a network's limits sees them grow.
    """

    validators: int
    contributors: int

    @property
    def signed_bytes_max(self) -> int:
        """One signed message that goes to everybody: an Ack lists at most every contribution."""
        return max(_signed(OFFER_BYTES_MAX), self.ack_bytes_max)

    @property
    def ack_bytes_max(self) -> int:
        return _signed(items(self.contributors, DIGEST))

    @property
    def vote_bytes_max(self) -> int:
        """One signed statement about a block."""
        return _signed(DIGEST)

    @property
    def certificate_bytes_max(self) -> int:
        """A statement and a signature of every validator."""
        return fields(_STATEMENT, _EXECUTION, items(self.validators, _PAIR))

    @property
    def evidence_bytes_max(self) -> int:
        """Two signed statements of one slot, or an execution and its certificate.

        A quorum of verdicts alone is less: it has an execution's two digests, too.
        """
        pair = fields(text(4), *[_signed(OFFER_BYTES_MAX)] * 2)
        return max(pair, fields(text(4), _signed(_EXECUTION), self.certificate_bytes_max))

    @property
    def evidence_total_bytes_max(self) -> int:
        """Of one set: the largest piece alone, or many small ones; the next set has room again."""
        return self.evidence_bytes_max

    @property
    def operations_max(self) -> int:
        """Of one set: a request, the statement of every validator on it, and pairs of trainers'."""
        return self.validators + 1 + 2 * PAIRS_A_SET_MAX

    @property
    def changes_bytes_max(self) -> int:
        """Of one set's changes of members: two of the largest requests, the rest statements."""
        return 2 * OPERATION_BYTES_MAX + (self.validators - 1) * self.vote_bytes_max

    @property
    def operations_total_bytes_max(self) -> int:
        """Of one set: those, and as much as it may ask of the trainers' roll."""
        return self.changes_bytes_max + PAIRS_A_SET_MAX * (ENROLMENT_BYTES_MAX + VOUCH_BYTES_MAX)

    @property
    def block_bytes_max(self) -> int:
        """A set with every contributor, an Ack of everybody, and as much cargo as it may carry."""
        return self._block_bytes(
            fields(
                *(text(3), NUMBER),
                items(self.contributors, OFFER_BYTES_MAX),
                items(self.contributors, NUMBER),
                *(text(WORD_BYTES_MAX), NUMBER),
                items(self.validators, _LENGTH) + self.evidence_total_bytes_max,
                items(self.operations_max, _LENGTH) + self.operations_total_bytes_max,
                items(self.validators, DIGEST),
            )
        )

    @property
    def result_block_bytes_max(self) -> int:
        """The largest block that carries no set."""
        return self._block_bytes(fields(text(6), NUMBER, DIGEST, DIGEST))

    @property
    def empty_block_bytes_max(self) -> int:
        return self._block_bytes(fields(text(5)))

    def _block_bytes(self, payload_bytes: int) -> int:
        return fields(DIGEST, NUMBER, NUMBER, NUMBER, DIGEST, NUMBER, payload_bytes)


def _signed(value_bytes: int) -> int:
    """One signed message, its signer and signature with it."""
    return fields(_STATEMENT, value_bytes, DIGEST, blob(SIGNATURE_BYTES_MAX))
