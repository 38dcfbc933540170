"""When what is final gets onto the disk: a round's checkpoint after a while, a page at once."""

from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from daa_consensus.bft.messages import Block
from daa_consensus.votes import Certificate
from daa_node.agreement.kept import Kept
from daa_node.agreement.outcomes import Resolution
from daa_node.checkpoints.publish import Page
from simnet.heap.consensus_life import at_once

if TYPE_CHECKING:
    from simnet.heap.consensus_host import Host

PUBLISH_DELTAS = 2  # a resolved round's checkpoint is written within so many


class Publisher:
    """One life's."""

    def __init__(self, host: "Host", kept: Kept, delta_ns: int) -> None:
        self._host = host
        self._kept = kept
        self._within_ns = PUBLISH_DELTAS * delta_ns
        self._unpublished: deque[Resolution] = deque()

    def publish(self, resolution: Resolution) -> None:
        """Write the round's checkpoint after a while; rounds in their order."""
        self._unpublished.append(resolution)
        self._host.later(self._host.chance.randrange(self._within_ns), self._publish_next)

    def publish_page(self, page: Page) -> None:
        """Write what a page of others' brought, checked."""
        self._write(page.blocks, page.certificate)

    def _publish_next(self) -> None:
        resolution = self._unpublished.popleft()
        self._write((*resolution.blocks, *resolution.trailing), resolution.certificate)

    def _write(self, blocks: Iterable[Block], certificate: Certificate) -> None:
        archive = self._host.disk.archive
        archive.publish(blocks, certificate)
        at_once(self._kept.forget((archive.tip.epoch, archive.tip.view)))
