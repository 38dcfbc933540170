"""The settings of a running node over HTTP: what each is, and a change, shown before it is made."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from daa_node.api.answers import SettingsChanged, SettingsTold
from daa_node.api.handlers import SCHEMA_VERSION
from daa_node.api.replies import told
from daa_node.api.routes import Asked, Route
from daa_node.api.tokens import Right
from daa_node.wire.http_messages import Reply

CHANGES_MAX = 16  # more than there are settings that may change
Key = Annotated[str, StringConstraints(max_length=64)]  # it goes into the audit log as it came


class Change(BaseModel):
    """What is to be changed, and what it was thought of for."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    changes: dict[Key, int | float | None] = Field(min_length=1, max_length=CHANGES_MAX)
    digest: Annotated[str, StringConstraints(pattern="^[0-9a-f]{64}$")]
    confirm: bool = False


@dataclass(frozen=True, slots=True)
class Settings:
    """Of one node."""

    told: Callable[[], Awaitable[Mapping[str, Any]]]
    # (changes by key, digest of the settings they are for, whether to make them)
    change: Callable[[Mapping[str, int | float | None], str, bool], Awaitable[Mapping[str, Any]]]


def settings_routes(settings: Settings) -> tuple[Route, ...]:
    """To read takes the read token, to ask what a change would do the admin one, as to make it."""

    async def read(_: Asked) -> Reply:
        return told({"schema_version": SCHEMA_VERSION, **await settings.told()})

    async def change(asked: Asked) -> Reply:
        wanted = asked.body_as(Change)
        answer = await settings.change(wanted.changes, wanted.digest, wanted.confirm)
        return told({"schema_version": SCHEMA_VERSION, **answer})

    return (
        Route(
            "GET",
            "/v1/settings",
            Right.READ,
            read,
            tells=SettingsTold,
            meaning="Each setting, and its origin.",
        ),
        Route(
            "POST",
            "/v1/settings",
            Right.ADMIN,
            change,
            takes=Change,
            tells=SettingsChanged,
            meaning="What a change of settings comes to and, if it is confirmed, that change.",
        ),
    )
