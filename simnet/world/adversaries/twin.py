"""A twin: one key on two machines, each of honest code, with a disk and a guard of its own.

Whoever hears both sees a node that signs two statements for a slot. Met by quorums that share an
honest node, and by evidence: both statements carry the one signature (Bano et al. 2020, "Twins: BFT
Systems Made Robust"). Partitions that keep the two apart come from simnet/results/twins/scripts.py.
"""

from simnet.world.adversaries.behaviour import Behaviour


class Twin(Behaviour):
    """No lie passes any seam of either."""

    daemons = 2
