"""The internet that the kernel emulates: a namespace for each node, cabled to a hub with qdiscs."""

from simnet.processes import kernel
from simnet.processes.family import Line, Zygote
from simnet.processes.namespaced import NamespacedInternet


def netem_internet(zygote: Zygote, count: int, user_namespace: bool) -> NamespacedInternet:
    """Raises UserError where the system refuses namespaces, cables or qdiscs."""
    zygote.make_cabled_world(count, user_namespace)
    ours, theirs = kernel.pair()
    with theirs:
        hub_pid = zygote.spawn_hub(count, theirs)
    line = Line("hub", ours)
    return NamespacedInternet(line, hub_pid, line.close)
