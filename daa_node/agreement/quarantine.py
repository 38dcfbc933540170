"""What a quarantine comes to: who can end it, or that nobody can, and what is left to do.

Who has lost the memory of what it signed votes again once a block is final that carries its Rejoin.
Others must make that block final without it. Of four validators or more they can, unless it weighs
too much. Of three or fewer nothing is final without everybody: what it sent before may have reached
anybody, or be under way, and as it must sign nothing else for the same slot, it stays silent.
"""

from daa_consensus.committee import Committee
from daa_dag.ids import NodeId


def is_for_good(committee: Committee, member: NodeId) -> bool:
    """Whether the others can make nothing final without this member."""
    return committee.total - committee.stake_of[member] < committee.quorum


def outlook(why: str | None, committee: Committee, me: NodeId) -> str | None:
    """Why we are in quarantine and what ends it, for a person; None if we are not."""
    if why is None:
        return None
    if me not in committee.stake_of:
        return f"{why}; it looks on, as it is no validator"
    others = committee.total - committee.stake_of[me]
    weights = f"others weigh {others} of {committee.total}, everything needs {committee.quorum}"
    if not is_for_good(committee, me):
        return f"{why}; the {weights}: they let it vote again once a quorum of them is here"
    return (
        f"{why}; nobody can let it vote again (the {weights}): the network stands for good. If "
        "its `agreement` directory still lies somewhere just as it was left, stop the node and put "
        "it back; never an older copy, which might sign twice. Else `daa-node checkpoint export` "
        "saves the model, `daa-node init` makes this node anew in another directory, and `daa-node "
        "genesis create` a new network, which begins with first weights"
    )
