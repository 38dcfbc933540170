"""What a genesis says of epochs that may be too long to be followed by one certificate each."""

from daa_consensus.roll import Admission
from daa_node.checkpoints.long_epochs import HELD_BYTES_MAX, full_epoch_bytes
from daa_node.cli import report
from daa_node.genesis import Genesis


def note_on_length(made: Genesis) -> str | None:
    """Of a network as it begins: members that are voted in later make more of it."""
    rounds, rules = made.job.agreement.epoch_rounds, made.job.trainers
    members = len(made.committee.validators)
    places = len(made.contributors)
    if rules.admission is not Admission.CLOSED:
        places = min(rules.contributors_max, members + rules.max)
    full_bytes = full_epoch_bytes(members, places, rounds)
    if full_bytes <= HELD_BYTES_MAX:
        return None
    return (
        f"note: an epoch of {rounds} rounds with {places} contributors may come to "
        f"{report.size(full_bytes)} of headers. Of one beyond {report.size(HELD_BYTES_MAX)} every "
        "node keeps all certificates, and whoever joins fetches them; fewer agreement.epoch_rounds "
        "save that"
    )
