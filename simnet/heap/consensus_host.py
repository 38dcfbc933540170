"""One simulated validator across its lives: its disk, its clock, and what is done to it.

DOWN --start: see consensus_boot--> UP --pause--> PAUSED --resume: letters waited--> UP
  ^                                  |
  +-- stop, or power fails in a write+
"""

from collections import deque
from collections.abc import Callable, Container
from functools import partial
from typing import cast

from daa_consensus.bft.events import Tick
from daa_consensus.votes import Signed
from daa_dag.ids import NodeId
from daa_node.agreement.letters import Letter
from daa_node.errors import StorageFailed
from daa_node.identity.keys import NodeKeys
from daa_node.identity.validators import MemberKeys
from daa_node.network.outbox import OUTBOX_LETTERS_MAX
from simnet.adversaries.conduct import Conduct, Pen, Stand, Voice
from simnet.determinism import DOWN, Streams
from simnet.heap.consensus_boot import DISK_LIMITS, Make, Office, boot
from simnet.heap.consensus_contact import World
from simnet.heap.consensus_letters import Keys, signature_of, stranger_of
from simnet.heap.consensus_life import Life
from simnet.heap.disk import Disk, PowerCut
from simnet.links import MILLION

TORN_WRITES_MAX = 3  # a power cut in the middle of a write hits one of the next few


class Host:
    """A node's machine, or one of the several that a liar runs under its key."""

    def __init__(
        self,
        world: World,
        make: Make,
        place: tuple[int, int],
        keys: Keys,
        conduct: Conduct | None,
        streams: Streams,
    ) -> None:
        """`place` is the node's number and the body's."""
        self._world, self._make = world, make
        self.node, self.body = place
        self.keys, self.me = keys, keys.node_id
        self.conduct = conduct
        self.chance = streams.random(f"host {self.node} {self.body}")
        disk_chance = streams.random(f"disk {self.node} {self.body}")
        self.disk = Disk(disk_chance, world.network.genesis, world.network.epoch_rounds)
        self.skew_ns, self.drift_ppm = 0, 0
        self.life: Life | None = None
        self.office: Office | None = None  # of the same life
        self.lives = 0
        self.begun = False  # the keys know that they have signed, whatever becomes of the log
        self.impaired = False  # the disk has lost something
        self._why_down: list[object] = []
        self._paused = 0
        self._waiting: deque[tuple[NodeId, bytes]] = deque(maxlen=OUTBOX_LETTERS_MAX)
        self._deferred: list[Callable[[], None]] = []
        self._alarm_ns = 0

    def __repr__(self) -> str:
        return f"node {self.node}" if not self.body else f"node {self.node} (body {self.body})"

    @property
    def voice(self) -> Voice:
        """What this host's conduct may use."""
        assert self.life is not None
        machine = self.life.machine

        def stand() -> Stand:
            known = machine.known
            tip, is_open = known.chain.tip, known.chain.tip_open
            return Stand(known.domain, known.position.view, tip.height, is_open)

        bodies = 1 if self.conduct is None else self.conduct.bodies
        return Voice(
            self.node,
            self.body,
            bodies,
            len(self._world.network.committee.validators),
            stand,
            lambda words: Signed(words, self.me, signature_of(self.me)),
            self.chance,
            partial(_pen, self.keys),
        )

    # Lives

    def start(self) -> None:
        """Read the disk, and go on from there."""
        self.lives += 1
        self._alarm_ns = 0
        try:
            self.life, self.office, begin = boot(self._world, self, self._make)
            begin()
        except PowerCut:
            self._fall()
        except StorageFailed:
            self._world.watch.sometimes["could not start on a full disk"] += 1
            self._fall()

    def stop(self, cut: bool) -> None:
        """The process is gone; `cut`: the power too, and with it what was not synced."""
        if self.life is not None:
            self._world.note(DOWN, node=self.node)
        self.life = self.office = None
        self.lives += 1
        self._waiting.clear()
        self._deferred.clear()
        if cut:
            self.disk.power_cut()

    def down_for(self, reason: object) -> None:
        """Be down until `up_for` the same reason, and every other one."""
        self._why_down.append(reason)
        if self.life is not None:
            self.stop(cut=True)

    def up_for(self, reason: object) -> None:
        if reason in self._why_down:
            self._why_down.remove(reason)
            if not self._why_down and self.life is None:
                self.start()

    @property
    def is_wanted_up(self) -> bool:
        return not self._why_down

    @property
    def is_paused(self) -> bool:
        return self._paused > 0

    def tear(self, reason: object) -> None:
        """Power fails in the middle of one of the next writes, or soon without one."""
        self.disk.cut_in = self.chance.randint(1, TORN_WRITES_MAX)
        life, delta_ns = self.lives, self._world.network.delta_ns
        self._why_down.append(reason)

        def fall() -> None:
            if self.lives == life and reason in self._why_down:
                self.stop(cut=True)

        self._world.at(self._world.now_ns + 2 * delta_ns, fall)

    def pause(self) -> None:
        self._paused += 1

    def resume(self) -> None:
        """What came meanwhile comes now."""
        self._paused -= 1
        if self._paused:
            return
        life = self.lives
        deferred, self._deferred = self._deferred, []
        for work in deferred:
            if self.lives == life:  # else one of them ran into a power cut
                self.does(work)
        while self._waiting and self.life is not None:
            self.receive(*self._waiting.popleft())

    # Time

    def local_ns(self) -> int:
        """By the node's own clock, which may be skewed and drift."""
        now_ns = self._world.now_ns
        return now_ns + now_ns * self.drift_ppm // MILLION + self.skew_ns

    def later(self, delay_ns: int, work: Callable[[], None]) -> None:
        """Do `work` if this life still lasts then."""
        life = self.lives

        def run() -> None:
            if self.lives == life:
                self.does(work)

        self._world.at(self._world.now_ns + delay_ns, run)

    def alarm(self, local_ns: int) -> None:
        """Step with a Tick at that moment of the node's own clock."""
        now_ns, wait_ns = self._world.now_ns, max(local_ns - self.local_ns(), 0)
        at_ns = now_ns + wait_ns * MILLION // (MILLION + self.drift_ppm) + 1
        if now_ns < self._alarm_ns <= at_ns:
            return
        self._alarm_ns = at_ns

        def tick() -> None:
            if self.life is not None:
                self.life.tell(Tick())

        self.later(at_ns - now_ns, tick)

    # Events

    def decoded(self, payload: bytes) -> Letter:
        """What a letter says, read by this host's limits. Raises PeerFault."""
        office = self.office
        limits = DISK_LIMITS if office is None else office.petitions.validators.limits
        return self._world.desk.decoded(payload, limits)

    def receive(self, sender: NodeId, payload: bytes) -> None:
        """A letter has arrived."""
        if self.life is None:
            return
        if self._paused:
            self._waiting.append((sender, payload))
            return
        try:
            self.life.receive(sender, payload)
        except PowerCut:
            self._fall()

    def greet(self, names: Container[NodeId]) -> None:
        """The streams to those of these whom it writes to are open anew."""
        life = self.life
        if life is not None:
            self.does(lambda: life.greet_members(names))

    def does(self, work: Callable[[], None]) -> None:
        """Something happens here, or as soon as the node is no longer paused."""
        if self._paused:
            self._deferred.append(work)
            return
        try:
            work()
        except PowerCut:
            self._fall()

    def _fall(self) -> None:
        def restart() -> None:
            if self.life is None and self.is_wanted_up:
                self.start()
                self._world.greet((self.node,))

        self.stop(cut=True)
        self._world.at(self._world.now_ns + self._world.network.delta_ns, restart)


def _pen(own: Keys, number: int) -> Pen:
    """The key itself, or a stranger that its holder makes up."""
    keys = stranger_of(own, number) if number else own
    # Half of the strangers are one peer: nothing keeps it from agreeing to be many nodes'.
    peer = stranger_of(own, 2) if number and number % 2 == 0 else keys
    member = MemberKeys.of(cast(NodeKeys, keys), cast(NodeKeys, peer))
    name = keys.node_id
    return Pen(name, member, lambda words: Signed(words, name, signature_of(name)))
