"""This node's word for the protocol versions that its release speaks, brought into the chain.

Whoever has installed a release has agreed to what it speaks: nothing else is asked of an operator.
The network goes on to a version when a quorum has said so (see protocol_words).
"""

import trio

from daa_consensus.operations import Operation, Request, Speak
from daa_dag.ids import NodeId
from daa_node.agreement.signer import Signer
from daa_node.agreement.wan_bft import WanBft
from daa_node.identity.validators import Validators

# A word may be due whenever a round is over, and then after so long: who catches up closes many
# rounds a second, and what it says meanwhile is of epochs that are over for all others.
LOOKED_EVERY_S = 1.0
# Where rounds are as short, a word so late may miss the set of each epoch, so one that was missed
# is said sooner the next time, down to this: no set is there so soon after a round's begin.
LOOKED_EVERY_S_MIN = 1 / 16


class ProtocolWord:
    """One node's. A word is for the epoch that it is said in: one that no set took is said anew."""

    def __init__(
        self, me: NodeId, validators: Validators, signer: Signer, agreement: WanBft
    ) -> None:
        self._me = me
        self._validators = validators
        self._signer = signer
        self._agreement = agreement
        self._signed_in = -1  # the epoch of the newest word: one in each, whatever becomes of it
        self._pause_s = LOOKED_EVERY_S

    async def run(self) -> None:
        """Until cancelled."""
        outcomes = self._agreement.outcomes
        while True:
            await self.say()
            await outcomes.resolved(outcomes.resolved_round + 1)
            await trio.sleep(self._pause_s)

    async def say(self) -> None:
        """Tell all what this release speaks at most, unless the chain says so already."""
        now = self._validators.now
        request = Request(Speak(self._me, self._validators.speaks[-1]), now.epoch + 1)
        if self._signed_in == now.epoch or not now.admits(request):
            return
        if self._signed_in >= 0:  # no set took that one
            self._pause_s = max(self._pause_s / 2, LOOKED_EVERY_S_MIN)
        self._signed_in = now.epoch
        signed = await self._signer.sign(request.statement(self._validators.chain_id))
        self._agreement.ask(Operation(request, ((self._me, signed.signature),)))
