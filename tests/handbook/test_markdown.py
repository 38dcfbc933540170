"""What is found in a page, and what is not."""

import pytest

from handbook import markdown

PAGE = """\
# A title with `code` and [a link](x.md)

Words with [a link](other.md#part) and `[no](link.md)`, and `daa-node status --json`.

    daa-node status --dir alice   # a comment
    cp a b
    daa-node id --record --dir "my node" > my.record && simnet doctor

- A list, whose second line

  ```yaml
  # no heading
  role: edge
  ```

<!-- yaml: Prometheus -->
```yaml
scrape_configs: []
```

## Part two

```
daa-node top   what a program prints
```

## Part two
"""


def test_code_is_told_from_prose() -> None:
    page = markdown.read(PAGE)
    assert [(b.line, b.language, b.marker) for b in page.blocks] == [
        (5, markdown.INDENTED, None),
        (12, "yaml", None),
        (18, "yaml", "Prometheus"),
        (24, "", None),
    ]
    assert page.blocks[1].text == "# no heading\nrole: edge\n"
    assert list(page.links()) == [(1, "x.md"), (3, "other.md#part")]
    assert (3, "daa-node status --json") in list(page.spans())


def test_anchors_are_those_of_github() -> None:
    assert markdown.read(PAGE).anchors() == [
        "a-title-with-code-and-a-link",
        "part-two",
        "part-two-1",
    ]
    assert markdown.slug("6. Checkpoints") == "6-checkpoints"
    assert markdown.slug("What `join` does, and snake_case") == "what-join-does-and-snake_case"
    assert markdown.slug("One - two") == "one---two"


def test_commands_are_what_a_shell_would_start() -> None:
    assert list(markdown.read(PAGE).commands()) == [
        (5, ["daa-node", "status", "--dir", "alice"]),
        (7, ["daa-node", "id", "--record", "--dir", "my node"]),
        (7, ["simnet", "doctor"]),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "sudo -u daa /opt/daa/bin/daa-node status",
        "docker compose exec node1 daa-node status",
        "kubectl exec daa-node-$n -c prepare -- daa-node status > $n",
    ],
)
def test_what_starts_a_command_is_left_out(line: str) -> None:
    assert list(markdown.typed(line)) == [["daa-node", "status"]]


@pytest.mark.parametrize("line", ["daa-nodes run", "echo daa-node run", "docker run daa-compute"])
def test_other_programs_are_not_ours(line: str) -> None:
    assert list(markdown.typed(line)) == []
