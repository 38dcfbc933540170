"""The systemd unit: what it says, whether systemd takes it, and when none is written."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from daa_node.agreement.wan_bft import DRAIN_S_MAX, LINGER_S_MAX
from daa_node.cli.service import WRITTEN_BY, Service
from daa_node.config import SAFE_KEYS
from daa_node.errors import UserError
from tests.daa_node.cli.conftest import Command, make_node

ROOT = Path(__file__).parents[3]
PYTHON = shutil.which("python3") or "/usr/bin/python3"
USERS = pytest.mark.parametrize("user", ["games", None], ids=["system", "user"])
EXPOSURE_MAX = 3.0  # of 10; systemd calls up to 3 OK
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here"
)


@pytest.fixture
def node(command: Command, tmp_path: Path) -> Path:
    make_node(command, tmp_path / "n")
    return tmp_path / "n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where units of the user who runs the test go."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return tmp_path / "config/systemd/user"


def analyzed(tmp_path: Path, unit: str, *words: str) -> "subprocess.CompletedProcess[str]":
    file = tmp_path / "daa-node.service"
    file.write_text(unit)
    return subprocess.run(
        ["systemd-analyze", *words, str(file)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)},
    )


@needs_systemd
@USERS
@pytest.mark.parametrize("name", ["plain", 'a "dir" of $HOME, 100% \\ mine'])
def test_systemd_finds_nothing_wrong_with_it(tmp_path: Path, user: str | None, name: str) -> None:
    node = tmp_path / name
    node.mkdir()
    scope = ["--user"] if user is None else []
    done = analyzed(tmp_path, Service(node, PYTHON, user).unit(), *scope, "verify")
    # a host may have trouble of its own in units that this one comes after
    ours = [line for line in done.stderr.splitlines() if "daa-node.service" in line]
    assert (done.returncode, ours) == (0, [])


@needs_systemd
def test_systemd_calls_a_system_unit_well_shut(tmp_path: Path) -> None:
    unit = Service(tmp_path, PYTHON, "games").unit()
    done = analyzed(tmp_path, unit, "security", "--offline=true", "--no-pager")
    found = re.search(r"Overall exposure level[^:]*: ([0-9.]+)", done.stdout)
    assert found is not None, done.stdout + done.stderr
    assert float(found[1]) <= EXPOSURE_MAX


@USERS
def test_a_drain_reaches_the_daemon_alone_and_has_its_time(user: str | None) -> None:
    """Else systemd would stop the worker too, and the round with it."""
    lines = Service(Path("/srv/n"), PYTHON, user).unit().splitlines()
    assert {"KillMode=mixed", "Type=notify", "RestartPreventExitStatus=2"} <= set(lines)
    (stop_s,) = [int(line.split("=")[1]) for line in lines if line.startswith("TimeoutStopSec=")]
    assert stop_s >= DRAIN_S_MAX + LINGER_S_MAX + 30  # and a state is to be written


def test_the_page_for_operators_names_each_setting_that_may_change() -> None:
    page = (ROOT / "docs/operating.md").read_text()
    _, _, after = page.partition("SIGHUP takes over these settings.")
    listed = re.findall(r"^    ([a-z_.]+)$", after.partition("\n## ")[0], re.MULTILINE)
    assert tuple(listed) == SAFE_KEYS


def test_a_percent_sign_and_a_dollar_mean_nothing_to_systemd() -> None:
    unit = Service(Path("/srv/$HOME/100%"), PYTHON, "games").unit()
    (command,) = [line for line in unit.splitlines() if line.startswith("ExecStart=")]
    assert command.endswith('"--dir" "/srv/$$HOME/100%%"')
    assert 'ReadWritePaths="/srv/$HOME/100%%"' in unit.splitlines()


def test_a_line_break_in_a_path_adds_no_setting() -> None:
    with pytest.raises(UserError, match="no systemd unit can hold"):
        Service(Path("/srv/n\nUser=root"), PYTHON, "games").unit()


def test_print_writes_nothing(command: Command, node: Path, home: Path) -> None:
    done = command("service", "install", "--user", "--print", "--dir", node)
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(WRITTEN_BY)
    assert f'"--dir" "{node}"' in done.out
    assert not home.exists()


def test_it_is_written_again_over_itself_and_over_nothing_else(
    command: Command, node: Path, home: Path
) -> None:
    words = ("service", "install", "--user", "--name", "mine", "--dir", node)
    for _ in range(2):
        done = command(*words)
        assert done.code == 0
        assert "systemctl --user enable --now mine" in done.out
    unit = home / "mine.service"
    assert [path.name for path in home.iterdir()] == ["mine.service"]
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    done = command(*words)
    assert (done.code, "was not written by this command" in done.err) == (2, True)
    assert "/bin/true" in unit.read_text()


def test_the_unit_of_another_node_stays_until_that_node_is_gone(
    command: Command, node: Path, home: Path, tmp_path: Path
) -> None:
    words = ("service", "install", "--user", "--dir")
    assert command(*words, node).code == 0
    make_node(command, tmp_path / "other")
    done = command(*words, tmp_path / "other")
    assert (done.code, "unit of another node" in done.err, "--name" in done.err) == (2, True, True)
    assert f"WorkingDirectory={node}\n" in (home / "daa-node.service").read_text()
    node.rename(tmp_path / "moved")
    assert command(*words, tmp_path / "moved").code == 0
    assert f"WorkingDirectory={tmp_path}/moved\n" in (home / "daa-node.service").read_text()


def test_no_unit_takes_the_place_of_one_of_the_host(
    command: Command, node: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "lib/user").mkdir(parents=True)
    (tmp_path / "lib/user/ssh.service").touch()
    monkeypatch.setattr("daa_node.cli.service.OF_PACKAGES", (tmp_path / "lib",))
    done = command("service", "install", "--user", "--name", "ssh", "--dir", node)
    assert (done.code, "would take the place of" in done.err) == (2, True)
    assert not home.exists()
    assert command("service", "install", "--user", "--name", "mine", "--dir", node).code == 0


@pytest.mark.parametrize("name", ["n\\", "n ", "n\t"])
def test_a_path_whose_end_would_swallow_the_next_setting_is_refused(name: str) -> None:
    with pytest.raises(UserError, match="can hold: rename it"):
        Service(Path("/srv") / name, PYTHON, "games").unit()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--user", "--name", "-now"], "letters, digits"),
        (["--user", "--system"], "give one of them"),
        (["--user", "--name", "../sshd"], "letters, digits"),
    ],
)
def test_what_names_no_unit_is_refused(
    command: Command, node: Path, home: Path, words: list[str], said: str
) -> None:
    done = command("service", "install", *words, "--dir", node)
    assert (done.code, said in done.err) == (2, True)
    assert not home.exists()


def test_a_directory_without_a_node_has_no_service(command: Command, tmp_path: Path) -> None:
    done = command("service", "install", "--user", "--print", "--dir", tmp_path / "none")
    assert (done.code, done.out) == (2, "")
    assert "daa-node init" in done.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a directory away")
def test_a_system_unit_runs_as_the_owner_and_never_as_root(command: Command, node: Path) -> None:
    words = ("service", "install", "--system", "--print", "--dir", node)
    done = command(*words)
    assert (done.code, done.out) == (2, "")
    assert "belongs to root" in done.err
    os.chown(node, 4321, 4321)
    assert "\nUser=4321\n" in command(*words).out


def test_where_systemd_does_not_run_it_is_told_what_does_its_work(
    command: Command, node: Path, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ("service", "install", "--user", "--dir", node)
    monkeypatch.setattr("daa_node.cli.service.SYSTEMD_RUNS", tmp_path / "none")
    assert f"daa-node run --supervise --dir {node}" in command(*words).err
    monkeypatch.setattr("daa_node.cli.service.SYSTEMD_RUNS", tmp_path)
    assert command(*words).err == ""


def test_a_unit_of_ours_is_removed_once_it_starts_no_more(
    command: Command, node: Path, home: Path
) -> None:
    words = ("service", "remove", "--user", "--name", "mine")
    done = command(*words)
    assert (done.code, "there is no unit at" in done.err) == (2, True)
    assert command("service", "install", "--user", "--name", "mine", "--dir", node).code == 0
    unit, wants = home / "mine.service", home / "default.target.wants"
    wants.mkdir()
    (wants / "mine.service").symlink_to(unit)
    done = command(*words)
    assert (done.code, unit.exists()) == (2, True)
    assert "systemctl --user disable --now mine" in done.err
    (wants / "mine.service").unlink()
    done = command(*words)
    assert (done.code, unit.exists()) == (0, False)
    assert "systemctl --user daemon-reload" in done.out
    assert (node / "config.yaml").exists()
    unit.write_text("[Service]\nExecStart=/bin/true\n")
    done = command(*words)
    assert (done.code, unit.exists()) == (2, True)
    assert "was not written by this command" in done.err
