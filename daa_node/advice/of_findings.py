"""What is to be done about what `doctor` finds itself, where no message of `run` says the same.

Some of these hold a message of another row, so they come before all others.
"""

from daa_node.advice.row import Row

FINDINGS: tuple[Row, ...] = (
    # The directory's own files
    Row(
        "the daemon that runs here is in chain",
        "The daemon has taken up another genesis.json than the one that lies in its directory now",
        "Put the right genesis.json there. A daemon takes up another one when it starts: "
        "`daa-node drain`, then `daa-node run`",
    ),
    Row(
        "what lies in ... is of chain",
        "The directory holds the chain of another network than its genesis.json names",
        "If this genesis.json is the right one, there is nothing to do: the next run puts what is "
        "of the other chain aside, under networks/. Else put the right one back",
    ),
    Row(
        "It does not answer: ",
        "The daemon of this directory starts or ends just now, is stopped (Ctrl-Z), or hangs",
        "Ask `daa-node doctor` again in a minute. If it is no better then, end that process by its "
        "pid",
    ),
    Row(
        "the keys of this node are in use elsewhere",
        "Another host signs with the keys of this node: of two, each is taken for a liar",
        "Find the other host that has a copy of keys/, and stop it. If you know of none, the keys "
        "are stolen: `daa-node validators propose rotate`",
    ),
    # The host
    Row(
        "and until its end this job takes",
        "The disk has room at present, and not for the whole job: the node stops voting when it is "
        "full",
        "Bound what the node keeps: storage.bytes_max in config.yaml. Or make room before the disk "
        "is full",
    ),
    Row(
        "a small write is durable after",
        "The disk is too slow for this network",
        "Move the directory to a faster disk, best an SSD of this host and no network drive, and "
        "see what else writes there (`iostat -x 1`)",
    ),
    Row(
        "daemon and workers may need ... threads",
        "The system lets this process start fewer threads than it needs",
        "Raise that limit (`ulimit -u`, TasksMax= of a systemd unit, or --pids-limit of a "
        "container), or lower trainer.threads",
    ),
    Row(
        "no torch: this host can verify and vote, not train",
        "PyTorch is not in the environment that daa-node runs in",
        'Install it: pip install "daa-compute[train]". Or set trainer.contribute: false in '
        "config.yaml",
    ),
    Row(
        "nobody welcomes this node",
        "The clock of this host is far off those of the others",
        "Let NTP set the clock of this host (`timedatectl set-ntp true`, then `timedatectl`). If "
        "it does already, the other clocks are wrong: tell their operators",
    ),
    # What the last run has left
    Row(
        "ends in the middle of a line",
        "The daemon was killed while it wrote, or the power went",
        "Nothing is to be done: the next run cuts half a line off. If nobody has killed the "
        "daemon, `dmesg` shows whether the kernel did, for want of memory",
    ),
    Row(
        "events of this run: the disk did not take them",
        "Lines of the event log are lost",
        "Look at the disk: `df -h` for its room, `dmesg` for its errors",
    ),
    Row(
        "bytes are half a one",
        "The daemon was killed while it wrote, or the power went. Nothing is sent before its "
        "record is whole, so no vote is lost",
        "Nothing is to be done: the next run cuts it off",
    ),
    Row(
        "this node cannot know how far it has voted",
        "The disk has damaged the file that guards the votes of this node",
        "Start it all the same, and restore no older copy: it observes until the others let it "
        "vote again",
    ),
)
