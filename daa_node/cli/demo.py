"""`daa-node demo`: start a cluster, watch it train, stop it, have a stranger verify the chain."""

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

from daa_node.adapters.site_directory import SITE, read_site
from daa_node.cli import report
from daa_node.cli.cluster import Cluster, Daemon, prepare
from daa_node.cli.dashboard import check_built, open_in_browser
from daa_node.cli.data_directory import DataDirectory
from daa_node.cli.demo_view import DemoView, merged_rounds, put_loss_curve, sent_per_node
from daa_node.errors import UserError
from daa_node.training.torch_there import need_torch
from daa_node.wire.page_files import Site

POLL_S = 0.5
DEMOS_DIRECTORY = Path("demo-data")


@dataclass(frozen=True, slots=True)
class Pages:
    """What of it may be seen in a browser: the volunteers' page, at its port, and the dashboard."""

    volunteers_port: int | None = None
    dashboard: bool = False

    @property
    def are_any(self) -> bool:
        return self.volunteers_port is not None or self.dashboard


def run_demo(
    nodes: int,
    rounds: int | None,
    root: Path | None,
    seed: int | None,
    pages: Pages,
    as_json: bool,
) -> None:
    """Raises UserError for whatever went wrong, after every daemon has ended."""
    need_torch("the demo, which trains a model,")
    started_s = time.monotonic()
    if pages.volunteers_port is not None:
        check_page(SITE, pages.volunteers_port)
    if pages.dashboard:
        check_built("--dashboard")
    cluster = prepare(root or _next_directory(), nodes, rounds, seed)
    say = report.note if as_json else report.put
    say(f"{len(cluster.genesis.body.validators)} daemons in {cluster.root}")
    stream = sys.stderr if as_json else sys.stdout
    with _interruptible(cluster):
        try:
            cluster.start(pages.volunteers_port, pages.dashboard)
            view, has_opened = DemoView(cluster, stream), False
            with view.open():
                while not all(daemon.done for daemon in cluster.daemons):
                    has_opened = _watch(cluster, view, stream.isatty(), has_opened)
                    time.sleep(POLL_S)
                view.finish()
                if pages.are_any:
                    _stay(cluster, view)
            codes = cluster.stop()
        finally:
            cluster.kill()
    say("verifying the whole chain from genesis in another process")
    verified = _verify(cluster.daemons[0].directory)
    wall_s = time.monotonic() - started_s
    answer = _answer(cluster, codes, wall_s)
    if as_json:
        report.put_json({**answer, "verify": verified})
    else:
        _put_summary(answer, verified)
    _judge(answer, verified)


def check_page(site: Path, port: int) -> None:
    """Before anything is made. Raises UserError if the page is not there, or its port is taken."""
    try:
        version = Site(read_site(site)).version
    except OSError as fault:
        raise UserError(f"--browser: the page cannot be read: {fault}") from None
    if version is None:
        raise UserError(
            "--browser: there is no page for volunteers of this version: install it with "
            '`pip install "daa-compute[gateway]"` (in a source tree: `make page`, with Node.js)'
        )
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError as fault:
        raise UserError(
            f"--browser: the page cannot have port {port} ({os.strerror(fault.errno or 0)}): "
            "choose another one with --browser-port"
        ) from None


def _watch(cluster: Cluster, view: DemoView, opens: bool, has_opened: bool) -> bool:
    """Ask everybody and show it; whether the dashboard has been opened in a browser."""
    cluster.poll()
    view.show()
    if cluster.dashboard is None or has_opened:
        return has_opened
    if opens:
        open_in_browser(DataDirectory(cluster.daemons[0].directory), cluster.dashboard)
    return True


def _stay(cluster: Cluster, view: DemoView) -> None:
    """The job is done: until Ctrl-C, whoever has a page open can go on."""
    cluster.news.append("the job is done; the page stays open until Ctrl-C")
    with suppress(KeyboardInterrupt):
        while True:
            cluster.poll()
            view.show()
            time.sleep(POLL_S)


def _answer(cluster: Cluster, codes: list[int], wall_s: float) -> dict[str, Any]:
    lines = merged_rounds(cluster.daemons)
    initial = next((line["loss_nats"] for line in lines if line["height"] == 0), None)
    finished = [line for line in lines if line["height"] > 0]
    last = cluster.daemons[0].status or {}
    return {
        "nodes": [_node(daemon, code) for daemon, code in zip(cluster.daemons, codes, strict=True)],
        "rounds": [
            {
                "height": line["height"],
                "vertex_id": line["vertex_id"],
                "loss_nats": line["loss_nats"],
                "certified_by": line["certified_by"],
                "contributors": line["contributors"],
                "bytes_sent_per_node": sent_per_node(line["height"], cluster.daemons),
                "wall_s": line["wall_s"],
            }
            for line in finished
        ],
        "final": {key: last.get(key) for key in ("height", "vertex_id", "model_root", "loss_nats")},
        "loss_nats_initial": initial,
        "page": cluster.page,
        "wall_s": round(wall_s, 2),
    }


def _node(daemon: Daemon, code: int) -> dict[str, Any]:
    last = daemon.status or {}
    return {
        "node_id": daemon.node_id,
        "dir": str(daemon.directory.resolve()),
        "model_root": last.get("model_root"),
        "pid": daemon.process.pid,
        "exit_code": code,
        "restarts": daemon.restarts,  # after it fell in the middle of the job
        "anon_rss_bytes": last.get("anon_rss_bytes"),  # of the daemon, late in the job
    }


def _put_summary(answer: dict[str, Any], verified: dict[str, Any]) -> None:
    losses = [(line["height"], line["loss_nats"]) for line in answer["rounds"]]
    if answer["loss_nats_initial"] is not None:
        losses.insert(0, (0, answer["loss_nats_initial"]))
    report.put("\nheld-out loss, nats a byte, by height of the certified checkpoint")
    put_loss_curve(losses)
    if verified["ok"]:
        report.put(
            f"\nverified: {verified['vertices']} vertices, {verified['certificates']} certificates,"
            f" {report.size(verified['bytes_read'])} read, no problem"
        )
    report.put(f"model {answer['final']['model_root']} on all {len(answer['nodes'])} nodes")
    directory = answer["nodes"][0]["dir"]
    report.put(f"look closer: daa-node checkpoint list --dir {shlex.quote(directory)}")
    report.put(f"done in {answer['wall_s']:.0f} s")


def _judge(answer: dict[str, Any], verified: dict[str, Any]) -> None:
    for node in answer["nodes"]:
        if node["exit_code"] != 0:
            raise UserError(
                f"the daemon in {node['dir']} ended with exit code {node['exit_code']}; "
                f"see {node['dir']}/daemon.log",
                exit_code=1,
            )
    roots = {node["model_root"] for node in answer["nodes"]}
    if len(roots) != 1:
        raise UserError(f"the nodes ended on different models: {sorted(map(str, roots))}", 1)
    if not verified["ok"]:
        first = verified["problems"][0] if verified["problems"] else {}
        raise UserError(
            f"the chain does not verify: {first.get('what')} at {first.get('where')}", exit_code=1
        )


def _verify(directory: Path) -> dict[str, Any]:
    """What `checkpoint verify` says in a process of its own. Raises UserError if it dies."""
    done = subprocess.run(
        [sys.executable, "-m", "daa_node", "checkpoint", "verify", "--json"]
        + ["--dir", str(directory)],
        capture_output=True,
        text=True,
        check=False,
    )
    try:
        return dict(json.loads(done.stdout))
    except ValueError:
        raise UserError(
            f"the verifier failed: {done.stderr.strip()[-2000:]}", exit_code=1
        ) from None


@contextmanager
def _interruptible(cluster: Cluster) -> Iterator[None]:
    """Ctrl-C and SIGTERM end every daemon before they end us."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        report.note(
            "\nstopped: every daemon has ended; "
            f"`daa-node demo --dir {shlex.quote(str(cluster.root))}` goes on"
        )
        raise
    finally:
        signal.signal(signal.SIGTERM, before)


def _next_directory() -> Path:
    """demo-data/1, or the next number that is free."""
    taken = [int(p.name) for p in DEMOS_DIRECTORY.glob("*") if p.name.isdigit()]
    return DEMOS_DIRECTORY / str(max(taken, default=0) + 1)
