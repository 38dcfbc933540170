"""Which internet is taken, and what a person is told when it cannot do what is asked of it."""

import re

import pytest

from daa_node.errors import UserError
from simnet.nodes.processes.backends import Backend, Findings, Probe, choose, chosen, examine

PROXY = Backend("proxy", True, "needs nothing", "a relay")


def found(tun_works: bool) -> Findings:
    probes = tuple(
        Probe(name, tun_works, "works" if tun_works else f"no {name} here", f"allow {name}")
        for name in ("namespaces", "user_namespaces")
    )
    tun = Backend("tun", tun_works, "", "a switch", boxes=True)
    return Findings((*probes, Probe("real_time", False, "not allowed", "be root")), (tun, PROXY), 2)


def test_the_best_is_taken_unless_another_one_is_named() -> None:
    assert chosen(found(True), None, boxes=True).name == "tun"
    assert chosen(found(True), "proxy", boxes=False).name == "proxy"
    assert chosen(found(False), None, boxes=False).name == "proxy"
    with pytest.raises(UserError, match="SIMNET_BACKEND=tun cannot be had here; proxy can"):
        chosen(found(False), "tun", boxes=False)


def test_without_packets_boxes_are_refused_and_what_is_missing_is_named() -> None:
    lacking = "no namespaces here (allow namespaces); or user_namespaces: no user_namespaces here"
    with pytest.raises(UserError, match=re.escape(lacking)) as refused:
        chosen(found(False), None, boxes=True)
    assert "real_time" not in str(refused.value)  # boxes do without
    with pytest.raises(UserError, match="unset SIMNET_BACKEND"):
        chosen(found(True), "proxy", boxes=True)


def test_the_doctor_names_what_a_run_uses_and_a_remedy_for_all_else() -> None:
    findings = examine()
    assert findings.as_json()["backend"] == choose().name == findings.possible[0].name
    assert all(probe.remedy for probe in findings.probes)
    assert all(probe.name in findings.as_text() for probe in findings.probes)
