"""All checks, in the order in which they are told, and how they are run."""

import trio

from daa_node.cli.doctor import machine, outside, own_files, releases, traces
from daa_node.cli.doctor.findings import Check, Finding, unmeasured
from daa_node.cli.doctor.scene import Scene

# One after the other: what they measure of the disk must not be disturbed.
QUICK = (
    Check("directory", own_files.look_at_directory),
    Check("config", own_files.look_at_config),
    Check("keys", own_files.look_at_keys),
    Check("genesis", own_files.look_at_genesis),
    Check("settings", own_files.look_at_settings, needs_config=True, needs_genesis=True),
    Check("identity", own_files.look_at_identity),
    Check("port", machine.look_at_ports, needs_config=True),
    Check("disk room", machine.look_at_room, needs_config=True, needs_genesis=True),
    Check("disk speed", machine.look_at_pace, needs_genesis=True),
    Check("open files", machine.look_at_files, needs_config=True, needs_genesis=True),
    Check("threads", machine.look_at_threads, needs_config=True),
    Check("event log", traces.look_at_event_log),
    Check("journal", traces.look_at_journal),
    Check("worker", traces.look_at_worker),
    Check("refusals", traces.look_at_refusals),
    Check("release", releases.look_at_releases),
)
# At once: they wait for others.
SLOW = (
    Check("device", machine.look_at_device, needs_config=True),
    Check("bootstrap", outside.look_outside, needs_config=True, needs_genesis=True),
)


async def findings_of(scene: Scene) -> list[Finding]:
    """What every check has to say; of what is no node, that alone."""
    if "directory" in scene.faults:
        return await own_files.look_at_directory(scene)
    found = [finding for check in QUICK for finding in await look(check, scene)]
    told: dict[str, list[Finding]] = {}

    async def note(check: Check) -> None:
        told[check.name] = await look(check, scene)

    async with trio.open_nursery() as nursery:
        for check in SLOW:
            nursery.start_soon(note, check)
    return found + [finding for check in SLOW for finding in told[check.name]]


async def look(check: Check, scene: Scene) -> list[Finding]:
    """What one check finds, or why it could not look."""
    if check.needs_config and scene.config is None:
        return [unmeasured(check.name, "it follows from config.yaml, which cannot be read")]
    if check.needs_genesis and scene.made is None:
        return [unmeasured(check.name, "it follows from genesis.json, which cannot be read")]
    try:
        return await check.find(scene)
    except OSError as failure:  # a file of another user, or a disk that fails
        return [unmeasured(check.name, f"cannot look: {failure}")]
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as odd:
        # of a log or a daemon of another version: no reason to tell nothing of all the rest
        told = f"cannot look: what it reads has another form than this program knows ({odd!r})"
        return [unmeasured(check.name, told)]
