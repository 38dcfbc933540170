"""What is to be done about the messages that end `run`, `join` and other commands.

Most messages have their remedy in them already, and need no row. A row says what a message cannot:
where to look, and what else may be behind it. The first row that fits counts.
"""

from daa_node.advice.row import Row

CHAINS = (
    "Compare chain ids: `daa-node id` shows one on each host. All hosts need the same genesis.json"
)
CLOCKS = (
    "Let NTP set the clock of this host (`timedatectl set-ntp true`), and ask the operator of the "
    "other one to do the same"
)
VERSIONS = "Install the same version on both hosts: the newer one of the two"
UPGRADE = "Install a newer release, and start the node again in the same directory"
OTHER_CHAIN = "The other node belongs to another network"
CLOCKS_APART = "The clocks of the two hosts are too far apart"
VERSIONS_APART = "The two nodes speak versions of the protocol that have nothing in common"
NO_VALIDATOR = "Only a validator may do this, or the validators do not allow it now"

MESSAGES: tuple[Row, ...] = (
    Row(
        "a daemon is already running in",
        "One directory is one identity, and a process has this one. Two daemons with it would sign "
        "against each other",
        "See what it does with `daa-node status`. If that process is no daemon of yours, end it by "
        "pid",
    ),
    Row(
        "one signer a directory",
        "Another process signs with these keys",
        "End it by its pid, and start this node again",
    ),
    Row(
        "holds half a node",
        "The making of a node was cut off, and no network knows its keys yet",
        "Remove the directory. Then run `daa-node init` again",
    ),
    Row(
        "was written by a newer daa-node",
        "This program is older than the one that wrote it",
        "Install the version that wrote it, or a newer one. Nothing in the directory was changed",
    ),
    Row(
        "there is no node in",
        "The directory is not there, or no node was made in it",
        "Give the node's own directory with --dir, or make a node with `daa-node init --dir D`",
    ),
    Row(
        "it has no file VERSION",
        "The directory holds something, and no node",
        "Give the node's own directory with --dir. If VERSION alone was lost, restore it from a "
        "backup",
    ),
    Row(
        "run daa-node as the owner of it",
        "The directory belongs to another user",
        "See whose it is (`ls -ld D`), and run daa-node as that user: `sudo -u USER daa-node ...`",
    ),
    Row(
        "copy the one of your network there",
        "The node has no genesis.json, so it knows no network",
        "Copy genesis.json from a host of your network into the directory. Without a network, "
        "`daa-node genesis create` makes one",
    ),
    Row(
        "was changed after it was made",
        "A genesis file is the network: one byte otherwise, and it is another one",
        "Copy genesis.json again from a host of your network: not one byte of it may differ",
    ),
    Row(
        "is no genesis file",
        "What lies there is no genesis, or was cut",
        "Copy genesis.json again from a host of your network, whole and unchanged",
    ),
    Row(
        "no keys at",
        "The keys of this node are gone, and nobody can make these keys again",
        "Restore the directory keys/ from a backup",
    ),
    Row(
        "others on this host may read the private key",
        "The file of a key lets other users in",
        "Run the chmod that the message names. If others may have read the key, make a new node",
    ),
    Row(
        "cannot listen on",
        "Another program has that port, or this host does not have that address",
        "See who has the port (`ss -ltnp`), or set another port under network.listen in "
        "config.yaml. Others then need the new address: `daa-node id` shows it",
    ),
    Row(
        "open files and sockets, and",
        "The system lets this process open fewer files and connections than the network may need",
        "Raise the limit where the daemon is started: `ulimit -n`, LimitNOFILE= of a systemd "
        "unit, or --ulimit nofile= of a container",
    ),
    Row(
        "No space left on device",
        "The disk is full, or has no place for one more file. Nothing that was certified is lost",
        "Make room on that disk, or bound what the node keeps with storage.bytes_max. Then start "
        "it again",
    ),
    Row(
        "there is no room",
        "The disk has less room than this network needs",
        "Make room on that disk, or put the directory on a larger one while the daemon is stopped",
    ),
    Row(
        "storage.bytes_max is",
        "The limit that you have set is less than this network needs",
        "Raise storage.bytes_max in config.yaml, or take it out",
    ),
    Row(
        "No module named 'torch'",
        "PyTorch is not in the environment that daa-node runs in",
        "Install torch into the environment that daa-node runs in: pip install "
        '"daa-compute[train]"',
    ),
    Row(
        "PyTorch is not installed here",
        "This node is to train, which takes PyTorch",
        'Install it: pip install "daa-compute[train]". Or set trainer.contribute: false in '
        "config.yaml, and this node votes, merges and serves without training",
    ),
    Row(
        "needs PyTorch, and it is not installed here",
        "What trains, or measures training, takes PyTorch",
        'Install it: pip install "daa-compute[train]"',
    ),
    Row(
        "and torch finds only",
        "The device of the settings is not among those that torch finds",
        "Set trainer.device to one of these, or to auto. If a GPU is missing, look at its driver "
        "(`nvidia-smi`), and at whether torch was built for it",
    ),
    Row(
        "and what torch finds cannot be used",
        "The device is there and computes nothing: another program may hold it, or its driver does "
        "not fit torch",
        "Set trainer.device to cpu to go on meanwhile",
    ),
    Row(
        "torch cannot compute on",
        "The device is there and computes nothing: another program may hold it, or its driver does "
        "not fit torch",
        "Set trainer.device to cpu to go on meanwhile",
    ),
    Row(
        "is damaged, and a whole one",
        "The disk has damaged the record of what this node signed",
        "Restore agreement/ from no backup: move agreement/wal away. The node then observes until "
        "the others let it vote again",
    ),
    Row("is a node of another network than", OTHER_CHAIN, CHAINS),
    Row("need the same genesis.json; give it to", OTHER_CHAIN, CHAINS),
    Row("set the wrong one of the two", CLOCKS_APART, CLOCKS),
    Row("incompatible-version", VERSIONS_APART, VERSIONS),
    Row(
        "on this network uses protocol",
        "The validators have gone on to a protocol version that this release does not speak",
        UPGRADE,
    ),
    Row(
        "see that a node runs there",
        "Nobody answered as a node does at that address",
        "Ask its operator whether the daemon runs and its port is open to you: try `nc -vz HOST "
        "PORT` from here. One reachable member is enough, so another address does as well",
    ),
    # `join` and `init --join`
    Row(
        "sent no genesis",
        "The node that answered has sent what is no genesis of this program's",
        "Ask its operator which version runs there, or take another node's address",
    ),
    Row(
        "is another node than the one that invites you",
        "At that address answers a node with other keys than the invite names",
        "Ask for a new invite. If a new one names the same address, its operator has to look who "
        "listens there",
    ),
    Row(
        "this network takes no more trainers",
        "The genesis says that nobody comes in (trainers.admission closed)",
        "You may look on without an invite: `daa-node init --join`",
    ),
    Row(
        "names an address that is none",
        "The invite was made by another program, or was changed",
        "Ask for a new invite",
    ),
    Row("standard input is no text", "What came through the pipe is no invite", "Pipe its text in"),
    Row(
        "and this node cannot work together",
        "The two nodes do not fit together: their network, their version, or their clocks differ",
        "Compare `daa-node id` and `pip show daa-compute` on both hosts. The words after the colon "
        "may be the other node's own",
    ),
    # Settings and what lies in the directory
    Row(
        "that you trust: members show another past",
        "What the others have certified does not hold the vertex that this node is held to",
        "Compare the id with the person that you have it from. Take part in nothing until you know "
        "which of the two pasts is right",
    ),
    Row(
        "sets nothing",
        "A variable of the environment begins with DAA_ and names no setting",
        "Take it out of the environment, or spell it as docs/configuration.md does",
    ),
    Row(
        "not two ids. ",
        "A line of the file `trusted` is none of this program's",
        "Mend that line: a chain id, a space, the id of a vertex",
    ),
    Row(
        "holds a key of kind",
        "The files in keys/ were mixed up",
        "Put each key file back under its own name, from the backup",
    ),
    Row(
        "is not a key file of this program",
        "The file of a key was damaged, or is another program's",
        "Restore keys/ from your backup",
    ),
    Row(
        "an identity is never overwritten",
        "There is a node in that directory already",
        "Give another --dir",
    ),
    Row("not a version number", "The file VERSION was changed", "Restore it from a backup"),
    Row(
        "cannot change while the daemon runs",
        "These settings count from the next start on",
        "Write them into config.yaml; then `daa-node drain`, and `daa-node run`",
    ),
    Row(
        "says so, above the file",
        "The setting comes from the environment or the command line, which go before the file",
        "Change it there, and start the daemon again",
    ),
    Row(
        "edit it",
        "The file is written in a way that the program does not change by itself",
        "Write the setting into it by hand, and send SIGHUP",
    ),
    Row(
        "is missing from this installation",
        "The installation is not whole",
        "Install daa-compute again into a fresh environment",
    ),
    Row(
        "there is no such file, and an address is like",
        "What --join names is neither a file here nor an address",
        "Give the path of a genesis file, or an address with its port",
    ),
    Row("cloud or edge", "A role is one of these two words", "Give --role cloud or --role edge"),
    Row(
        "the renewed certificate cannot be used",
        "The files of api.certificate and api.key have changed, and do not fit. The old one serves "
        "on until it ends",
        "Put a certificate and its own key there. They are read again by themselves",
    ),
    Row(
        "a node with `api.listen` makes it when it starts",
        "This node has no HTTP API yet, so it has no token",
        "Set api.listen in config.yaml, and start the daemon again",
    ),
    # The daemon, asked by a command
    Row(
        "the daemon in ... hung up",
        "The daemon ended while it answered, or was too busy",
        "Ask again. If it comes again, `daa-node doctor` looks for the cause",
    ),
    Row(
        "the daemon in ... did not answer in",
        "The daemon is stopped (Ctrl-Z), hangs, or has too much to do",
        "Ask `daa-node doctor` in a minute: it says which",
    ),
    Row(
        "belongs to another user",
        "The daemon is another user's, who alone may ask it",
        "Run the command as the user who runs the daemon",
    ),
    # Validators and trainers
    Row("this node cannot enroll", NO_VALIDATOR, "See `daa-node trainers`, and what the words say"),
    Row("nobody vouches in this network", NO_VALIDATOR, "See `daa-node trainers` who may come in"),
    Row("only a validator vouches", NO_VALIDATOR, "Ask a validator: `daa-node validators`"),
    Row("cannot be retired by this node", NO_VALIDATOR, "Ask the validator that vouches for it"),
    Row("no place for this", "As many requests as there may be wait", "Ask again in a round"),
    Row(
        "the others would refuse this",
        "The request breaks a rule of the network",
        "See `daa-node validators` and `daa-node trainers`: they tell how things stand",
    ),
    Row(
        "the chain does not admit this now",
        "The request breaks a rule of the network",
        "See `daa-node validators` and `daa-node trainers`: they tell how things stand",
    ),
    Row(
        "this node does not sign that",
        "It would contradict what this node has signed before",
        "Wait for an epoch, and see `daa-node status`",
    ),
    Row(
        "this would be dropped at the end of the epoch",
        "The request breaks a rule of the set of validators",
        "Change it as the message says, and ask again",
    ),
    Row("this is no consent of another node", "The file is no consent", "Make it anew there"),
    Row("holds no consent", "The file is no consent", "Make it anew with `validators consent`"),
    Row(
        "a validator of this network vouches for",
        "The genesis says for how many trainers one validator may vouch (trainers.per_voucher)",
        "Make an invite for fewer, or on another validator",
    ),
    Row("`propose ... needs", "An action lacks what it is about", "Give what the message names"),
    Row("`propose ... takes no", "An action was given too much", "Leave out what it names"),
    # Numbers and words of the command line
    Row("--uses", "How many nodes may come with the invite", "Give a number in that range"),
    Row("--expires", "How long the invite is good", "Give a time in that range, like 12h or 7d"),
    Row("--since", "From when on", "Give a time like 12h or 7d, or a date"),
    Row("--tokens", "How much is written", "Give a number in that range"),
    Row("--temperature", "How boldly is written", "Give a number in that range"),
    Row("--seed", "By which lot is written", "Give a number in that range"),
    Row("--name", "What the unit is called", "Give another name, of these characters"),
    Row("--format", "Which files are written", "Give one of those that the message lists"),
    Row("there is no unit at", "No service of that name was installed", "Look at the --name"),
    Row(
        "hex digits",
        "An id is cut, or has a letter too many",
        "Give all digits of it, as the command shows them that lists it",
    ),
)

# Below an error that `found:` tells.
FACTS: tuple[Row, ...] = (
    Row(
        "listens there",
        "That process has the port which this node needs",
        "If it is no node of yours, set another port under network.listen in config.yaml",
    ),
    Row(
        "that process is stopped",
        "The daemon was stopped with Ctrl-Z or SIGSTOP, and holds the directory",
        "Let it go on: `kill -CONT` with its pid",
    ),
    Row(
        "it answers nobody: it starts, or ends, just now",
        "The daemon of this directory is between two states",
        "Wait a minute, and ask `daa-node status`",
    ),
    Row(
        "can hold no more files",
        "The disk has room, and no entry for one more file",
        "Take small files away that are not the node's, or use another disk",
    ),
    Row(
        "are free on the disk",
        "That disk is full",
        "Make room on it, or bound what the node keeps with storage.bytes_max",
    ),
    Row(
        "has no address",
        "The resolver of this host does not know the name",
        "Look at the spelling, and at the resolver (`getent hosts NAME`)",
    ),
    Row(
        "lets nobody in at port",
        "The host answers, and nobody listens there, or a firewall refuses",
        "Ask its operator whether the daemon runs, and whether the port is open",
    ),
    Row(
        "does not greet as a node does",
        "Another program listens there, or a node with other keys",
        "Compare the address with `daa-node id` on that host",
    ),
    Row(
        "it is off, or a firewall is between",
        "Nothing came back from that host",
        "Ask its operator, or try another address: one reachable member is enough",
    ),
)

# What a daemon says on standard error beside its events.
REMARKS: tuple[Row, ...] = (
    Row("stopped: ", "The daemon has ended, for that reason"),
    Row("draining: stopping when the round is final", "The daemon ends after this round"),
    Row(
        "settings not reloaded: ",
        "The daemon goes on with the settings that it had",
        "Mend that line of config.yaml, and send SIGHUP again",
    ),
    Row(
        "none of the first validators of",
        "This node comes to a network that others have begun. It follows, and does not vote yet",
    ),
    Row(
        "this node was in another network until now",
        "Another genesis.json lies in the directory than at the last start. What was there is kept",
        "If you did not mean it, put the old genesis.json back and start again: all of it returns",
    ),
    Row("supervising: ", "Another process starts the daemon again when it crashes"),
    Row(
        "it starts again in",
        "The daemon has ended, and the process that watches over it says how it goes on",
        "Ask `daa-node doctor` for the cause. The lines before this one are the daemon's own",
    ),
    Row(
        "before it could hear it: it starts again",
        "The daemon was to read its settings again before it could, and is started with them",
    ),
    Row(
        ", as it was to stop",
        "The daemon was told to stop, and ended with an error",
        "Read the lines before this one: they are the daemon's own",
    ),
    Row(
        "a start does not mend what the message names",
        "The daemon ended as its settings are wrong, and is not started again",
        "Mend what the error before this line names, and start it",
    ),
    Row(
        "the daemon cannot be started",
        "The system lets no process begin, for want of memory or of processes. It is tried again",
        "Look at the memory of this host (`free -h`), and at `ulimit -u`",
    ),
)
