"""A node's directory that the test spoils, on a host that the test makes up."""

from pathlib import Path

from daa_node.adapters.host_looks import DiskPace, ThreadRoom
from daa_node.cli import identity
from daa_node.cli.doctor.findings import Finding
from daa_node.cli.doctor.registry import QUICK, SLOW, look
from daa_node.cli.doctor.scene import Host, open_scene
from daa_node.training.config import TrainerConfig
from tests.daa_node.network.neighbours import KEYS

GOLDEN = (Path(__file__).parents[3] / "golden" / "genesis.json").read_text()
CHECKS = {check.name: check for check in (*QUICK, *SLOW)}
LISTEN = "network: {listen: [/ip4/127.0.0.1/tcp/0]}\n"


def device(_config: TrainerConfig) -> str:
    return "torch computes on cpu"


ROOMY = Host(
    free_bytes=lambda path: 10**13,
    disk_pace=lambda path: DiskPace(0.001, 1e9),
    files_max=lambda: 10**6,
    thread_room=lambda: ThreadRoom(10**5, "a limit"),
    port_holder=lambda port: None,
    device=device,
)


def made_node(root: Path, settings: str = LISTEN, genesis: str | None = GOLDEN) -> Path:
    identity.create_node(root, settings, KEYS[4], genesis)
    return root


async def found_by(check: str, root: Path, host: Host = ROOMY) -> list[Finding]:
    return await look(CHECKS[check], open_scene(root, None, host))


async def only(check: str, root: Path, host: Host = ROOMY) -> tuple[str, str, str]:
    """Level, cause and advice of the one finding."""
    (finding,) = await found_by(check, root, host)
    assert finding.check == check
    assert bool(finding.advice) == (finding.level in ("warning", "error"))
    return str(finding.level), finding.cause, finding.advice
