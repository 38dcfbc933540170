"""A false executor: signs Exec of a root that it made up, and another one for every second node.

Met by the quorum that a result needs, by an abort where no result gets one, and by evidence: an
Exec against its certificate, or two Exec for one round.
"""

from collections.abc import Sequence
from dataclasses import replace

from daa_consensus.votes import Kind
from daa_dag.ids import tagged_digest
from daa_node.agreement.messages import Message, Stated
from simnet.world.adversaries.behaviour import Behaviour, Voice


class FalseExecutor(Behaviour):
    """Its result is never what everybody computes."""

    def sends(self, voice: Voice, receiver: int, message: Message) -> Sequence[Message | bytes]:
        match message.body:
            case Stated(signed) if signed.statement.kind is Kind.EXEC:
                which = [signed.statement.height, receiver % 2]
                value = [tagged_digest(f"invented {what}", which) for what in ("vertex", "result")]
                lie = voice.sign(replace(signed.statement, value=value))
                return (replace(message, body=Stated(lie)),)
            case _:
                return (message,)
