"""Checks of the way to other nodes: each known address is tried once, all of them at once.

    name -> dial -> noise -> hello        where it ends is what is told

The visitor has keys of its own, made for this: a daemon that runs here is not disturbed, and no
other node takes the visit for a second copy of it. Hello shows the other's clock, too.
"""

import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import trio

from daa_node.adapters.host_names import HostNames
from daa_node.advice.table import advice_on_refusal
from daa_node.cli.doctor import clocks, reach
from daa_node.cli.doctor.findings import Finding, amiss, unmeasured, well, wrong
from daa_node.cli.doctor.scene import Scene
from daa_node.cli.joining import REMEDIES, Visit
from daa_node.errors import UserError
from daa_node.genesis import Genesis
from daa_node.identity.keys import NodeKeys
from daa_node.seams import Address

TRIED_MAX = 16  # addresses: one node that answers is enough to come in
DIAL_TIMEOUT_S = 10.0  # three SYNs of TCP: an address behind a firewall answers nothing
VISIT_TIMEOUT_S = 40.0  # longer than a dial and a greeting may take
CLOCK_SKEW = "clock-skew"


class Stage(StrEnum):
    """How far a try came. What fails is told by the stage that it failed in."""

    NAME = "name"
    DIAL = "dial"
    NOISE = "noise"
    HELLO = "hello"
    MET = "met"


@dataclass(frozen=True, slots=True)
class Try:
    address: Address
    stage: Stage
    cause: str = ""
    reason: str = ""  # of a refusal in hello
    clock_off_s: float | None = None  # of a node that was met, ahead of ours


async def look_outside(scene: Scene) -> list[Finding]:
    """Whether anybody of this network is reached, and reaches us; how far off the clocks are."""
    made = scene.made
    assert made is not None
    addresses = known_addresses(scene)
    tries: list[Try] = []
    async with trio.open_nursery() as nursery:
        for address in addresses[:TRIED_MAX]:
            nursery.start_soon(_note_try, address, made, tries)
    tries.sort(key=lambda each: addresses.index(each.address))
    found = [unmeasured("bootstrap", "this node knows no address of another one")]
    if tries:
        found = _ways(tries, len(addresses))
    return [*found, await _reach(scene, made, tries), _clock(tries, scene.peers)]


async def _reach(scene: Scene, made: Genesis, tries: list[Try]) -> Finding:
    assert scene.config is not None
    if "reachability" in scene.status:
        told = scene.status
        return reach.of_daemon(told["reachability"], told["addresses"], scene.config.network)
    if scene.runs is not None:
        return unmeasured("reach", "the daemon that runs here does not answer")
    met = next((each.address for each in tries if each.stage is Stage.MET), None)
    return await reach.of_visit(scene, made, met)


def known_addresses(scene: Scene) -> list[Address]:
    """Of the settings first, then of the genesis; not our own."""
    config, made = scene.config, scene.made
    assert config is not None
    assert made is not None
    known = dict.fromkeys([*map(Address, config.network.bootstrap), *made.bootstrap()])
    own = "" if scene.keys is None else f"/p2p/{scene.keys.peer_id}"
    return [address for address in known if not (own and address.endswith(own))]


async def _note_try(address: Address, made: Genesis, tries: list[Try]) -> None:
    tries.append(await try_once(address, made))


async def try_once(address: Address, made: Genesis) -> Try:
    """How far one gets with the node at `address`; takes a minute at most."""
    _, kind, host, _, port = address.split("/")[:5]
    names = HostNames()
    try:
        await names.numbers_of(kind, host)
    except socket.gaierror as error:
        return Try(address, Stage.NAME, f"{host} has no address: {error.strerror or error}")
    try:
        with trio.fail_after(DIAL_TIMEOUT_S):
            stream = await names.connect(kind, (host, int(port)))
        await trio.aclose_forcefully(stream)
    except OSError as error:
        return Try(address, Stage.DIAL, error.strerror or str(error))
    except trio.TooSlowError:
        return Try(address, Stage.DIAL, f"no answer within {DIAL_TIMEOUT_S:.0f} s")
    visit = Visit(address, made.chain_id, NodeKeys.generate(), remedies=_OWN_WORDS)
    with trio.move_on_after(VISIT_TIMEOUT_S):
        try:
            await visit.during(_nothing_more)
        except UserError as failure:
            refusal = visit.refusal()
            if refusal is not None:
                return Try(address, Stage.HELLO, f"{refusal[0]}: {refusal[1]}", refusal[0])
            stage = Stage.HELLO if visit.peer_id else Stage.NOISE
            return Try(address, stage, str(failure).removeprefix(f"{address} "))
        return Try(address, Stage.MET, clock_off_s=visit.clock_off_s)
    stage = Stage.HELLO if visit.peer_id else Stage.NOISE
    return Try(address, stage, f"no answer within {VISIT_TIMEOUT_S:.0f} s")


_OWN_WORDS = {reason: words for reason, words in REMEDIES.items() if reason != "wrong-chain"}


async def _nothing_more(_visit: Visit) -> None:
    """To have met is all."""


def _ways(tries: list[Try], known: int) -> list[Finding]:
    """Of a node that one of its addresses leads to, the others do not matter."""
    met = {_node_at(each.address) for each in tries if each.stage is Stage.MET}
    failed = [each for each in tries if _node_at(each.address) not in met]
    found = [_failed(each, bool(met)) for each in failed]
    if met:
        count = len({_node_at(each.address) for each in tries})
        left = f"; {known - len(tries)} more addresses were not tried" * (known > len(tries))
        found.insert(0, well("bootstrap", f"{len(met)} of {count} nodes answer{left}"))
    return found


def _node_at(address: Address) -> str:
    """Its peer id; of an address that names none, the address."""
    return address.rpartition("/p2p/")[2]


def _failed(one: Try, is_met: bool) -> Finding:
    """An error only if nobody else answers, or if the network is another one."""
    cause = f"{one.address} fails at stage {one.stage}: {one.cause}"
    made = amiss if is_met else wrong
    match one.stage:
        case Stage.NAME:
            advice = (
                "Look at the spelling under network.bootstrap, and at the resolver of this host "
                "(`getent hosts NAME`)"
            )
        case Stage.DIAL:
            advice = (
                "Nobody listens there, or a firewall is between: try `nc -vz HOST PORT` from "
                "here, and ask its operator whether the daemon runs"
            )
        case Stage.NOISE:
            advice = (
                "Something listens there that is no node, or a node with other keys than the "
                "address names: compare with `daa-node id` on that host"
            )
        case Stage.HELLO | Stage.MET:
            advice = advice_on_refusal(one.reason)
    return made("bootstrap", cause, advice)


def _clock(tries: list[Try], peers: Sequence[Mapping[str, Any]]) -> Finding:
    """By the nodes that were met, else by those that the daemon is connected with."""
    skewed = [each for each in tries if each.reason == CLOCK_SKEW]
    met = [each.clock_off_s for each in tries if each.clock_off_s is not None]
    if skewed:
        made = amiss if met else wrong
        cause = f"{skewed[0].address}: {skewed[0].cause}"
        return made("clock", cause, advice_on_refusal(CLOCK_SKEW))
    if met:
        return clocks.judged(met, "nodes that were met" if len(met) > 1 else "a node that was met")
    heard = [peer["clock_off_s"] for peer in peers if peer.get("clock_off_s") is not None]
    return clocks.judged(heard, "peers of the daemon" if len(heard) > 1 else "a peer of the daemon")
