"""What the first rank of a site says of the others, whose end is its own."""

import subprocess
import sys
from pathlib import Path
from textwrap import dedent

import pytest

from daa_node.training.site.followers import BROKEN

# In place of the other ranks: each plays the part of its number.
RANKS = """
import os, socket, sys, time
from daa_node.training.messages import pack

line = socket.socket(fileno=int(sys.argv[sys.argv.index("--fd") + 1]))


def say(**said):
    line.sendall(pack(said))


def stay():
    while line.recv(1):
        pass


PARTS[int(line.recv(1)) - 1]()
"""
FIRST = """
import os, sys
from daa_node.training.site import followers

followers.RANK_MODULE = "acted"
board = os.memfd_create("board")
ranks = [followers.Follower(rank, 1 + COUNT, board) for rank in range(1, 1 + COUNT)]
for rank, follower in enumerate(ranks, 1):
    follower._line.sendall(b"%d" % rank)
"""


def ended(directory: Path, first: str, *parts: str) -> tuple[int, str]:
    """How a first rank ends that does this beside others that do that, and what it says."""
    acts = [f"def part_{rank}():\n    {part}\n" for rank, part in enumerate(parts, 1)]
    listed = f"PARTS = [{', '.join(f'part_{rank}' for rank in range(1, 1 + len(parts)))}]"
    (directory / "acted.py").write_text("\n".join((*acts, listed, RANKS)))
    program = f"COUNT = {len(parts)}\n{FIRST}\n{dedent(first)}"
    path = f"{directory}:{':'.join(filter(None, sys.path))}"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": path},
        stderr=subprocess.PIPE,
        text=True,
        timeout=30,
    )
    return done.returncode, done.stderr


TELLS_FOR_EVER = """
import time
while True:
    ranks[0].tell({"verb": "step"})
    time.sleep(0.01)
"""


def test_who_gives_no_answer_in_time_is_named(tmp_path: Path) -> None:
    code, said = ended(tmp_path, "ranks[1].answer(0.5)", "stay()", "stay()")
    assert code == BROKEN
    assert said.startswith("the site is broken: rank 2 of 3, pid ")
    assert said.endswith(", gave no answer within 0.5 s\n")


def test_one_that_has_hung_up_is_told_things_until_it_is_known_how_it_ended(
    tmp_path: Path,
) -> None:
    part = "line.close(); time.sleep(0.5); os._exit(3)"
    code, said = ended(tmp_path, TELLS_FOR_EVER, part)
    assert code == BROKEN
    assert said.startswith("the site is broken: rank 1 of 2, pid ")
    assert said.endswith(", ended: exit code 3\n")


def test_one_that_ends_with_words_of_ours_unread_is_known_to_have_ended(tmp_path: Path) -> None:
    first = """
    ranks[0].tell({"verb": "step"})
    ranks[0].answer(60)
    """
    code, said = ended(tmp_path, first, "time.sleep(0.5); os._exit(3)")
    assert code == BROKEN
    assert said.endswith(", ended: exit code 3\n")


def test_who_ended_is_named_before_those_that_miss_it(tmp_path: Path) -> None:
    parts = "say(failed='where is 2?'); stay()", "time.sleep(0.3); os._exit(3)"
    code, said = ended(tmp_path, "ranks[0].answer(60)", *parts)
    assert code == BROKEN
    assert "rank 2 of 3, pid " in said
    assert said.endswith(", ended: exit code 3\n")


def test_what_fails_is_told_in_its_own_words_where_nobody_ended(tmp_path: Path) -> None:
    part = "say(failed='KeyError: 7'); stay()"
    code, said = ended(tmp_path, "ranks[0].answer(60)", part)
    assert code == BROKEN
    assert said.endswith(", failed: KeyError: 7\n")


@pytest.mark.parametrize("before", ["", "say(ready=1); "])
def test_one_that_refuses_may_end_and_one_that_did_not_may_not(tmp_path: Path, before: str) -> None:
    first = """
    import time
    answer = ranks[0].answer(60)
    while "refused" not in answer:
        answer = ranks[0].answer(60)
    ranks[0]._process.wait()
    time.sleep(0.2)
    os._exit(0 if answer == {"refused": "no"} else 1)
    """
    assert ended(tmp_path, first, f"{before}say(refused='no')") == (0, "")
    code, said = ended(tmp_path, first, f"{before}os._exit(0)")
    assert code == BROKEN
    assert said.endswith(", ended: exit code 0\n")
