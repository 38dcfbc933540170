"""Which parts a daemon is put together from: a test plants a broken one, nothing else changes."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from daa_consensus.bft.messages import Block
from daa_consensus.bft.state import Simplex
from daa_node import genesis, wiring
from daa_node.agreement.inbound import Inbound
from daa_node.agreement.member_list import MemberList
from daa_node.agreement.recovery import RecoveryStore, restored
from daa_node.agreement.signer import Signer
from daa_node.identity.validators import Validators
from simnet.nodes.virtual import machine as machines
from simnet.nodes.virtual.disk_seams import MemoryJournal, MemoryStore

honestly_restored = restored


@dataclass(frozen=True, slots=True)
class Make:
    """Of all daemons of a run, liars' too."""

    journal: type[MemoryJournal] = MemoryJournal
    store: type[MemoryStore] = MemoryStore
    signer: Callable[..., Signer] = Signer
    kept: Callable[..., RecoveryStore] = RecoveryStore
    restored: Callable[..., Awaitable[tuple[Any, Block | None]]] = honestly_restored
    machine: Callable[..., Simplex] = Simplex
    inbound: Callable[[Validators], Inbound] = Inbound
    history: type[Validators] = Validators
    roll: Callable[..., MemberList] = MemberList

    def plant(self, patch: pytest.MonkeyPatch) -> None:
        """Until the patch is undone."""
        patch.setattr(machines, "MemoryJournal", self.journal)
        patch.setattr(machines, "MemoryStore", self.store)
        patch.setattr(wiring, "Signer", self.signer)
        patch.setattr(wiring, "RecoveryStore", self.kept)
        patch.setattr(wiring, "restored", self.restored)
        patch.setattr(wiring, "Simplex", self.machine)
        patch.setattr(wiring, "Inbound", self.inbound)
        patch.setattr(genesis, "Validators", self.history)
        patch.setattr(wiring, "MemberList", self.roll)
