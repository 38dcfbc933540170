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
    weights = f"of {committee.total}, and everything needs {committee.quorum}"
    others = committee.total - committee.stake_of[me]
    if not is_for_good(committee, me):
        return (
            f"{why}; the others, who weigh {others} {weights}, let it vote again by themselves "
            "once a quorum of them is here"
        )
    return (
        f"{why}; nobody can let it vote again, as the others weigh {others} {weights}: the network "
        "stands for good. If its `agreement` directory still lies somewhere just as this node left "
        "it, stop the node and put that back; never an older copy, with which it might sign twice "
        "and be convicted. Else save the model (`daa-node checkpoint export`), make a node in a "
        "new directory (`daa-node init`) instead of this one, and a new network of it and the "
        "others (`daa-node genesis create`), which begins with the first weights again; the "
        "others take its genesis.json in the directories that they have"
    )
