"""Limits whose settings and day a test changes, over a store in memory."""

from typing import cast

from daa_node.errors import StorageFailed
from daa_node.network.config import NetworkConfig
from daa_node.network.link_limits import DAY_NS, LinkLimits
from daa_node.observability.events import DATA_BUDGET, Event, EventLog
from daa_node.seams import BlobStore


class Records:
    """What LinkLimits uses of a store."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.are_full = False

    async def get_record(self, kind: str, name: str) -> bytes | None:
        return self.held.get(f"{kind}/{name}")

    async def put_record(self, kind: str, name: str, payload: bytes, durable: bool = True) -> None:
        if self.are_full:
            raise StorageFailed("no space left on device")
        self.held[f"{kind}/{name}"] = payload


class Link:
    """Limits whose settings and day a test changes."""

    def __init__(self, records: Records | None = None, **settings: float) -> None:
        self.settings = NetworkConfig(**settings)
        self.day = 20_000
        self.told: list[Event] = []
        self.records = records or Records()
        self.limits = LinkLimits(
            lambda: self.settings,
            lambda: self.day * DAY_NS + 5,
            cast(BlobStore, self.records),
            EventLog(lambda: 0, self.told.append),
        )

    @property
    def budgets_told(self) -> list[str]:
        return [event["budget"] for event in self.told if event["name"] == DATA_BUDGET]
