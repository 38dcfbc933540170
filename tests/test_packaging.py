"""What packaging/ promises: nobody is root, a node writes its own data and nothing else, and what
supervises it can tell whether it lives, and lets it drain.

Neither image nor cluster is made here: hadolint reads the Dockerfile, and the manifests are held
against the schemas of Kubernetes. What they start is run by hand below, without containers.
"""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from daa_node import config as node_config
from daa_node.agreement.wan_bft import DRAIN_S_MAX, LINGER_S_MAX
from daa_node.cli.local import read_genesis
from tests.daa_node.cli.test_examples import COMMANDS

ROOT = Path(__file__).parent.parent
PACKAGING = ROOT / "packaging"
DOCKERFILE = (PACKAGING / "Dockerfile").read_text()
COMPOSE = yaml.safe_load((PACKAGING / "compose.yaml").read_text())
MANIFESTS = list(yaml.safe_load_all((PACKAGING / "kubernetes.yaml").read_text()))
NODES = {name: it for name, it in COMPOSE["services"].items() if name.startswith("node")}
DRAINED_S_LEAST = DRAIN_S_MAX + LINGER_S_MAX + 30  # and a state is written
# the oldest and the newest whose schema is at hand
KUBERNETES = ("1.25", "1.37")
PROBES = ("startupProbe", "readinessProbe", "livenessProbe")


def stateful_set() -> Any:
    (found,) = [each for each in MANIFESTS if each["kind"] == "StatefulSet"]
    return found["spec"]


def pod() -> Any:
    return stateful_set()["template"]["spec"]


def containers() -> list[Any]:
    return [*pod()["initContainers"], *pod()["containers"]]


def check_typed(words: list[str]) -> None:
    """That `daa-node` takes them."""
    assert words[0] == "daa-node"
    COMMANDS[words[1]].make_context("daa-node", words[2:]).close()


def instructions(word: str) -> list[str]:
    return re.findall(rf"^{word} ((?:.*\\\n)*.*)", DOCKERFILE, re.MULTILINE)


def test_the_image_is_not_root_and_tells_its_health() -> None:
    user = instructions("USER")[-1]
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)  # a number: Kubernetes can see that it is not 0
    assert (
        user == f"{pod()['securityContext']['runAsUser']}:{pod()['securityContext']['runAsGroup']}"
    )
    (health,) = instructions("HEALTHCHECK")
    check_typed(yaml.safe_load(health.partition("CMD ")[2]))
    entry, words = yaml.safe_load(instructions("ENTRYPOINT")[0]), instructions("CMD")
    check_typed([*entry, *yaml.safe_load(words[0])])


def test_the_image_has_the_torch_that_is_tested_and_what_a_wheel_is_built_of() -> None:
    (torch,) = re.findall(r"^torch==\S+$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert f" {torch} " in DOCKERFILE
    lets_in = (PACKAGING / "Dockerfile.dockerignore").read_text().splitlines()
    project = (ROOT / "pyproject.toml").read_text()
    (packages,) = re.findall(r"^include = \[(.*)\]$", project, re.MULTILINE)
    wanted = [name.strip(' "*') for name in packages.split(",")]
    wanted += ["configs", "pyproject.toml", "setup.py", "constraints.txt", "README.md", "LICENSE"]
    assert lets_in[0] == "**"
    assert {f"!{name}" for name in wanted} <= set(lets_in)
    for copied in re.findall(r"packaging/\S+", "".join(instructions("COPY"))):
        assert os.access(ROOT / copied, os.X_OK)


def linted(dockerfile: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [Path(sys.executable).with_name("hadolint"), "--no-color", "-"],
        input=dockerfile,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )


def test_hadolint_finds_nothing_in_the_dockerfile() -> None:
    assert linted(DOCKERFILE).stdout == ""
    spoiled = DOCKERFILE.replace(" --no-install-recommends", "")
    assert "DL3015" in linted(spoiled).stdout


def test_the_image_is_built_for_the_processor_or_for_a_cuda() -> None:
    """And has the page, where the checkout has one; neither Node.js nor make is in its context."""
    assert instructions("ARG") == ["TORCH=cpu"]
    assert instructions("ARG")[0].partition("=")[0] in re.findall(r"whl/\$(\w+)", DOCKERFILE)
    lets_in = (PACKAGING / "Dockerfile.dockerignore").read_text().splitlines()
    for name in ("daa_compute_page", "pyproject.toml", "setup.py", "LICENSE"):
        assert f"!wasm_worker/{name}" in lets_in
        assert (ROOT / "wasm_worker" / name).exists()
    assert "wasm_worker/daa_compute_page/site" in DOCKERFILE


@pytest.mark.parametrize("version", KUBERNETES)
@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda manifest: str(manifest["kind"]))
def test_kubernetes_takes_each_manifest_and_no_misspelt_one(manifest: Any, version: str) -> None:
    assert kubernetes_validate.validate(manifest, version, strict=True) == version
    misspelt = {**manifest, "spec": {**manifest["spec"], "selectors": {}}}
    with pytest.raises(kubernetes_validate.ValidationError, match="selectors"):
        kubernetes_validate.validate(misspelt, version, strict=True)


def test_each_container_of_compose_is_shut() -> None:
    assert len(NODES) == 4
    for name, service in COMPOSE["services"].items():
        assert service["user"] not in ("", "0", "root", "0:0"), name
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert "no-new-privileges:true" in service["security_opt"], name
        assert {"mem_limit", "cpus", "tmpfs"} <= service.keys(), name


def test_each_node_of_compose_has_keys_of_its_own_and_time_to_drain() -> None:
    places = []
    for name, node in NODES.items():
        check_typed(node["healthcheck"]["test"][1:])
        check_typed(shlex.split(node["entrypoint"][2].partition("exec ")[2]))
        assert float(node["stop_grace_period"].removesuffix("s")) >= DRAINED_S_LEAST
        given = node["environment"]
        dialled = node_config.load("", "", {k: v for k, v in given.items() if k.startswith("DAA_")})
        assert dialled.value.network.announce == (f"/dns4/{name}/tcp/4001",)
        assert given["RECORD"] in COMPOSE["services"]["genesis"]["entrypoint"]
        places += [volume for volume in node["volumes"] if not volume.startswith("desk:")]
    assert len(set(places)) == len(NODES)
    assert not set(places) & set(COMPOSE["services"]["genesis"]["volumes"])


def test_each_container_of_kubernetes_is_shut() -> None:
    assert pod()["securityContext"]["runAsNonRoot"] is True
    assert pod()["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod()["automountServiceAccountToken"] is False
    for container in containers():
        shut = container["securityContext"]
        assert shut["allowPrivilegeEscalation"] is False
        assert shut["readOnlyRootFilesystem"] is True
        assert shut["capabilities"] == {"drop": ["ALL"]}
        for kind in ("requests", "limits"):
            assert {"cpu", "memory"} <= container["resources"][kind].keys()
        names = {volume["name"] for volume in pod()["volumes"]} | {"data"}
        assert {mount["name"] for mount in container["volumeMounts"]} <= names


def test_kubernetes_probes_a_node_and_lets_it_drain() -> None:
    (node,) = pod()["containers"]
    for probe in PROBES:
        check_typed(node[probe]["exec"]["command"])
    check_typed(["daa-node", *node["args"]])
    assert pod()["terminationGracePeriodSeconds"] >= DRAINED_S_LEAST


def test_pods_find_each_other_by_names_that_their_service_gives() -> None:
    (service,) = [each for each in MANIFESTS if each["kind"] == "Service"]
    labels = stateful_set()["template"]["metadata"]["labels"]
    assert service["spec"]["clusterIP"] == "None"
    assert service["spec"]["selector"].items() <= labels.items()
    assert stateful_set()["selector"]["matchLabels"].items() <= labels.items()
    assert stateful_set()["serviceName"] == service["metadata"]["name"]
    (announced,) = [
        each["value"] for each in containers()[-1]["env"] if each["name"].startswith("DAA_")
    ]
    named = announced.replace("$(POD_NAME)", "daa-node-0").replace("$(POD_NAMESPACE)", "default")
    found = node_config.load("", "", {"DAA_NETWORK__ANNOUNCE": named}).value.network.announce
    assert found == ("/dns4/daa-node-0.daa-node.default.svc.cluster.local/tcp/4001",)
    # kubectl knows no merge keys of YAML for certain
    assert "<<" not in (PACKAGING / "kubernetes.yaml").read_text()


@pytest.fixture
def tools(tmp_path: Path) -> dict[str, str]:
    """An environment with the `daa-node` of this tree."""
    tool = tmp_path / "bin" / "daa-node"
    tool.parent.mkdir()
    tool.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m daa_node "$@"\n')
    tool.chmod(0o755)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("DAA_")}
    return {**environment, "PATH": f"{tool.parent}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}


SPEAKS = """\
#!/bin/sh
# as much of daa-node as the scripts ask for
while [ $# -gt 1 ]; do case $1 in --dir|--out) last=$2;; init|genesis) does=$1;; esac; shift; done
last=${last:-$1}
case ${does:-id} in
  init) [ ! -e "$1" ] || exit 2; mkdir "$1"; echo 2 > "$1/VERSION";;
  genesis) [ ! -e "$last" ] || exit 2; echo made > "$last";;
  id) echo record;;
esac
"""


def test_a_container_that_was_killed_in_the_middle_goes_on(
    tmp_path: Path, tools: dict[str, str]
) -> None:
    (tmp_path / "bin" / "daa-node").write_text(SPEAKS)
    node, genesis, record = tmp_path / "node", tmp_path / "genesis.json", tmp_path / "1.record"
    node.mkdir()
    (node / "VERSION.part").touch()
    (tmp_path / "genesis.json.part").write_text("half")
    record.touch()
    made = subprocess.run([PACKAGING / "make_genesis.sh", "job", genesis, record], env=tools)
    assert (made.returncode, genesis.read_text()) == (0, "made\n")
    given = {"NODE": str(node), "GENESIS": str(genesis), "RECORD": str(record)}
    for _ in range(2):
        done = subprocess.run([PACKAGING / "prepare_node.sh"], env={**tools, **given}, timeout=60)
        assert done.returncode == 0
    assert (node / "genesis.json").read_text() == "made\n"
    assert record.read_text() == "record\n"
    assert not (node / "VERSION.part").exists()


def prepared(root: Path, tools: dict[str, str]) -> Iterator["subprocess.Popen[bytes]"]:
    """As in compose.yaml, with folders of `root` for volumes."""
    for name, node in NODES.items():
        (root / name).mkdir(exist_ok=True)
        given = {k: v.replace("/desk", str(root / "desk")) for k, v in node["environment"].items()}
        environment = {**tools, **given, "NODE": str(root / name / "node")}
        yield subprocess.Popen([PACKAGING / "prepare_node.sh"], env=environment)


@pytest.mark.long
def test_four_containers_come_to_one_genesis_and_keep_it(
    tmp_path: Path, tools: dict[str, str]
) -> None:
    (tmp_path / "desk").mkdir()
    entry = [
        word.replace("/desk", str(tmp_path / "desk"))
        for word in COMPOSE["services"]["genesis"]["entrypoint"]
    ]
    entry[:2] = [str(PACKAGING / entry[0]), str(ROOT / "configs/demo.yaml")]
    for _ in range(2):  # the second time nothing is left to do
        nodes = list(prepared(tmp_path, tools))
        subprocess.run(entry, env=tools, check=True, timeout=300)
        assert [node.wait(300) for node in nodes] == [0] * 4
        made = {(tmp_path / name / "node/genesis.json").read_bytes() for name in NODES}
        assert made == {(tmp_path / "desk/genesis.json").read_bytes()}
    addresses = read_genesis(tmp_path / "desk/genesis.json").addresses.values()
    assert {text.partition("/p2p/")[0] for (text,) in addresses} == {
        f"/dns4/{name}/tcp/4001" for name in NODES
    }
