"""A false executor: signs Exec of a root that it made up, and another one for every second node.

Met by the quorum that a result needs, by an abort where no result gets one, and by evidence: an
Exec against its certificate, or two Exec for one round.
"""

from collections.abc import Sequence
from dataclasses import replace

from daa_consensus.bft.messages import ResultPayload
from daa_consensus.votes import Kind
from daa_dag.ids import Digest, VertexId, tagged_digest
from daa_node.agreement.letters import Letter, Said
from simnet.adversaries.conduct import Conduct, Voice


class FalseExecutor(Conduct):
    """Its result is never what everybody computes."""

    def sends(self, voice: Voice, receiver: int, letter: Letter) -> Sequence[Letter | bytes]:
        match letter.body:
            case Said(signed) if signed.statement.kind is Kind.EXEC and receiver % 2:
                invented = invention(signed.statement.height, 1)
                words = replace(signed.statement, value=[invented.vertex_id, invented.result_root])
                return (Letter(letter.position, Said(voice.sign(words))),)
            case _:
                return (letter,)

    def result(self, voice: Voice, honest: ResultPayload) -> ResultPayload:
        return invention(honest.round, 0)


def invention(round_: int, which: int) -> ResultPayload:
    """A result that nobody came to."""
    vertex = VertexId(tagged_digest("invented vertex", [round_, which]))
    return ResultPayload(round_, vertex, Digest(tagged_digest("invented result", [round_, which])))
