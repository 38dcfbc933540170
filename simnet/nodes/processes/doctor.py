"""`simnet doctor`: which links real processes can have here, tried out, and what would help."""

import os
from dataclasses import asdict, dataclass
from typing import Any

from simnet.nodes.processes.backends import Backend, Probe, backends, try_everything

SCHEMA_VERSION = 1


@dataclass(frozen=True, slots=True)
class Findings:
    """What was tried, and which backend follows from it."""

    probes: tuple[Probe, ...]
    backends: tuple[Backend, ...]  # best first
    cores: int

    @property
    def backend(self) -> Backend | None:
        """The one that a run uses."""
        return next((backend for backend in self.backends if backend.ok), None)

    def as_json(self) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "backend": None if self.backend is None else self.backend.name,
            "backends": [asdict(backend) for backend in self.backends],
            "probes": [asdict(probe) for probe in self.probes],
            "cores": self.cores,
        }

    def as_text(self) -> str:
        used = self.backend
        lines = [
            "no backend works: real processes cannot be run here"
            if used is None
            else f"real processes run over {used.name}: {used.what}"
        ]
        for backend in self.backends:
            lines.append(f"  {backend.name:6} {'yes' if backend.ok else 'no '}  {backend.why}")
        lines.append(f"tried, on {self.cores} cores:")
        for probe in self.probes:
            lines.append(f"  {probe.name:16} {'yes' if probe.ok else 'no '}  {probe.detail}")
            if not probe.ok:
                lines.append(f"  {'':16}      remedy: {probe.remedy}")
        return "\n".join(lines)


def examine() -> Findings:
    """Try everything; leaves nothing behind."""
    probes = try_everything()
    return Findings(tuple(probes.values()), tuple(backends(probes)), os.cpu_count() or 1)
