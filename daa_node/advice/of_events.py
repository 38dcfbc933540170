"""What each event of the log means, and what its operator may do: a row for every name.

Most events tell how the work goes on, and nothing is to be done. The order is that of
observability/events.py.
"""

from daa_node.advice.row import Row

EVENTS: tuple[Row, ...] = (
    # The daemon
    Row("node_started", "The daemon has started"),
    Row("node_stopped", "The daemon has ended, for the reason beside it"),
    Row(
        "config_reloaded",
        "The daemon has read its settings again. `needs_restart` lists what counts only after the "
        "next start, and `error` why nothing was taken",
        "If there is an `error`, mend that line of config.yaml and send SIGHUP again. For what "
        "needs a restart, run `daa-node drain` and then `daa-node run`",
    ),
    Row(
        "command_failed",
        "A command of yours met a mistake in this program. The daemon goes on",
        "Report it, with `daa-node doctor --bundle FILE`",
    ),
    Row(
        "storage_failed",
        "The disk did not take or give what the node needed. What depends on it waits, and "
        "nothing that was certified is lost",
        "Look at the disk: `df -h` and `df -i` for its room, `dmesg` for its errors",
    ),
    Row(
        "descriptors_short",
        "The process has no room for another open file or connection. It waits until one is free",
        "Raise the limit where the daemon is started (`ulimit -n`, or LimitNOFILE= of a systemd "
        "unit), or lower network.peers_max",
    ),
    Row(
        "library_failed",
        "A library for the network met a mistake of its own. The connection is closed, and the "
        "node goes on",
        "If `count` grows, report it, with `daa-node doctor --bundle FILE`",
    ),
    Row(
        "clock_skewed",
        "The clock of this host and that of another node are too far apart to work together",
        "Let NTP set the clock of this host (`timedatectl set-ntp true`). If it does already, the "
        "other clock is wrong: tell its operator",
    ),
    Row("gateway_opened", "Volunteers may open the page at that address"),
    Row(
        "gateway_failed",
        "The gateway of volunteers could not open its door, and tries again after `retry_s`. The "
        "node itself goes on",
        "See which program has that address (`ss -ltnp`), or set another gateway.listen",
    ),
    Row("api_opened", "The HTTP API answers at that address"),
    Row(
        "api_failed",
        "The HTTP API could not open its door, and tries again after `retry_s`. The node itself "
        "goes on",
        "Mend what `error` names: a taken address is changed in api.listen. `ss -ltnp` shows who "
        "has it",
    ),
    Row(
        "history_failed",
        "The history of rounds in D/history could not be written or read. It is tried again, and "
        "training does not depend on it",
        "Look at the room and the errors of that disk (`df -h`, `dmesg`)",
    ),
    Row(
        "traces_failed",
        "Traces could not be exported, and some are lost. Training does not depend on them",
        "Look whether the collector of traces.otlp runs and lets this host in",
    ),
    Row(
        "history_set_aside",
        "The history of rounds was damaged. It lies beside, and a new one has begun",
        "Look at the disk (`dmesg`): it has changed a file. The old history is yours to keep",
    ),
    Row(
        "api_commanded",
        "Somebody with a token has asked this node to change something, over HTTP",
        "If nobody of yours did it, make a new admin token: docs/operator-api.md says how",
    ),
    Row(
        "page_missing",
        "A page is not served: its files are not in this installation, or cannot be read",
        "Do what `detail` says. Where it names a fault alone, install that page again: "
        "daa-compute has the dashboard, and daa-compute[gateway] the page for volunteers",
    ),
    Row(
        "visit_failed",
        "An answer over HTTP met a mistake in this program. The daemon goes on",
        "Report it, with `daa-node doctor --bundle FILE`",
    ),
    # Volunteers
    Row("volunteer_came", "A browser has begun to compute for this gateway"),
    Row("volunteer_left", "A browser has gone"),
    Row(
        "volunteer_erred",
        "A browser's result was not the right one. It was not used",
        "Nothing here. If many err, the page and this program may be of two versions: reload it",
    ),
    Row(
        "volunteer_refused",
        "A browser was sent away, for the reason beside it",
        "Nothing, if there are few. With many of one reason, `detail` says what they lack",
    ),
    Row("volunteers_found", "Volunteers have computed a check"),
    # Peers
    Row("peer_joined", "Another node is connected, and has proved who it is"),
    Row("peer_left", "The connection with another node has ended"),
    Row(
        "peer_refused",
        "This node and another one will not talk with each other. `by` says which of them "
        "refused, and `reason` why",
        "See what the reason means: `daa-node doctor` tells it for the newest ones. The words in "
        "`detail` are the other node's own",
    ),
    Row(
        "peer_fault",
        "Another node has sent what the protocol forbids. It was not used, and that node's score "
        "is lower now",
        "Nothing, if it is rare. If one node does it again and again, ask its operator which "
        "version runs there",
    ),
    Row(
        "peer_banned",
        "Another node broke the rules so often that nothing is taken from it for some time",
        "Nothing here. If it is a node of yours, look at its version and at its own log",
    ),
    Row(
        "request_failed",
        "An answer to another node met a mistake in this program. The daemon goes on",
        "Report it, with `daa-node doctor --bundle FILE`",
    ),
    Row(
        "dial_failed",
        "Another node could not be reached at that address. It is tried again",
        "If no node is reached, ask `daa-node doctor`: it says at which stage each way ends",
    ),
    Row(
        "name_unknown",
        "A name has no address, so no node is reached there. It is tried again",
        "Look at the spelling under network.bootstrap, and at the resolver of this host (`getent "
        "hosts NAME`)",
    ),
    Row(
        "reachability_changed",
        "Whether others can dial this node is otherwise than before. `why` says by whom it is "
        "known",
        "If it is unreachable now, open the port: `daa-node doctor` says which, and how",
    ),
    Row("relay_reserved", "Others reach this node through that relay"),
    Row(
        "relay_lost",
        "The relay does not pass others on to this node any more. Another one is looked for",
        "Nothing, if a new one is reserved soon. Else open the port of network.listen in your "
        "router",
    ),
    Row("hole_punched", "This node and another one are connected past the relay"),
    Row("port_opened", "The router says that it lets others in at that port"),
    Row(
        "port_refused",
        "The router was asked to let others in, and did not",
        "Switch UPnP on in the router, or forward the port of network.listen in it by hand. "
        "Without that, relays help",
    ),
    Row(
        "hole_failed",
        "Two routers did not let a direct connection through. The two nodes go on over a relay",
        "Nothing. Forwarding the port of network.listen in your router makes it faster",
    ),
    Row("invite_used", "A node has come in with an invite of this node"),
    Row(
        "invite_held_up",
        "A node came with an invite, and could not be passed on yet. It comes again by itself",
        "If it does not come in within some rounds, see `why`",
    ),
    Row(
        "invites_lost",
        "The book of invites cannot be read, so all of them are void",
        "Make new invites with `daa-node invite`, and look at the disk (`dmesg`)",
    ),
    Row(
        "quorum_wait",
        "Too few validators can be reached for a decision. Nothing is lost, and it goes on by "
        "itself when they are back",
        "See with `daa-node validators` who is away, and ask the operators. If all of them run, "
        "`daa-node doctor` tries the way to each",
    ),
    # Rounds
    Row("round_started", "A round of training has begun"),
    Row("update_sealed", "This node has finished its contribution to the round"),
    Row("bulk_opened", "A connection for large data is open"),
    Row(
        "data_budget",
        "How much this node may send and receive this day. With `saving` it does less, and with "
        "`spent` only what it must",
        "Raise network.data_gb_a_day if the node should do more",
    ),
    Row("update_spread", "How much of our contribution had to be sent"),
    Row("offer_acked", "This node has a contribution of another one, whole"),
    Row("offer_eligible", "So many have a contribution that it may count in the round"),
    Row(
        "offer_refused",
        "A contribution did not pass the rules of the round. It does not count",
        "Nothing, if it is another node's. If it is your own, `daa-node contributions` says how "
        "often, and `daa-node doctor` looks at your host",
    ),
    Row("epoch_began", "From here on these validators vote"),
    Row(
        "protocol_announced",
        "A quorum of the validators speaks the next protocol version, and uses it from the round "
        "beside it on. `spoken` says whether this release speaks it",
        "Where `spoken` is false, install a newer release before that round: this node stops there",
    ),
    Row("protocol_used", "From this round on the network uses this protocol version"),
    Row(
        "set_decided",
        "The validators have agreed which contributions count in the round. `left_out` says why "
        "others do not",
    ),
    Row("set_executed", "This node has computed the new model of the round"),
    Row("exec_certified", "A quorum has signed the new model"),
    Row("round_finalized", "The round is over, and its model is certified for good"),
    Row(
        "loss_jumped",
        "A certified step has spoilt the model: its loss is far above that of the rounds before",
        "Look at it with the others. `daa-node checkpoint fork` begins a new network from a "
        "height before that step",
    ),
    Row("abort_due", "This node votes to give the round up, for the reason beside it"),
    Row("segment_checked", "A part of another node's training was done again, to check it"),
    Row("calibrated", "It is known how far this device's figures are from exact ones"),
    Row(
        "calibration_failed",
        "It could not be measured how far this device's figures are from exact ones. The genesis' "
        "tolerance holds",
        "Nothing, if it is rare. If it comes each day, `daa-node doctor` looks at the worker and "
        "the device",
    ),
    Row("segment_opened", "Another node has asked to see a part of our training, and got it"),
    Row("doubt_ended", "A doubt of ours about another node's work was decided"),
    Row("verdict_given", "This node has judged a doubt between two others"),
    Row(
        "verdict_failed",
        "This node could not judge a doubt between two others. It tries again",
        "If it comes again, see `why`: mostly the disk or the worker was busy",
    ),
    Row(
        "author_shunned",
        "A node shows no work that can be checked. This node acknowledges none of it for some "
        "rounds",
        "Nothing here. If it is a node of yours, look at its disk and its device",
    ),
    Row(
        "copy_found",
        "One contribution is a copy of another one. `voided` says whether it was taken out",
        "Nothing here: the copy does not count",
    ),
    Row("update_measured", "How a merged contribution stands to the others"),
    Row(
        "standing_changed",
        "This node thinks better or worse of a contributor than before",
        "If it is a node of yours, `daa-node peers` says what would raise it",
    ),
    Row(
        "round_aborted",
        "The validators have given the round up. The model stays as it was, and the next round "
        "begins",
        "Nothing, if it is rare. If it comes again, `abort_due` before it says why",
    ),
    Row("job_ended", "The job has come to its end"),
    # Agreement
    Row("view_given_up", "One leader was too slow, and the next one proposes"),
    Row("statement_sent", "This node has signed something and sent it to all"),
    Row("view_entered", "The validators go on to the next proposal"),
    Row("block_finalized", "The validators have agreed on a block for good"),
    Row(
        "vote_refused",
        "This node did not vote, as the vote would contradict what it has signed, or the disk did "
        "not keep it",
        "Nothing, if it is rare. If `why` names the disk, look at it (`df -h`, `dmesg`)",
    ),
    Row(
        "evidence_found",
        "A validator has signed two things that contradict each other. It is expelled",
        "If it is a node of yours, look for a second host that runs with its keys",
    ),
    Row(
        "quarantined",
        "The node has its keys and not its memory of what it signed, so it does not vote. The "
        "others let it vote again by themselves, if there are four or more",
        "See with `daa-node status` what is awaited. Never run two hosts with one directory's keys",
    ),
    Row(
        "key_elsewhere",
        "Somebody else signs with the keys of this node",
        "Find the other host that has a copy of keys/, and stop it. If you know of none, the keys "
        "are stolen: `daa-node validators propose rotate`",
    ),
    Row("rejoined", "The others have let this node vote again"),
    Row("gap_crossed", "Nobody kept the steps in between, so a whole state was fetched"),
    Row("state_coming", "A whole state of the model is on its way to this node"),
    Row("caught_up", "This node has all that is certified"),
    Row(
        "scouted",
        "No known member is heard, so the chain comes from anybody who has it. Its certificates "
        "are checked all the same",
        "Nothing, if it goes on. Add an address of a member to network.bootstrap if it does not",
    ),
    Row(
        "past_forked",
        "Two quorums have signed two pasts of this network. This node believes neither of them",
        "Ask a person that you trust for the id of a vertex. docs/joining.md says how a node is "
        "held to it",
    ),
    # Blobs, checkpoints, the worker
    Row("blob_fetched", "Data of another node have come, whole"),
    Row("checkpoint_published", "The new model of the round is in this node's chain"),
    Row(
        "first_weights_awaited",
        "The first weights of this network are not here yet. They come from members, or from the "
        "base on this host",
        "If nobody has them, say in config.yaml where the base lies on this host, as `why` tells",
    ),
    Row("snapshot_stored", "A whole state of the model is kept"),
    Row("data_pruned", "Old files went, as storage.retention says"),
    Row("data_packed", "Small files were put together into larger ones"),
    Row(
        "storage_near",
        "Nine tenths of storage.bytes_max are used. Old states go next",
        "Raise storage.bytes_max if they should stay",
    ),
    Row(
        "storage_over",
        "More than storage.bytes_max is used, and nothing more may go",
        "Raise storage.bytes_max in config.yaml, or take it out",
    ),
    Row("storage_let_go", "Old states went, to stay within storage.bytes_max"),
    Row("snapshot_copied", "This node keeps a whole state that too few others kept"),
    Row(
        "copies_lack",
        "Too few members keep a whole state, and this node could not fetch it",
        "Mend what `why` names, mostly the room on this disk. It is tried again",
    ),
    Row("history_thinned", "Old epochs are kept with one certificate each"),
    Row(
        "record_damaged",
        "The disk has spoilt a file of the chain. A good one is asked of the members",
        "If it comes again, look at the disk (`dmesg`, `smartctl`): it is failing",
    ),
    Row("record_repaired", "A good file of a member is in the place of the damaged one"),
    Row(
        "record_lost",
        "A file of the chain is damaged, and no member within reach has a good one",
        "Import it from another node's directory: `daa-node checkpoint import`. Look at the disk, "
        "too (`dmesg`)",
    ),
    Row("chain_scrubbed", "All that is kept was read once, and compared with its digests"),
    Row("checkpoint_restored", "The model of that height is in the worker"),
    Row("trainer_started", "The training process runs, on that device"),
    Row(
        "trainer_lost",
        "The training process has ended, and another one is started. This round goes on without "
        "our contribution",
        "Read D/trainer/worker.log. For want of memory lower trainer.threads or the batch; `dmesg` "
        "shows whether the kernel ended it",
    ),
    Row(
        "trainer_refused",
        "The training process did not carry an order out. This round goes on without our "
        "contribution",
        "Nothing, if it is rare. If it comes again, `why` names the cause, and `daa-node doctor` "
        "looks at the worker and the device",
    ),
    Row(
        "trainer_unsaved",
        "The state of the inner optimiser was not kept, so it starts afresh. The model itself is "
        "not touched",
        "Nothing, after another version or job. Else look at the room on the disk (`df -h`)",
    ),
    # The loop
    Row("decision", "The node has decided something, for the reason beside it"),
    Row("lesson", "What the node had expected of a round, and what happened"),
    Row("policy_adapted", "The node has changed how it plans its rounds"),
    # Of the log itself
    Row(
        "events_missed",
        "Whoever reads the events was too slow, and has missed that many. The file has them all",
    ),
    Row(
        "events_lost",
        "The disk did not take that many events. They are lost",
        "Look at the disk: `df -h` for its room, `dmesg` for its errors",
    ),
)
