"""Checks of the host: ports, disk, limits, and what torch computes on."""

import errno
import resource

import trio

from daa_node.adapters.descriptors import check_limit
from daa_node.adapters.host_looks import held_bytes
from daa_node.adapters.host_names import HostNames
from daa_node.adapters.libp2p_transport import cannot_listen
from daa_node.cli import report
from daa_node.cli.compose import descriptors_max
from daa_node.cli.doctor.findings import Finding, amiss, unmeasured, well, wrong
from daa_node.cli.doctor.scene import Scene
from daa_node.cli.join_costs import check_quota, check_room, costs_of, kept_bytes
from daa_node.errors import UserError
from daa_node.wire.listening import split_listen

DAEMON_THREADS = 12  # as descriptors.FILES_MAX counts them
WORKER_THREADS = 3  # of each process, beside those that compute: reader, heartbeat, and the orders
MS_PER_S = 1000


async def look_at_ports(scene: Scene) -> list[Finding]:
    """Whether the daemon can listen where it is told to; who is in its way, where that is told."""
    config = scene.config
    assert config is not None
    if scene.runs is not None:
        return [well("port", "the daemon that runs here has its own")]
    doors = [config.gateway.listen] if config.gateway.enabled else []
    if config.api.listen is not None:
        doors.append(config.api.listen)
    if config.api.public_listen is not None:
        doors.append(config.api.public_listen)
    addresses = list(config.network.listen)
    for door in doors:
        host, port = split_listen(door)
        addresses.append(f"/{'ip6' if ':' in host else 'ip4'}/{host}/tcp/{port}")
    found = [await _look_at_port(scene, address) for address in addresses]
    return found or [well("port", "this node listens nowhere: it dials the others")]


async def _look_at_port(scene: Scene, address: str) -> Finding:
    _, kind, host, _, port = address.split("/")[:5]
    try:
        for listener in await HostNames().listen(kind, (host, int(port))):
            await listener.aclose()
    except OSError as error:
        told = str(cannot_listen(address, error))
        if error.errno != errno.EADDRINUSE:
            return wrong("port", told)
        holder = scene.host.port_holder(int(port))
        who = f"{holder} listens there" if holder else "a process that this user may not see"
        return wrong("port", f"{told}. Who has it: {who}")
    return well("port", f"{address} is free")


async def look_at_room(scene: Scene) -> list[Finding]:
    """Whether the disk has room for what this job brings, and the bound of the settings, too."""
    made, config = scene.made, scene.config
    assert made is not None
    assert config is not None
    directory = scene.directory
    rounds = made.job.end.rounds
    begun = costs_of(made, config.storage.retention, 1)
    whole_bytes = kept_bytes(made, config.storage.retention, rounds or 0)
    held = held_bytes([directory.chain, directory.work, directory.trainer])
    try:
        free = scene.host.free_bytes(directory.root)
    except OSError as failure:
        return [unmeasured("disk room", f"cannot ask {directory.root}: {failure.strerror}")]
    try:
        check_quota(config.storage.bytes_max, begun)
        check_room(directory.root, max(begun.round_bytes, begun.least_bytes - held), free)
    except UserError as fault:
        return [wrong("disk room", str(fault))]
    told = f"{report.size(free)} are free, {report.size(held)} are taken"
    if free < whole_bytes - held:
        return [
            amiss(
                "disk room",
                f"{told}, and until its end this job takes {report.size(whole_bytes)}",
            )
        ]
    until = "until its end" if rounds is not None else "at its beginning"
    return [well("disk room", f"{told}; this job takes {report.size(whole_bytes)} {until}")]


async def look_at_pace(scene: Scene) -> list[Finding]:
    """Whether votes become durable in time, and a whole state within a round."""
    made = scene.made
    assert made is not None
    try:
        pace = await trio.to_thread.run_sync(scene.host.disk_pace, scene.directory.root)
    except OSError as failure:
        return [wrong("disk speed", f"cannot write in {scene.directory.root}: {failure.strerror}")]
    sync_ms, delta_ms = pace.sync_s * MS_PER_S, made.job.agreement.delta_ms
    window_s = made.job.rounds.window_ms / MS_PER_S
    state_bytes = 8 * made.job.model.parameter_count()  # weights and outer momentum
    told = (
        f"a small write is durable after {sync_ms:.1f} ms; {report.size(pace.bytes_per_s)} a "
        "second in one file"
    )
    if sync_ms > delta_ms:
        slow = f"votes of this network have {delta_ms} ms (agreement.delta_ms) for their way"
        return [amiss("disk speed", f"{told}, and {slow}")]
    if state_bytes > pace.bytes_per_s * window_s:
        slow = f"a whole state of {report.size(state_bytes)} takes longer than a round's window"
        return [amiss("disk speed", f"{told}: {slow}, {window_s:g} s")]
    return [well("disk speed", told)]


async def look_at_files(scene: Scene) -> list[Finding]:
    """Whether a daemon started from here may open what it needs."""
    config, made = scene.config, scene.made
    assert config is not None
    assert made is not None
    needed, hard = descriptors_max(config, len(made.public_keys)), scene.host.files_max()
    try:
        check_limit(needed, hard)
    except UserError as fault:
        return [wrong("open files", str(fault))]
    most = "any number" if hard == resource.RLIM_INFINITY else str(hard)
    return [well("open files", f"it may need {needed}, and {most} are allowed from here")]


async def look_at_threads(scene: Scene) -> list[Finding]:
    """Whether the daemon and its workers may have the threads that they start."""
    config = scene.config
    assert config is not None
    workers = max(1, len(config.trainer.devices))
    needed = DAEMON_THREADS + workers * (config.trainer.threads + WORKER_THREADS)
    room = scene.host.thread_room()
    if scene.runs is not None:
        return [well("threads", f"the daemon that runs here has its own, up to {needed}")]
    if room is None:
        return [unmeasured("threads", "this system tells of no limit")]
    if room.left < needed:
        return [
            wrong(
                "threads",
                f"daemon and workers may need {needed} threads, and {max(0, room.left)} more are "
                f"allowed: {room.limit}",
            )
        ]
    return [well("threads", f"it may need {needed}, and {room.left} more are allowed")]


async def look_at_device(scene: Scene) -> list[Finding]:
    """Whether a process of its own can import torch, and compute on what the settings name."""
    config = scene.config
    assert config is not None
    if not config.trainer.contribute:
        return [well("device", "this node never trains: it merges on the CPU, without torch")]
    if not scene.host.has_torch():
        return [
            wrong(
                "device",
                "no torch: this host can verify and vote, not train",
            )
        ]
    try:
        said = await trio.to_thread.run_sync(scene.host.device, config.trainer)
    except UserError as fault:
        return [wrong("device", str(fault))]
    return [well("device", said)]
