"""The file that `simnet report` writes: what draws it, what it tells, and nothing else."""

import base64
import hashlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from daa_node.errors import UserError
from simnet.checks.outcome import OUTCOME_FILE, SCHEMA_VERSION, TRACE_FILE
from simnet.results.report import LICENSES, SCRIPT, STYLE, Drawn, make_report, page_of
from simnet.results.run_story import story_of
from tests.simnet.results.kept_run import keep
from tests.simnet.results.test_sides import comparison

DRAWN = Drawn("draw($1, '$&')", "p { color: red }", "a license")


def told_in(page: str) -> dict[str, Any]:
    """What the page's own script would read."""
    (found,) = re.findall(r'<script type="application/json" id="story">(.*?)</script>', page)
    told: dict[str, Any] = json.loads(found, parse_constant=pytest.fail)  # JSON has no NaN
    return told


def test_the_page_has_the_whole_story_as_data(tmp_path: Path) -> None:
    story = story_of(keep(tmp_path / "run"))
    told = told_in(page_of(story, DRAWN))
    assert told == json.loads(json.dumps(story)) | {"licenses": "a license"}


def test_nothing_that_a_run_says_becomes_markup(tmp_path: Path) -> None:
    evil = "</script><script>alert(1)</script><!-- \u2028 \ud800 \u00e9 & '\""
    story = story_of(keep(tmp_path / "run")) | {"scenario": evil}
    page = page_of(story, DRAWN)
    assert told_in(page)["scenario"] == evil
    assert page.count("<script") == 2
    assert "<!--" not in page
    assert "alert(1)</title>" not in page
    assert "&#233;" in page
    assert page.encode()


def test_the_policy_names_the_script_and_the_style_that_stand_there_and_no_other(
    tmp_path: Path,
) -> None:
    page = page_of(story_of(keep(tmp_path / "run")), DRAWN)
    (policy,) = re.findall(r'http-equiv="Content-Security-Policy" content="(.*?)"', page)
    assert policy.startswith("default-src 'none'; ")
    for name, text in (("script", DRAWN.script), ("style", DRAWN.style)):
        assert f">{text}</{name}>" in page
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert f"{name}-src 'sha256-{digest}'" in policy


def test_the_page_of_a_comparison_is_that_of_its_first_run_with_all_sides(tmp_path: Path) -> None:
    page = tmp_path / "page"
    page.mkdir()
    for name in (SCRIPT, STYLE, LICENSES):
        (page / name).touch()
    alone = keep(tmp_path / "alone")
    assert told_in(make_report(alone, page=page))["sides"] is None
    both = tmp_path / "both"
    comparison(both)
    told = told_in(make_report(both, page=page))
    assert told["figures"]["seed"] == 3
    assert told["sides"]["names"] == ["adaptive", "naive"]
    assert told_in(make_report(alone, both / "2-false/seed-3", page))["sides"]["names"] == [
        "adaptive",
        "naive",
    ]
    with pytest.raises(UserError, match="holds a comparison, with its sides already"):
        make_report(both, alone, page)


def test_where_the_page_was_not_built_one_line_says_how(tmp_path: Path) -> None:
    folder = keep(tmp_path / "run")
    with pytest.raises(UserError) as fault:
        make_report(folder, page=tmp_path / "page")
    assert str(fault.value) == (
        "simnet report: its page is not built: run `make dashboard` in the source tree, with "
        "Node.js"
    )
    for name in (SCRIPT, STYLE, LICENSES):
        (tmp_path / "page").mkdir(exist_ok=True)
        (tmp_path / "page" / name).write_text(f"of {name}")
    assert "<script>of report.js</script>" in make_report(folder, page=tmp_path / "page")


def test_a_folder_without_a_run_is_told_before_a_page_that_was_not_built(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="make it with `simnet run SCENARIO --out"):
        make_report(tmp_path, page=tmp_path / "page")


def spoilt_outcome(folder: Path, **facts: Any) -> None:
    path = folder / OUTCOME_FILE
    told = json.loads(path.read_text())
    path.write_text(json.dumps(told | {"facts": told["facts"] | facts}))


def test_files_of_a_form_that_this_version_does_not_write_are_told_in_one_line(
    tmp_path: Path,
) -> None:
    page = tmp_path / "page"
    page.mkdir()
    for name in (SCRIPT, STYLE, LICENSES):
        (page / name).touch()
    no_names, no_fields, no_pairs = (keep(tmp_path / name) for name in ("one", "two", "three"))
    (no_names / OUTCOME_FILE).write_text(json.dumps({"schema_version": SCHEMA_VERSION}))
    (no_fields / TRACE_FILE).write_text('{"what": "view"}\n')
    spoilt_outcome(no_pairs, loss_over_time=[1.0, 2.0])
    for folder, beside in ((no_names, None), (no_fields, None), (no_pairs, keep(tmp_path / "x"))):
        with pytest.raises(UserError, match="another form than this simnet writes") as fault:
            make_report(folder, beside, page)
        assert str(folder) in str(fault.value)
        assert "\n" not in str(fault.value)


def test_a_browser_can_read_what_is_told_of_a_model_that_has_gone_to_pieces(
    tmp_path: Path,
) -> None:
    page = tmp_path / "page"
    page.mkdir()
    for name in (SCRIPT, STYLE, LICENSES):
        (page / name).touch()
    one, other = keep(tmp_path / "one"), keep(tmp_path / "other", adaptive=False)
    spoilt_outcome(one, loss_nats=2.0)
    spoilt_outcome(other, loss_nats=float("nan"))
    sides = told_in(make_report(one, other, page))["sides"]
    (loss,) = [figure for figure in sides["figures"] if figure["name"] == "loss_nats"]
    assert loss["sides"] == [[2.0, 2.0, 2.0], None]
    assert loss["over"] == [1.0, None]
