"""What whoever makes a genesis may want to know of it, though it makes a network."""

from collections.abc import Iterator

from daa_consensus.roll import Admission
from daa_node.agreement.signer import is_for_good
from daa_node.cli.epoch_length import note_on_length
from daa_node.genesis import Genesis

WINDOW_DELTAS_MIN = 6  # seen over links as slow as delta: none of five was certified, all of six


def notes_on(made: Genesis) -> Iterator[str]:
    """One line each."""
    looks = (_lost_memory, _loopback, _liars, _unbounded_trainers, _haste, note_on_length)
    for look in looks:
        note = look(made)
        if note is not None:
            yield note


def _lost_memory(made: Genesis) -> str | None:
    """Who forgets what it signed votes again only where the others are a quorum without it."""
    fatal = [n for n in made.committee.stake_of if is_for_good(made.committee, n)]
    if not fatal:
        return None
    count = len(made.committee.validators)
    who, one = f"{len(fatal)} of these {count} validators", "one of them"
    if count == 1:
        who, one = "the only validator", "it"
    why, survive = "all must vote where there are fewer than four", "Four validators survive"
    if count >= 4:
        why, survive = "the others' stake is no quorum", "Equal stakes survive"
    return (
        f"note: {who} can never be missing, as {why}. If {one} loses its directory "
        "`agreement`, its keys restored from a backup do not help: "
        "nobody can let it vote again, and the network stands for good. So run each in the "
        "directory that `daa-node init` made, on a disk that lasts, and put no older copy of "
        f"`agreement` back. {survive} the loss of one"
    )


def _liars(made: Genesis) -> str | None:
    """Consensus may survive members whose contributions the merge does not."""
    # Trainers that lie are allowed for besides, see rounds.plan.
    count, updates = len(made.contributors) - len(made.trainers), made.job.updates
    survived, f_agg = made.committee.liars_max, updates.f_agg_among(count)
    if f_agg >= survived:
        return None
    return (
        f"note: agreement survives {survived} of {count} members that lie, rule {updates.rule} "
        f"with f_agg {f_agg} only {f_agg}: more can spoil the model, or stop its training, "
        "while every vote is right. trimmed_mean without updates.f_agg follows the number of "
        "contributors; members of equal stake are as many for the one as for the other"
    )


def _unbounded_trainers(made: Genesis) -> str | None:
    """A mean holds off nobody, whoever lets them in."""
    rules, updates = made.job.trainers, made.job.updates
    if updates.rule != "mean" or (rules.admission is Admission.CLOSED and not made.trainers):
        return None
    who = {
        Admission.CLOSED: "those that this genesis names",
        Admission.VOUCHED: f"{rules.per_voucher} of each validator",
        Admission.OPEN: "whoever asks",
    }[rules.admission]
    why = ", which codec top_k needs," if updates.codec == "top_k" else ""
    return (
        f"note: trainers.admission is {rules.admission} ({who}), and updates.rule mean{why} bounds "
        "nobody's trainers: a single one that lies moves the model as far as updates.norm_cap lets "
        "it, round after round. Let in only whom you trust with the model, or take trimmed_mean"
    )


def _haste(made: Genesis) -> str | None:
    """A window too short for a first fetch over links as slow as delta certifies nothing there."""
    window_ms, delta_ms = made.job.rounds.window_ms, made.job.agreement.delta_ms
    if window_ms >= WINDOW_DELTAS_MIN * delta_ms:
        return None
    return (
        f"note: rounds.window_ms {window_ms} is less than {WINDOW_DELTAS_MIN} times "
        f"agreement.delta_ms {delta_ms}: over links that take as long as delta no round may be "
        "certified. Take a longer window, or a delta nearer to what your links take"
    )


def _loopback(made: Genesis) -> str | None:
    near = [a for a in made.bootstrap() if a.startswith(("/ip4/127.", "/ip6/::1/"))]
    if not near or len(near) == len(made.bootstrap()):
        return None
    return (
        f"note: {len(near)} of {len(made.bootstrap())} addresses are loopback ones, which "
        "other hosts cannot dial; set network.announce on those nodes"
    )
