"""What `--help` of each command ends with: one line that a person could type.

They stand here together and not at the commands, so that they read as one story: of alice, who
begins a network, and of carol, who joins it. A test has the parser take each of them.
"""

from collections.abc import Iterator, Mapping

import typer

EXAMPLES: Mapping[str, str] = {
    "init": "daa-node init --dir carol --join node.example:4001 --chain CHAIN_ID --role edge",
    "id": "daa-node id --record --dir alice > alice.record",
    "genesis create": "daa-node genesis create job.yaml --validator alice.record "
    "--validator bob.record",
    "genesis show": "daa-node genesis show --file genesis.json",
    "genesis digest": "daa-node genesis digest corpus.txt.gz",
    "config show": "daa-node config show --origin --dir alice",
    "run": "daa-node run --dir carol --join node.example:4001",
    "demo": "daa-node demo --nodes 4 --rounds 5 --dir demo-data/mine",
    "invite": "daa-node invite --uses 2 --expires 12h --dir alice",
    "join": "daa-node join INVITE --dir finn",
    "sample": 'daa-node sample --prompt "ROMEO: " --tokens 200 --dir alice',
    "status": "daa-node status --dir alice",
    "top": "daa-node top --dir alice",
    "peers": "daa-node peers --json --dir alice",
    "rounds": "daa-node rounds --since 7d --dir alice",
    "contributions": "daa-node contributions --csv --dir alice > contributions.csv",
    "logs": "daa-node logs --follow -n 20 --dir alice",
    "dashboard": "daa-node dashboard --dir alice",
    "doctor": "daa-node doctor --dir alice",
    "pause": "daa-node pause --dir bob",
    "resume": "daa-node resume --dir bob",
    "drain": "daa-node drain --dir bob",
    "validators": "daa-node validators --dir alice",
    "validators propose": "daa-node validators propose join --stake 2 --dir carol",
    "validators approve": "daa-node validators approve ID --dir alice",
    "validators consent": "daa-node validators consent NODE_ID --dir new > consent.json",
    "trainers": "daa-node trainers --dir alice",
    "trainers vouch": "daa-node trainers vouch NODE_ID --dir alice",
    "trainers retire": "daa-node trainers retire NODE_ID --dir alice",
    "trainers enroll": "daa-node trainers enroll --dir finn",
    "service install": "daa-node service install --user --dir alice",
    "service remove": "daa-node service remove --user",
    "checkpoint list": "daa-node checkpoint list --dir alice",
    "checkpoint show": "daa-node checkpoint show tip --dir alice",
    "checkpoint verify": "daa-node checkpoint verify --trust 5b0e91 --dir alice",
    "checkpoint export": "daa-node checkpoint export tip --out model.safetensors --dir alice",
    "checkpoint log": "daa-node checkpoint log --graph -n 10 --dir alice",
    "checkpoint tag": "daa-node checkpoint tag best 40 --dir alice",
    "checkpoint tags": "daa-node checkpoint tags --dir alice",
    "checkpoint diff": "daa-node checkpoint diff best tip --dir alice",
    "checkpoint fork": "daa-node checkpoint fork best --validator erin.record --dir alice",
    "checkpoint import": "daa-node checkpoint import /mnt/backup/alice --dir alice",
}


def show_examples(app: typer.Typer) -> None:
    """Have the help of each command of `app` end with its example."""
    for path, info in _commands(app, ()):
        example = EXAMPLES.get(" ".join(path))
        if example is not None:
            info.epilog = f"\b\nExample:\n  {example}"


def _commands(
    app: typer.Typer, above: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], typer.models.CommandInfo | typer.models.TyperInfo]]:
    """(its words, what makes it) of each command below `app`, and of each group."""
    for command in app.registered_commands:
        assert command.callback is not None
        yield (*above, command.name or command.callback.__name__.replace("_", "-")), command
    for group in app.registered_groups:
        assert group.typer_instance is not None
        words = above if not isinstance(group.name, str) else (*above, group.name)
        yield words, group
        yield from _commands(group.typer_instance, words)
