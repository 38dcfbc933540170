"""A port that is taken, a disk, limits and devices that do not do: each is named."""

import errno
import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from daa_node.adapters import host_looks
from daa_node.adapters.asked_process import probe_device
from daa_node.adapters.host_looks import DiskPace, ThreadRoom
from daa_node.cli.doctor.registry import look
from daa_node.cli.doctor.scene import open_scene
from daa_node.errors import UserError
from daa_node.rounds.config import EndConfig
from daa_node.training.config import TrainerConfig
from tests.daa_node.cli.doctor.scenes import CHECKS, ROOMY, made_node, only


@pytest.mark.parametrize(
    "settings",
    [
        "network: {listen: [/ip4/127.0.0.1/tcp/%d]}\n",
        'network: {listen: []}\napi: {listen: "127.0.0.1:%d"}\n',
        'network: {listen: []}\ngateway: {enabled: true, listen: "127.0.0.1:%d"}\n',
    ],
)
async def test_a_port_in_use_is_named_with_who_has_it(tmp_path: Path, settings: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        root = made_node(tmp_path / "n", settings % port)
        host = replace(ROOMY, port_holder=lambda port: f"pid 17 (nginx:{port})")
        level, cause, _ = await only("port", root, host)
        assert level == "error"
        assert f"cannot listen on /ip4/127.0.0.1/tcp/{port}" in cause
        assert f"pid 17 (nginx:{port}) listens there" in cause
        hidden = await only("port", root)
        assert "that this user may not see" in hidden[1]
    assert (await only("port", made_node(tmp_path / "free")))[0] == "ok"


@pytest.mark.skipif(sys.platform != "linux", reason="no other system tells it by /proc")
def test_who_listens_on_a_port_is_told_by_pid_and_name() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        found = host_looks.port_holder(port)
        assert found is not None
        assert found.startswith(f"pid {os.getpid()} (")
    assert host_looks.port_holder(0) is None


@pytest.mark.parametrize(
    ("free_bytes", "level", "words"),
    [
        (0, "error", "there is no room"),
        (10**9, "warning", "until its end this job takes"),
        (10**13, "ok", "are free"),
    ],
)
async def test_a_disk_without_room_is_told_before_it_is_full(
    tmp_path: Path, free_bytes: int, level: str, words: str
) -> None:
    host = replace(ROOMY, free_bytes=lambda path: free_bytes)
    scene = open_scene(made_node(tmp_path / "n"), None, host)
    assert scene.made is not None
    job = scene.made.job.model_copy(update={"end": EndConfig(rounds=100_000)})
    longer = replace(scene.made, body=scene.made.body.model_copy(update={"job": job}))
    (found,) = await look(CHECKS["disk room"], replace(scene, made=longer))
    assert (str(found.level), words in found.cause) == (level, True)


async def test_a_bound_that_no_network_fits_into_is_named(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n", "storage: {bytes_max: 1048576}\n")
    level, cause, _ = await only("disk room", root)
    assert (level, "storage.bytes_max is" in cause) == ("error", True)


@pytest.mark.parametrize(
    ("pace", "level", "words"),
    [
        (DiskPace(0.002, 1e9), "ok", "2.0 ms"),
        (DiskPace(60.0, 1e9), "warning", "agreement.delta_ms"),
        (DiskPace(0.002, 1.0), "warning", "longer than a round's window"),
    ],
)
async def test_a_slow_disk_is_measured_against_what_the_network_waits_for(
    tmp_path: Path, pace: DiskPace, level: str, words: str
) -> None:
    host = replace(ROOMY, disk_pace=lambda path: pace)
    found = await only("disk speed", made_node(tmp_path / "n"), host)
    assert (found[0], words in found[1]) == (level, True)
    assert ("a faster disk" in found[2]) is (level == "warning")


async def test_a_disk_that_takes_nothing_is_an_error(tmp_path: Path) -> None:
    def full(_path: Path) -> DiskPace:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    level, cause, advice = await only(
        "disk speed", made_node(tmp_path / "n"), replace(ROOMY, disk_pace=full)
    )
    assert (level, "No space left on device" in cause) == ("error", True)
    assert "Make room" in advice


def test_the_measured_file_is_gone_afterwards(tmp_path: Path) -> None:
    (tmp_path / f".doctor-{os.getpid()}").touch()  # of one that was killed, where pids come again
    pace = host_looks.disk_pace(tmp_path)
    assert pace.sync_s > 0
    assert pace.bytes_per_s > 0
    assert list(tmp_path.iterdir()) == []


async def test_too_few_open_files_are_told_as_run_tells_it(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n")
    level, cause, _ = await only("open files", root, replace(ROOMY, files_max=lambda: 256))
    assert level == "error"
    assert "open files and sockets, and 256 are allowed" in cause


async def test_too_few_threads_are_told_with_what_bounds_them(tmp_path: Path) -> None:
    root = made_node(tmp_path / "n")
    narrow = replace(ROOMY, thread_room=lambda: ThreadRoom(2, "pids.max 50, 48 are there"))
    level, cause, _ = await only("threads", root, narrow)
    assert (level, "pids.max 50" in cause) == ("error", True)
    blind = replace(ROOMY, thread_room=lambda: None)
    assert (await only("threads", root, blind))[0] == "unmeasured"


def test_of_this_host_the_limit_of_threads_is_told_in_words() -> None:
    room = host_looks.thread_room()
    assert room is None or str(room.left) not in ("", room.limit)


async def test_a_host_without_torch_matters_only_to_a_node_that_is_to_train(
    tmp_path: Path,
) -> None:
    bare = replace(ROOMY, has_torch=lambda: False)
    level, cause, advice = await only("device", made_node(tmp_path / "n"), bare)
    assert (level, cause) == ("error", "no torch: this host can verify and vote, not train")
    assert 'pip install "daa-compute[train]"' in advice
    assert "trainer.contribute: false" in advice
    light = made_node(tmp_path / "light", "trainer: {contribute: false}\n")
    assert (await only("device", light, bare))[0] == "ok"


async def test_without_torch_the_device_is_an_error_and_torch_is_named(tmp_path: Path) -> None:
    def lacking(_config: TrainerConfig) -> str:
        raise UserError("the process for the model ended; it said: No module named 'torch'", 1)

    level, cause, advice = await only(
        "device", made_node(tmp_path / "n"), replace(ROOMY, device=lacking)
    )
    assert (level, "'torch'" in cause) == ("error", True)
    assert "Install torch" in advice


def test_a_process_of_its_own_names_torch_and_a_device_that_is_not_there() -> None:
    patient = TrainerConfig(device="cpu", start_timeout_s=300.0)
    assert "computes on cpu" in probe_device(patient)
    with pytest.raises(UserError, match=r"trainer.device is cuda:99, and torch finds only"):
        probe_device(patient.model_copy(update={"device": "cuda:99"}))
