"""What `doctor` says is to be done about each message that ends `run` or `join`.

Most messages have their remedy in them already. The table goes further: it says where to look, and
what else may be behind the message. A message is known by a piece of it that never changes.

What another node says of its refusal is known by the reason alone: who could choose the message
could choose the advice, and some of it is to remove a directory.
"""

from collections.abc import Mapping

CHAINS = (
    "Compare chain ids: `daa-node id` shows one on each host. All hosts need the same genesis.json"
)
CLOCKS = (
    "Let NTP set the clock of this host (`timedatectl set-ntp true`), and ask the operator of the "
    "other one to look at his"
)
VERSIONS = "Install the same version on both hosts: the newer one of the two"
OF_REFUSALS: Mapping[str, str] = {
    "wrong-chain": CHAINS,
    "clock-skew": CLOCKS,
    "incompatible-version": VERSIONS,
    "full": "Nothing is to be done: it has no place now. One reachable member is enough",
}
OF_OTHER_REFUSALS = (
    "Ask the operator of that node. Its words are its own, and nobody has checked them: do nothing "
    "that they alone tell you to do"
)
OTHERWISE = "Mend what the message names, and ask `daa-node doctor` again"

# A piece of the message -> what to do. The first that fits counts.
ADVICE: tuple[tuple[str, str], ...] = (
    (
        "a daemon is already running in",
        "See what it does with `daa-node status`. One directory is one identity: two daemons with "
        "it would sign against each other. If that process is no daemon of yours, end it by pid",
    ),
    (
        "one signer a directory",
        "Another process signs with these keys. End it by its pid, and start this node again",
    ),
    (
        "holds half a node",
        "Remove the directory: no network knows its keys yet. Then run `daa-node init` again",
    ),
    (
        "was written by a newer daa-node",
        "Install the version that wrote it, or a newer one. Nothing in the directory was changed",
    ),
    (
        "there is no node in",
        "Give the node's own directory with --dir, or make a node with `daa-node init --dir D`",
    ),
    (
        "it has no file VERSION",
        "Give the node's own directory with --dir. If VERSION alone was lost, restore it from a "
        "backup",
    ),
    (
        "run daa-node as the owner of it",
        "See whose it is (`ls -ld D`), and run daa-node as that user: `sudo -u USER daa-node ...`",
    ),
    (
        "copy the one of your network there",
        "Copy genesis.json from a host of your network into the directory. Without a network, "
        "`daa-node genesis create` makes one",
    ),
    (
        "was changed after it was made",
        "Copy genesis.json again from a host of your network: not one byte of it may differ",
    ),
    (
        "is no genesis file",
        "Copy genesis.json again from a host of your network, whole and unchanged",
    ),
    ("no keys at", "Restore the directory keys/ from a backup: nobody can make these keys again"),
    (
        "others on this host may read the private key",
        "Run the chmod that the message names. If others may have read the key, make a new node",
    ),
    (
        "cannot listen on",
        "End the process that has the port, or set another port under network.listen in "
        "config.yaml. Others then need the new address: `daa-node id` shows it",
    ),
    (
        "open files and sockets, and",
        "Raise the limit where the daemon is started: `ulimit -n`, LimitNOFILE= of a systemd "
        "unit, or --ulimit nofile= of a container",
    ),
    (
        "No space left on device",
        "Make room on that disk, or bound what the node keeps with storage.bytes_max. Then start "
        "it again: nothing that was certified is lost",
    ),
    (
        "there is no room",
        "Make room on that disk, or move the directory to a larger one while the daemon is stopped",
    ),
    (
        "storage.bytes_max is",
        "Raise storage.bytes_max in config.yaml, or take it out",
    ),
    (
        "No module named 'torch'",
        "Install torch into the environment that daa-node runs in: pip install "
        '"daa-compute[train]"',
    ),
    (
        "PyTorch is not installed here",
        'Install it: pip install "daa-compute[train]". Or set trainer.contribute: false in '
        "config.yaml, and this node votes, merges and serves without training",
    ),
    (
        "and torch finds only",
        "Set trainer.device to one of these, or to auto. If a GPU is missing, look at its driver "
        "(`nvidia-smi`), and at whether torch was built for it",
    ),
    (
        "and what torch finds cannot be used",
        "Another program may hold the device, or its driver does not fit torch. Set trainer.device "
        "to cpu to go on meanwhile",
    ),
    (
        "is damaged, and a whole one",
        "The disk has damaged what this node signed. Restore agreement/ from no backup: move "
        "agreement/wal away. The node then observes until the others let it vote again",
    ),
    (
        "is a node of another network than",
        CHAINS,
    ),
    (
        "need the same genesis.json; give it to",
        CHAINS,
    ),
    (
        "set the wrong one of the two",
        CLOCKS,
    ),
    ("incompatible-version", VERSIONS),
    (
        "see that a node runs there",
        "Ask its operator whether the daemon runs and its port is open to you: try `nc -vz HOST "
        "PORT` from here. One reachable member is enough, so another address does as well",
    ),
)


def advice_of(message: str) -> str:
    """What to do about it; never empty."""
    return next((advice for piece, advice in ADVICE if piece in message), OTHERWISE)


def advice_on_refusal(reason: str) -> str:
    """What to do about a refusal that another node gave that reason for; never empty."""
    return OF_REFUSALS.get(reason, OF_OTHER_REFUSALS)
