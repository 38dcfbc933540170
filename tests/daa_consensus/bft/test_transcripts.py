"""Readable scripts of several machines: `tests/transcripts/simplex_*.txt`.

A line at the margin is a command; the indented lines below it are what the machines then wanted
done, in order. Recorded anew with `DAA_RECORD_TRANSCRIPTS=1 pytest tests/daa_consensus`; read the
difference before it is committed. Nodes are A, B, C, ...; a block is named by its payload and view.

    nodes N [epoch R]      N validators of equal stake; an epoch lasts R rounds (100 if not said)
    WHO ready R            the window of round R ended at these nodes (`all` means everybody)
    WHO chooses [W]        answers AskPayload with an empty set (W tells sets apart)
    WHO judges ok|bad      answers Judge; nobody answers by itself
    WHO holds              answers AskDataHeld
    WHO executes R | certifies R | gives-up R        ExecSigned, ExecCertified, AbortDue
    deliver [WHO]          hand over every message to these nodes that is under way, till quiet
    drop [WHO]             lose every message to these nodes that is under way
    lose KIND | nothing    from here on every vote of this kind between nodes is lost
    wait N                 N deltas pass, step by step, with a Tick wherever one is due
    WHO crashes | restarts
    WHO also-proposes W TO       a traitor proposes a second set in its view, to some
    WHO also-votes KIND BLOCK TO a traitor's vote, to some
"""

import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pytest

from daa_consensus.bft import effects as do
from daa_consensus.bft import events as on
from daa_consensus.bft.messages import (
    AbortPayload,
    Block,
    EmptyPayload,
    ResultPayload,
    SetPayload,
)
from daa_consensus.bft.pacemaker import Timing
from daa_consensus.bft.safety import Record
from daa_consensus.bft.state import Simplex
from daa_consensus.committee import Committee, Domain
from daa_consensus.votes import Certificate, Kind, Signed, Statement
from daa_dag.ids import BlockId, NodeId
from tests.daa_consensus.bft.disk import Disk
from tests.daa_consensus.bft.simulation import (
    CHAIN,
    DELTA_NS,
    GENESIS,
    committee_of,
    empty_set,
    node_id,
    result_of,
    sign,
)

Asked = TypeVar("Asked", do.Judge, do.AskDataHeld, do.AskPayload)
FOLDER = Path(__file__).parents[2] / "transcripts"
SCRIPTS = sorted(FOLDER.glob("simplex_*.txt"))
RECORD = os.environ.get("DAA_RECORD_TRANSCRIPTS") == "1"


# Who leads views 0 to 15 of the first epoch: what is told does not hang on how leaders are drawn.
LEADERS = "BCADBADCABCDCDBA"


@dataclass(frozen=True)
class Cast(Committee):
    """Four whose leaders are given."""

    def leader(self, domain: Domain, view: int) -> NodeId:
        if domain.epoch:
            return super().leader(domain, view)
        return node_id(ord(LEADERS[view]) - ord("A"))


@dataclass
class Host:
    name: str
    me: NodeId
    machine: Simplex
    disk: Disk
    up: bool = True
    asked: list[do.Judge | do.AskDataHeld | do.AskPayload] = field(default_factory=list)


@dataclass
class Message:
    sender: str
    to: str
    event: on.Event


class Stage:
    """Runs the commands of one script and writes down what came of each."""

    def __init__(self) -> None:
        self.hosts: dict[str, Host] = {}
        self.now_ns = 0
        self.epoch_rounds = 100
        self.losing = "nothing"
        self.flight: list[Message] = []
        self.lines: list[str] = []
        self.labels: dict[BlockId, str] = {GENESIS.id: "genesis"}
        self.blocks: dict[str, Block] = {"genesis": GENESIS}

    def command(self, line: str) -> None:
        words = line.split()
        match words:
            case ["nodes", count, *rest]:
                self.epoch_rounds = int(rest[1]) if rest else 100
                self._start(int(count))
            case ["deliver"] | ["deliver", _]:
                self._deliver(self._who(words[1]) if len(words) > 1 else list(self.hosts))
            case ["drop"] | ["drop", _]:
                lost = self._who(words[1]) if len(words) > 1 else list(self.hosts)
                self.flight = [m for m in self.flight if m.to not in lost]
            case ["lose", kind]:
                self.losing = kind
            case ["wait", count]:
                self._wait(int(count) * DELTA_NS)
            case [who, "also-proposes", weight, to]:
                self._also_propose(who, int(weight), self._who(to))
            case [who, "also-votes", kind, block, to]:
                self._also_vote(who, Kind(kind), block, self._who(to))
            case [who, verb, *rest]:
                for name in self._who(who):
                    self._tell(self.hosts[name], verb, rest)
            case _:
                raise AssertionError(f"no such command: {line}")

    def _who(self, word: str) -> list[str]:
        return list(self.hosts) if word == "all" else list(word)

    def _start(self, count: int) -> None:
        assert count == 4, "leaders are given for four"
        self.committee = Cast(committee_of([1] * count).validators)
        for index in range(count):
            name = chr(65 + index)
            disk = Disk(self.committee, self.epoch_rounds, [GENESIS])
            machine = self._boot(node_id(index), disk)
            self.hosts[name] = Host(name, node_id(index), machine, disk)
        domain = self.hosts["A"].machine.known.domain
        order = [self._name(self.committee.leader(domain, view)) for view in range(1, 9)]
        self.lines.append(f"  leaders of views 1 to 8: {' '.join(order)}")
        for host in self.hosts.values():
            self._step(host, on.Tick())

    def _boot(self, me: NodeId, disk: Disk) -> Simplex:
        timing = Timing(DELTA_NS)
        return Simplex(CHAIN, self.committee, me, timing, self.epoch_rounds, disk.restored())

    def _name(self, who: NodeId) -> str:
        return chr(who[0])

    def _tell(self, host: Host, verb: str, rest: list[str]) -> None:
        number = int(rest[0]) if rest and rest[0].isdigit() else 0
        match verb:
            case "ready":
                self._step(host, on.RoundReady(number))
            case "chooses":
                for ask in self._answered(host, do.AskPayload):
                    chosen = empty_set(ask.round, number)
                    self._step(host, on.PayloadChosen(ask.view, chosen))
            case "judges":
                for judge in self._answered(host, do.Judge):
                    verdict = on.Judged(judge.block.id, rest == ["ok"], "judged bad")
                    self._step(host, verdict)
            case "holds":
                for data in self._answered(host, do.AskDataHeld):
                    self._step(host, on.DataHeld(data.block.id))
            case "executes":
                host.disk.executed = number
                self._step(host, on.ExecSigned(number))
            case "certifies":
                decided = next(b for b in self.blocks.values() if _is_set(b, number))
                result = result_of(decided)
                event = on.ExecCertified(number, result.vertex_id, result.result_root)
                self._step(host, event)
            case "gives-up":
                self._step(host, on.AbortDue(number))
            case "crashes":
                host.up = False
                self.flight = [m for m in self.flight if m.to != host.name]
            case "restarts":
                host.up, host.asked = True, []
                host.machine = self._boot(host.me, host.disk)
                self._step(host, on.Tick())
            case _:
                raise AssertionError(f"no such verb: {verb}")

    def _answered(self, host: Host, kind: type[Asked]) -> list[Asked]:
        found = [ask for ask in host.asked if isinstance(ask, kind)]
        host.asked = [ask for ask in host.asked if not isinstance(ask, kind)]
        return found

    def _deliver(self, to: list[str]) -> None:
        while True:
            ready = [m for m in self.flight if m.to in to]
            if not ready:
                return
            self.flight = [m for m in self.flight if m.to not in to]
            for message in ready:
                if self.hosts[message.to].up:
                    self._step(self.hosts[message.to], message.event)

    def _wait(self, span_ns: int) -> None:
        end_ns = self.now_ns + span_ns
        while True:
            due = [
                (host.machine.deadline_ns, name)
                for name, host in self.hosts.items()
                if host.up and host.machine.deadline_ns is not None
            ]
            moments = [(at_ns, name) for at_ns, name in due if at_ns is not None]
            if not moments or min(moments)[0] > end_ns:
                break
            self.now_ns, name = min(moments)
            self._step(self.hosts[name], on.Tick())
        self.now_ns = end_ns

    def _step(self, host: Host, event: on.Event) -> None:
        for effect in host.machine.step(self.now_ns, event):
            text = self._carry_out(host, effect)
            if text:
                self.lines.append(f"  {host.name}: {text}")

    def _carry_out(self, host: Host, effect: do.Effect) -> str:
        match effect:
            case do.SignAndSend(statement, block):
                return self._sign(host, statement, block)
            case do.Resend(messages, block):
                for signed in messages:
                    self._send(host, _arrival(signed, block))
                at = host.machine.known.position
                self._send(host, on.PeerPosition(host.me, at.epoch, at.view, at.finalized_view))
                said = ", ".join(self._statement(m.statement) for m in messages)
                return f"sends again: {said or 'only where it stands'}"
            case do.TryAgain():
                return ""
            case do.AskPayload(view, parent, round_):
                host.asked.append(effect)
                return f"asks for the set of round {round_} on {self._block(parent)} in view {view}"
            case do.Judge(block):
                host.asked.append(effect)
                return f"asks for judgement of {self._block(block)}"
            case do.AskDataHeld(block):
                host.asked.append(effect)
                return f"asks for the data of {self._block(block)}"
            case do.Keep(certificate, block):
                host.disk.kept.append((certificate, block))
                return f"keeps the {_certificate(certificate)} {self._value(certificate)}"
            case do.Finalized(blocks, certificate, trailing):
                host.disk.chain += blocks
                host.disk.proof = (certificate, trailing)
                rest = f", proved by {self._block(trailing[-1])}" if trailing else ""
                return f"final: {', '.join(self._block(b) for b in blocks)}{rest}"
            case do.EnteredView(epoch, view, why):
                return f"enters view {view} of epoch {epoch}: {why}"
            case do.GaveUp(view, reason):
                return f"gave up view {view}: {reason}"
            case do.Accuse(evidence):
                return f"accuses {self._name(evidence.offender)}: {evidence.offence}"
            case _:
                return self._ask(host, effect)

    def _ask(self, host: Host, effect: do.Effect) -> str:
        match effect:
            case do.FetchBlock(block_id, holders):
                for other in self.hosts.values():
                    known = other.machine.known.block(block_id)
                    stored = next((b for b in other.disk.chain if b.id == block_id), known)
                    if other.me in holders and other.up and stored and other is not host:
                        self.flight.append(Message(other.name, host.name, on.BlockArrived(stored)))
                names = "".join(self._name(h) for h in dict.fromkeys(holders))
                return f"fetches {self.labels.get(block_id, 'an unknown block')} from {names}"
            case do.FetchCertificates(peer, epoch, first_view, last_view):
                name = self._name(peer)
                known_there = self.hosts[name].machine.known
                for certificate in known_there.certificates(epoch, first_view, last_view):
                    event = on.CertificateArrived(certificate, None)
                    self.flight.append(Message(name, host.name, event))
                return f"asks {name} for certificates of views {first_view} to {last_view}"
            case do.Offer(peer, certificates):
                name = self._name(peer)
                for certificate, block in certificates:
                    event = on.CertificateArrived(certificate, block)
                    self.flight.append(Message(host.name, name, event))
                said = [f"{_certificate(c)} {self._value(c)}" for c, _ in certificates]
                return f"offers {name}: {', '.join(said)}"
            case _:
                raise AssertionError(effect)

    def _sign(self, host: Host, statement: Statement, block: Block | None) -> str:
        signed, slot = sign(statement, host.me), (statement.domain.epoch, statement.view)
        record, value = host.disk.record.at(slot), statement.value
        named = BlockId(value) if isinstance(value, bytes) else None
        host.disk.record = Record(
            *slot,
            named if statement.kind == Kind.PROPOSAL else record.proposed,
            named if statement.kind == Kind.NOTARIZE else record.notarized,
            statement.kind == Kind.NULLIFY or record.nullified,
            named if statement.kind == Kind.FINALIZE else record.finalized,
        )
        host.disk.log.append((signed, block))
        if block is not None:
            self._block(block)
        self._send(host, _arrival(signed, block))
        self.flight.append(Message(host.name, host.name, _arrival(signed, block)))
        return f"signs {self._statement(statement)}"

    def _send(self, host: Host, event: on.Event) -> None:
        if isinstance(event, on.VoteArrived) and event.signed.statement.kind == self.losing:
            return
        self.flight += [Message(host.name, to, event) for to in self.hosts if to != host.name]

    def _also_propose(self, who: str, weight: int, to: list[str]) -> None:
        honest = next(b for s, b in self.hosts[who].disk.log[::-1] if b is not None)
        payload = empty_set(honest.height, weight)
        block = Block(CHAIN, honest.epoch, honest.view, honest.height, honest.parent_id,
                      honest.parent_view, payload)  # fmt: skip
        self._block(block)
        domain = self.hosts[who].machine.known.domain
        statement = Statement(domain, Kind.PROPOSAL, block.view, block.height, block.id)
        event = on.ProposalArrived(sign(statement, self.hosts[who].me), block)
        self.flight += [Message(who, name, event) for name in to]

    def _also_vote(self, who: str, kind: Kind, label: str, to: list[str]) -> None:
        domain = self.hosts[who].machine.known.domain
        if kind == Kind.NULLIFY:
            statement = Statement(domain, kind, int(label), 0, None)
        else:
            block = self.blocks[label]
            statement = Statement(domain, kind, block.view, block.height, block.id)
        event = on.VoteArrived(sign(statement, self.hosts[who].me))
        self.flight += [Message(who, name, event) for name in to]

    def _block(self, block: Block) -> str:
        if block.id not in self.labels:
            match block.payload:
                case SetPayload(round=round_):
                    label = f"set{round_}@{block.view}"
                case ResultPayload(round=round_):
                    label = f"result{round_}@{block.view}"
                case AbortPayload(round=round_):
                    label = f"abort{round_}@{block.view}"
                case EmptyPayload():
                    label = f"empty@{block.view}"
                case _:
                    raise AssertionError(block)
            while label in self.blocks:
                label += "'"
            self.labels[block.id] = label
            self.blocks[label] = block
        return self.labels[block.id]

    def _value(self, certificate: Certificate) -> str:
        value = certificate.statement.value
        if isinstance(value, bytes):
            return f"of {self.labels[BlockId(value)]}"
        return f"of view {certificate.statement.view}"

    def _statement(self, statement: Statement) -> str:
        if isinstance(statement.value, bytes):
            return f"{statement.kind} {self.labels[BlockId(statement.value)]}"
        return f"{statement.kind} {statement.view}"


def _arrival(signed: Signed, block: Block | None) -> on.Event:
    if signed.statement.kind == Kind.PROPOSAL:
        assert block is not None
        return on.ProposalArrived(signed, block)
    return on.VoteArrived(signed)


def _certificate(certificate: Certificate) -> str:
    names = {Kind.NOTARIZE: "notarization", Kind.NULLIFY: "nullification"}
    return names.get(certificate.statement.kind, "finalization")


def _is_set(block: Block, round_: int) -> bool:
    return isinstance(block.payload, SetPayload) and block.payload.round == round_


def play(script: str) -> str:
    """The script with what its commands lead to."""
    stage = Stage()
    for line in script.splitlines():
        if line.startswith("  "):
            continue
        stage.lines.append(line)
        if line and not line.startswith("#"):
            stage.command(line)
    return "\n".join(stage.lines) + "\n"


@pytest.mark.parametrize("path", SCRIPTS, ids=lambda path: path.stem)
def test_the_machines_do_what_the_transcript_says(path: Path) -> None:
    script = path.read_text()
    played = play(script)
    if RECORD:
        path.write_text(played)
    assert played == path.read_text()


def test_there_are_transcripts() -> None:
    assert len(SCRIPTS) >= 8
