"""What is to be done about what a disk did, or did not do; and rows that fit many messages."""

from daa_node.advice.row import Row

DISK = "The disk did not do what the node asked of it"

DISKS: tuple[Row, ...] = (
    # The history, which training does not depend on
    Row(
        "the history at",
        "The history of rounds cannot be read or written. Training does not depend on it",
        "Look at the room and the errors of that disk (`df -h`, `dmesg`), and ask again",
    ),
    Row(
        "history.baseline: ",
        "The other run, which config.yaml names to compare with, cannot be read",
        "Look at that file and whose it is (`ls -l`), or name another one in config.yaml",
    ),
    Row("is only being begun", "The history of rounds is made just now", "Ask again in a minute"),
    # Files of other kinds
    Row(
        "is larger than",
        "The file is far larger than one of its kind: it is another file",
        "Give the right one",
    ),
    Row(
        "is not UTF-8 text",
        "The file is no text, or was cut",
        "Write it again as UTF-8. If it is a genesis.json, get it again from another host",
    ),
    Row(
        "a configuration has few",
        "The file is far larger than settings are: it is another file",
        "Give the right one with --config",
    ),
    Row("there is no ... at", "A file is not where it should be", "Do what stands in the message"),
    Row("is no name for a tag", "A tag is made of few characters", "Take another name"),
    Row(
        "the chain does not verify",
        "The demo's own check has found something wrong",
        "Report it, with the directory of the demo",
    ),
    Row(
        "holds what is no number",
        "The weights hold infinities, or figures that are too large",
        "Take the weights of a model that has not diverged",
    ),
    Row("has more than ... bytes", "A file is larger than one of its kind may be", "Take another"),
    Row(
        "is lost or damaged",
        "A file that the node makes by itself was spoilt by the disk",
        "Delete it while the daemon rests, as the message says: it is made anew from the chain",
    ),
    Row("--join: ", "What --join names cannot be used", "Mend what stands behind the colon"),
    # What a disk has done
    Row(
        "the agreement log contradicts itself",
        "The disk has changed what this node signed, or an older copy was put there",
        "Look at the disk (`dmesg`). Move agreement/wal away, and the node observes until the "
        "others let it vote again",
    ),
    Row(
        "does not begin like a file of this program",
        "The file was damaged, or is another program's",
        "Look at the disk (`dmesg`). Move agreement/wal away, and the node observes until the "
        "others let it vote again",
    ),
    Row("signed statements wait for the disk", DISK, "Look whether the disk is full or too slow"),
    Row("it must be written anew", DISK, "Look at its errors (`dmesg`), and start the node again"),
    Row("do not stay", DISK, "See that nothing else writes in the node's directory"),
    Row("it is not kept", DISK, "Look at the disk: what was just written cannot be read again"),
    Row(
        "it lies in the chain",
        "What was to be mended is not there to be written",
        "Look at the disk (`dmesg`), and start the node again",
    ),
    Row("bytes, at most", "A file is larger than it may be", "Look who else writes it"),
)

# Those that fit many messages, for what no row above fits.
WIDE: tuple[Row, ...] = (
    Row(
        "is damaged",
        "A file of the node is not as it was written",
        "Look at the disk (`dmesg`, `smartctl`), and move that file away. `daa-node checkpoint "
        "import` takes a good one from another directory then, and `daa-node checkpoint verify` "
        "says what else is damaged",
    ),
    Row(
        "is missing",
        "A file of the node is not there",
        "`daa-node checkpoint verify` says what else is missing, and `daa-node checkpoint import` "
        "takes it from another directory",
    ),
    Row("was damaged", "A file was not as it was written, and is fetched anew", ""),
    Row("went away", "A file went while it was read", "See that nothing else writes there"),
    Row(
        "does not belong there",
        "A file in the chain is none of its own",
        "`daa-node checkpoint verify` says which; look who else writes there",
    ),
    Row("ends inside", "A file was cut", "Look at the disk (`df -h`, `dmesg`)"),
    Row("there is no blob", "Data that the node had are gone", "Look who else writes there"),
    Row("no chunk", "Data that the node had are gone", "Look who else writes there"),
    Row("its manifest says", "A file was cut", "Look at the disk (`df -h`, `dmesg`)"),
    Row(
        "the header chain does not reach",
        "Blocks of the agreement are missing on this disk",
        "`daa-node checkpoint verify` says what is missing",
    ),
    Row(
        "one chain has one",
        "Two vertices of one height lie in the chain: the files of two networks were mixed",
        "`daa-node checkpoint verify` says which belong to it",
    ),
    Row(
        "the replay to height",
        "Adding up the steps came out otherwise than was certified",
        "Look at the disk and the memory of this host. `daa-node checkpoint verify` says which "
        "step is wrong",
    ),
    Row("is a merge", "A whole state is needed there", "Nothing, if members are within reach"),
    Row(
        "before it is mended",
        "Something in the chain is damaged, and old states are kept until it is whole",
        "`daa-node checkpoint verify` says what is damaged",
    ),
    Row(
        "cannot read",
        "This process could not read a file: it is not there, is another user's, or the disk fails",
        "Look at it (`ls -l`) as the user who runs daa-node. If the message tells of an "
        "input/output error, look at the disk (`dmesg`)",
    ),
    Row(
        "cannot ... in",
        DISK,
        "Look at the room and the errors of that disk (`df -h`, `dmesg`), and whose the directory "
        "is (`ls -ld`)",
    ),
    Row(
        "cannot ",
        "This process could not do that: the place is another user's, or the disk is full or fails",
        "Look whose the place is (`ls -ld`), at the room of the disk (`df -h`), and at its errors "
        "(`dmesg`)",
    ),
)
