"""What an operator's program may have a node do: drain, pause, resume, approve of a request."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, StringConstraints

from daa_dag.ids import DIGEST_BYTES
from daa_node.api.answers import Approved, Drained, Paused
from daa_node.api.replies import told
from daa_node.api.routes import Asked, Route
from daa_node.api.tokens import Right
from daa_node.wire.http_messages import Reply

Command = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


class Nothing(BaseModel):
    """`{}`: a command that needs no more than its name."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Approval(BaseModel):
    """Which request is approved of."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    id: Annotated[str, StringConstraints(pattern=rf"^[0-9a-f]{{{2 * DIGEST_BYTES}}}$")]


@dataclass(frozen=True, slots=True)
class Commands:
    """What does them; each takes what the control socket's command of its name takes."""

    drain: Command
    pause: Command
    resume: Command
    approve: Command


def command_routes(commands: Commands) -> tuple[Route, ...]:
    """Of one node."""
    bare = (
        ("drain", commands.drain, Drained, "Finish the round, and stop."),
        ("pause", commands.pause, Paused, "Finish the inner steps under way, and train no more."),
        ("resume", commands.resume, Paused, "Train again, from the next round on."),
    )

    async def approve(asked: Asked) -> Reply:
        return told(await commands.approve({"id": asked.body_as(Approval).id}))

    return (
        *(
            Route(
                "POST",
                f"/v1/{name}",
                Right.ADMIN,
                _doing(command),
                takes=Nothing,
                tells=tells,
                meaning=meaning,
            )
            for name, command, tells, meaning in bare
        ),
        Route(
            "POST",
            "/v1/membership/approve",
            Right.ADMIN,
            approve,
            takes=Approval,
            tells=Approved,
            meaning="Agree to a request about who votes.",
        ),
    )


def _doing(command: Command) -> Callable[[Asked], Awaitable[Reply]]:
    async def answer(_: Asked) -> Reply:
        return told(await command({}))

    return answer
