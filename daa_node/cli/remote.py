"""Commands that ask the running daemon: status, peers, rounds, logs, drain, validators."""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from daa_node.adapters import control_socket
from daa_node.cli import report
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.places import place_of
from daa_node.errors import UserError

DAMAGED_SHOWN = 5
REASONS_TOLD_MAX = 3  # why holes failed: most are of one kind
PAIRS_TOLD_MAX = 8  # kinds of devices: a member may name any
# What each action takes: its flag, whether it must be given, and with what.
FLAG_OF: Mapping[str, tuple[str, bool, str]] = {
    "join": ("--stake", False, "N"),
    "leave": ("", False, ""),
    "stake": ("--stake", True, "N, the weight that this node is to have"),
    "rotate": (
        "--consent",
        True,
        "FILE: what `daa-node validators consent NODE_ID`, with this node's id, writes on the node "
        "that takes over the seat",
    ),
    "withdraw": ("--request", True, "ID, as `daa-node validators` lists it"),
}


def ask(root: Path, command: str) -> dict[str, Any]:
    """The daemon's answer. Raises UserError if none runs in `root`, or none answers."""
    directory = DataDirectory(root)
    directory.check()
    return control_socket.ask(directory.control, command)


def status(root: Path, as_json: bool) -> None:
    answer = ask(root, "status")
    if as_json:
        report.put_json(answer)
        return
    who = answer["validators"]
    report.put(f"node        {answer['node_id']}  pid {answer['pid']}")
    report.put(f"chain       {answer['chain_id']}")
    report.put(f"part        {answer['part']}")
    report.put(f"phase       {answer['phase']}, round {answer['round']}, height {answer['height']}")
    if answer.get("paused"):
        report.put("paused      by its operator: it trains once it is resumed (daa-node resume)")
    if answer.get("retired"):
        report.put("retired     by its operator: it trains again once it enrolls (trainers enroll)")
    for line in protocol_lines(answer.get("protocol", {})):
        report.put(line)
    report.put(f"vertex      {answer['vertex_id']}")
    report.put(f"model       {answer['model_root']}")
    loss = answer["loss_nats"]
    why = ": this node never trains" if answer.get("never_trains") else " yet"
    report.put(f"loss        {f'not measured{why}' if loss is None else f'{loss:.4f} nats a byte'}")
    report.put(
        f"validators  {who['reachable']} of {who['total']} reachable, quorum {who['quorum']}"
    )
    if answer["trainers"]["total"]:
        training = answer["trainers"]
        report.put(f"trainers    {training['reachable']} of {training['total']} reachable")
    report.put(f"reach       {reach_line(answer['reachability'])}")
    report.put(
        f"bytes       {report.size(answer['bytes_sent'])} sent, "
        f"{report.size(answer['bytes_received'])} received"
    )
    if answer["link"] is not None:
        report.put(f"link        {link_line(answer['link'])}")
    report.put(f"storage     {storage_line(answer['storage'])}")
    if answer["copies"]["states"]:
        report.put(f"copies      {copies_line(answer['copies'])}")
    report.put(f"memory      {report.size(answer['anon_rss_bytes'])}")
    if answer["calibration"] is not None:
        for line in device_lines(answer["calibration"]):
            report.put(line)
    gateway = answer["gateway"]
    if gateway is not None:
        closed = f"closed: {gateway['failure'] or 'it opens in a moment'}"
        report.put(f"gateway     {gateway['url'] or closed}")
        there = gateway["volunteers"]
        report.put(f"volunteers  {there['sessions']} of {there['sessions_max']}")
    api = answer["api"]
    if api is not None:
        closed = f"closed: {api['failure'] or 'it opens in a moment'}"
        report.put(f"api         {api['url'] or closed}; `daa-node dashboard` opens its page")
    if answer["alarm"] is not None:
        report.put(f"ALARM       {answer['alarm']}")
    for what in answer["damaged"][:DAMAGED_SHOWN]:
        report.put(f"DAMAGED     {what}")
    if len(answer["damaged"]) > DAMAGED_SHOWN:
        report.put("DAMAGED     and more: daa-node logs has record_damaged for each")
    if answer["repaired"]:
        count, first = len(answer["repaired"]), answer["repaired"][0]
        report.put(f"repaired    {count} by the newest reading, the first: {first}")
    if answer.get("waiting"):
        report.put(f"waiting     {answer['waiting']}")
    if answer.get("ended_because"):
        report.put(f"ended       {answer['ended_because']}")
    for decision in answer["decisions"][-5:]:
        report.put(f"decision    {decision['decision']}: {decision['reason']}")


def protocol_lines(protocol: Mapping[str, Any]) -> Iterator[str]:
    """Of a version that is announced: whether this node is ready for it.

    A daemon that still runs an older release than this command tells nothing of it.
    """
    first_round = protocol.get("next_from_round")
    if first_round is not None:
        due = "" if protocol["speaks_next"] else ": INSTALL a newer release before, or it stops"
        yield f"protocol    {protocol['in_use'] + 1} is used from round {first_round} on{due}"


def storage_line(standing: Mapping[str, Any]) -> str:
    """How much the node keeps, of how much it may."""
    chain_bytes, work_bytes = standing["chain_bytes"], standing["work_bytes"]
    told = f"{report.size(chain_bytes + work_bytes)}, {report.size(chain_bytes)} of it the chain"
    if standing["bytes_max"] is None:
        return told
    words = {
        "room": "",
        "near": ": near; old states go next",
        "over": ": TOO MUCH, and nothing may go; daa-node logs says why (storage_over)",
    }
    return f"{told}, of {report.size(standing['bytes_max'])}{words[standing['level']]}"


def copies_line(told: Mapping[str, Any]) -> str:
    """How many members hold each of the newest whole states, and whether this node does."""
    lines = []
    for state in told["states"]:
        where = "here" if state["here"] else "coming" if state["coming"] else "not here"
        count = state["copies"]
        held = "counted by others" if count is None else f"{count} of {told['wanted']}"
        lines.append(f"height {state['height']} {where}, {held}")
    return "; ".join(lines)


def reach_line(standing: Mapping[str, Any]) -> str:
    """Whether others can dial this node, and why we think so."""
    seen, relays = ", ".join(standing["seen_at"]), len(standing["relays"])
    told = f"{standing['reach']}: {standing['why']}{f', seen at {seen}' if seen else ''}"
    holes = len(standing["punched"])
    told += f"; others come through {relays} relay{'s' * (relays > 1)}" if relays else ""
    told += f"; without a relay to {holes}, by hole punching" if holes else ""
    for why, number in Counter(standing["not_punched"].values()).most_common(REASONS_TOLD_MAX):
        told += f"; no hole to {number}: {why}"
    router = standing["router"]
    return told if router is None else f"{told}; UPnP: {router['why']}"


def link_line(standing: Mapping[str, Any]) -> str:
    """Its caps, and what is left of the day's data."""
    caps = [
        f"{way} at most {standing[f'{key}_mbit_s']:g} Mbit/s"
        for way, key in (("up", "upload"), ("down", "download"))
        if standing[f"{key}_mbit_s"] is not None
    ]
    if standing["budget_bytes_a_day"] is None:
        return ", ".join(caps)
    meaning = {
        "open": "",
        "saving": ": nothing of others is served until midnight UTC",
        "spent": ": nothing is served or fetched until midnight UTC",
    }[standing["budget"]]
    spent = report.size(standing["spent_bytes_today"])
    of = report.size(standing["budget_bytes_a_day"])
    return ", ".join([*caps, f"{spent} of {of} spent today{meaning}"])


def peers(root: Path, as_json: bool) -> None:
    answer = ask(root, "peers")
    if as_json:
        report.put_json(answer)
        return
    heads = (
        *("NODE", "ROLE", "PART", "HEIGHT", "VIEW", "RTT MS", "LEVEL", "HEALTH", "WEAKEST"),
        *("FAULTS", "CHECKS", "TOLERATED", "SEES US", "SEEN S AGO", "REACH", "ADDRESS"),
    )
    keys = ("node_id", "role", "part", "height", "view", "rtt_ms")
    rows = [
        [
            *(_short(key, peer.get(key)) for key in keys),
            *health_cells(peer.get("health")),
            sum(peer["faults"].values()),
            _checks(peer.get("checks")),
            _tolerated(peer.get("calibration")),
            _view(peer.get("sees_us")),
            _short("last_seen_s", peer.get("last_seen_s")),
            peer["way"],
            place_of(peer.get("address")),
        ]
        for peer in answer["peers"]
    ]
    report.put_table(heads, rows)
    for peer in answer["peers"]:
        for reason in reasons_of(peer):
            report.put(f"{str(peer['node_id'] or peer['peer_id'])[:16]}  {reason}")
    for peer in answer["peers"]:
        view = peer.get("sees_us")
        if view is not None and view["level"] != "priority":
            would_raise = view["would_raise"] or "more rounds to be seen in"
            report.put(
                f"this node      {view['level']} with {str(peer['node_id'])[:16]}, "
                f"weakest {view['weakest']}; would raise it: {would_raise}"
            )


def reasons_of(peer: Mapping[str, Any]) -> Iterator[str]:
    """Why it is reached, and stands with this node, as it does: what the table has no room for."""
    if peer["why"] is not None:
        yield f"{peer['way']}: {peer['why']}"
    health = peer.get("health")
    if health is not None and health["level"] != "priority":
        yield _why_no_priority(health)
    if peer.get("shunned_until_round") is not None:
        yield why_shunned(peer)


def rounds(root: Path, as_json: bool) -> None:
    answer = ask(root, "rounds")
    if as_json:
        report.put_json(answer)
        return
    heads = ("HEIGHT", "LOSS", "CERTIFIED BY", "CONTRIBUTORS", "SENT", "WALL S", "VERTEX")
    report.put_table(
        heads,
        [
            [
                line["height"],
                line["loss_nats"],
                count_of(line["certified_by"]),
                _counted(line),
                report.size(line["bytes_sent"] or 0),
                line["wall_s"],
                str(line["vertex_id"])[:16],
            ]
            for line in answer["rounds"]
        ],
    )


def _counted(line: dict[str, Any]) -> str:
    """How many contributed, and of how many the update was not merged."""
    void = len(line["voided"])
    return f"{count_of(line['contributors'])}{f', {void} void' if void else ''}"


def logs(root: Path, count: int, follow: bool, as_json: bool) -> None:
    directory = DataDirectory(root)
    directory.check()
    events = control_socket.follow(directory.control, count, follow)
    if as_json and not follow:
        report.put_json({"events": list(events)})
        return
    try:
        for event in events:
            report.put(json.dumps(event) if as_json else event_line(event))
    except KeyboardInterrupt:
        return  # the usual end of following a log


def drain(root: Path, as_json: bool) -> None:
    answer = ask(root, "drain")
    if as_json:
        report.put_json(answer)
    else:
        report.put("draining: the daemon stops when its round is final")


def validators(root: Path, as_json: bool) -> None:
    answer = ask(root, "validators")
    if as_json:
        report.put_json(answer)
        return
    epoch, epoch_rounds = answer["epoch"], answer["epoch_rounds"]
    report.put(
        f"epoch {epoch} ends after round {(epoch + 1) * epoch_rounds}, "
        f"a quorum weighs {answer['quorum']} of {answer['stake']}"
    )
    report.put_table(
        ("VALIDATOR", "STAKE", "PEER"),
        [[v["node_id"], v["stake"], v["peer_id"] or ""] for v in answer["validators"]],
    )
    for row in answer["waiting"] + answer["asked"]:
        where = (
            f"in the chain, approved by {row['approved_weight']}" if row["in_chain"] else "asked"
        )
        until = row["expires_epoch"] * epoch_rounds
        report.put(f"{row['id']}  {row['what']}  ({where}, lapses after round {until})")
    for row in answer["dropped"]:
        report.put(f"{row['id']}  {row['what']}  dropped: {row['why']}")


def propose(
    root: Path,
    action: str,
    stake: int | None,
    consent: Path | None,
    request: str | None,
    as_json: bool,
) -> None:
    _check_flags(action, {"--stake": stake, "--consent": consent, "--request": request})
    wanted: dict[str, object] = {"action": action}
    if action in ("join", "stake"):
        wanted["stake"] = 1 if stake is None else stake
    if request is not None:
        wanted["request"] = request
    if consent is not None:
        try:
            wanted["consent"] = json.loads(consent.read_text())
        except (OSError, ValueError) as fault:
            raise UserError(f"{consent} holds no consent: {fault}") from None
    said = (
        "is asked for. A quorum of the validators has to approve a join, a rotation or a higher "
        "stake: `daa-node validators approve` with this id. `daa-node validators` shows after "
        "which round the epoch ends; the change takes effect then"
    )
    _put_id(_directory(root), "propose", said, as_json, **wanted)


def _check_flags(action: str, given: Mapping[str, object]) -> None:
    """Raises UserError for an unknown action, a flag that it lacks, or one of another action."""
    if action not in FLAG_OF:
        raise UserError(f"{action!r} is none of {', '.join(FLAG_OF)}")
    flag, is_needed, remedy = FLAG_OF[action]
    if is_needed and given[flag] is None:
        raise UserError(f"`propose {action}` needs {flag} {remedy}")
    for other, value in given.items():
        if value is not None and other != flag:
            raise UserError(f"`propose {action}` takes no {other}")


def approve(root: Path, request_id: str, as_json: bool) -> None:
    said = "has this node's approval. `daa-node validators` shows how much weight approves"
    _put_id(_directory(root), "approve", said, as_json, id=request_id)


def consent(root: Path, seat: str) -> None:
    answer = control_socket.ask(_directory(root).control, "consent", seat=seat)
    report.put_json(answer)


def _put_id(
    directory: DataDirectory, command: str, said: str, as_json: bool, **words: object
) -> None:
    answer = control_socket.ask(directory.control, command, **words)
    if as_json:
        report.put_json(answer)
    else:
        report.put(f"{words.get('id', answer['id'])}  {said}")


def _directory(root: Path) -> DataDirectory:
    directory = DataDirectory(root)
    directory.check()
    return directory


def count_of(value: object) -> int:
    """How many: the daemon gives names where it knows them, else a number."""
    return value if isinstance(value, int) else len(value) if isinstance(value, list) else 0


def event_line(event: dict[str, Any]) -> str:
    """One event for a person: time of day, name, fields."""
    event = dict(event)
    moment = datetime.fromtimestamp(event.pop("ts", 0)).strftime("%H:%M:%S.%f")[:-3]
    name = event.pop("name", "?")
    fields = " ".join(f"{key}={_field(value)}" for key, value in event.items())
    return f"{moment} {name:<20} {fields}".rstrip()


def _field(value: object) -> str:
    if isinstance(value, str):
        return json.dumps(value) if " " in value or not value else value
    return json.dumps(value)


def device_lines(standing: Mapping[str, Any]) -> list[str]:
    """Of checks: our device, how far the steps of others may be off by theirs, and why."""
    steps, needed = standing["steps"], standing["steps_needed"]
    if steps < needed:
        most = standing["tolerance_max"]
        told = f"{steps} of {needed} canary steps taken; checks tolerate {most:.1e} till then"
        return [f"device      {told}"]
    unsteady = "" if standing["repeats"] else "; DOES NOT REPEAT ITSELF: others may doubt its work"
    lines = [f"device      {standing['device']}{unsteady}"]
    pairs = sorted(standing["pairs"], key=lambda pair: -pair["nodes"])
    for pair in pairs[:PAIRS_TOLD_MAX]:
        who = "1 node" if pair["nodes"] == 1 else f"{pair['nodes']} nodes"
        told = f"{pair['tolerance']:.1e} of {who} with {pair['device']}: {pair['why']}"
        lines.append(f"tolerated   {told}")
    if len(pairs) > PAIRS_TOLD_MAX:
        lines.append(f"tolerated   {len(pairs) - PAIRS_TOLD_MAX} kinds more: see --json")
    return lines


def _checks(record: Mapping[str, Any] | None) -> str:
    """Of so many segments that we trained again, how many were sound; and what was not shown."""
    if record is None:
        return "-"
    unshown = f", {record['unshown']} unshown" if record["unshown"] else ""
    return f"{record['sound']}/{record['sound'] + record['differs']}{unshown}"


def _tolerated(calibration: Mapping[str, Any] | None) -> str:
    """How far its steps may be off for us."""
    return "-" if calibration is None else f"{calibration['tolerance']:.1e}"


def why_shunned(peer: Mapping[str, Any]) -> str:
    until = peer["shunned_until_round"]
    return f"not acknowledged until round {until}: what it trained was not shown, or differs"


def health_cells(health: Mapping[str, Any] | None) -> tuple[str, str, str]:
    """Level, score and weakest component; nothing of who has contributed nothing here."""
    if health is None:
        return "-", "-", "-"
    weakest = health["weakest"]
    value = health["components"][weakest]["value"]
    return health["level"], f"{health['score']:.2f}", f"{weakest} {value:.2f}"


def _view(view: Mapping[str, Any] | None) -> str:
    """How we stand there."""
    return "-" if view is None else f"{view['level']} {view['score']:.2f}"


def _why_no_priority(health: Mapping[str, Any]) -> str:
    since = f"{health['level']} since round {health['since_round']}"
    if health["excluded_because"] is not None:
        return f"{since}: {health['excluded_because']}"
    return f"{since}; would raise it: {health['would_raise']}"


def _short(key: str, value: object) -> object:
    if key == "node_id":
        return str(value)[:16]
    return round(value) if isinstance(value, float) else value
