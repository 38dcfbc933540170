"""The demo with both pages: as the README starts it, up to their addresses, and until Ctrl-C."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from urllib.request import Request, urlopen

from daa_node.cli.free_ports import free_ports
from tests.browser.chromium import chromium

ROOT = Path(__file__).parents[2]
GLANCE = ROOT / "dashboard/test/glance.js"
GLANCE_S_MAX = 300


def test_the_demo_tells_where_its_pages_are_and_serves_them_until_ctrl_c(tmp_path: Path) -> None:
    [port] = free_ports(1)
    arguments = f"--browser --dashboard --browser-port {port} --rounds 1 --nodes 1"
    # -o: the virtual environment is this one, set up already
    demo = subprocess.Popen(
        ["make", "-o", ".venv/.ready", "demo", f"BIN={Path(sys.executable).parent}"]
        + [f"DEMO_ARGS={arguments} --dir {tmp_path / 'd'}"],
        cwd=ROOT,
        env={k: v for k, v in os.environ.items() if not k.startswith("MAKE")},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        # whoever runs tests in the background has it ignored
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    assert demo.stdout is not None
    told: list[str] = []
    try:
        for line in demo.stdout:
            told.append(line)
            if "stays open until Ctrl-C" in line:
                break
        address = f"http://127.0.0.1:{port}/"
        assert f"open {address} in a browser of this machine\n" in told
        with urlopen(address, timeout=60) as answer:
            assert b"<html" in answer.read()
        with urlopen(f"{address}gateway.json", timeout=60) as answer:
            assert json.load(answer)["height"] == 1
        (watched,) = [line.split()[-1] for line in told if line.startswith("watch it in a browser")]
        dashboard, _, token = watched.partition("#token=")
        with urlopen(dashboard, timeout=60) as answer:
            assert b"dashboard/index-" in answer.read()
        glanced = subprocess.run(
            ["node", str(GLANCE), watched, chromium()],
            capture_output=True,
            text=True,
            timeout=GLANCE_S_MAX,
        )
        assert glanced.returncode == 0, glanced.stderr
        assert json.loads(glanced.stdout) == {
            "link": "Live",
            "now": "The job is done",
            "contributed": "This node",
            "checkpoints": ["1", "0"],
            "complaints": [],
        }
        asked = Request(f"{dashboard}v1/status", headers={"Authorization": f"Bearer {token}"})
        with urlopen(asked, timeout=60) as answer:
            assert json.load(answer)["api"]["url"] == dashboard
    finally:
        os.killpg(demo.pid, signal.SIGINT)  # as a terminal does
        told += demo.stdout.readlines()
        demo.wait(60)  # make was interrupted too, and says so by its exit code
    assert "verified: 2 vertices" in "".join(told)
