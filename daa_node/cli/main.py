"""`daa-node`: every command of a node, its options, and the one door through which errors leave.

Commands import what they need when they run, so that `--help` stays fast. Exit codes: 0 done, 1 the
work failed, 2 usage or configuration.
"""

import sys
from pathlib import Path
from typing import Annotated

import typer

from daa_node import collector
from daa_node.cli import report
from daa_node.cli.dashboard_commands import dashboard_app
from daa_node.cli.examples import show_examples
from daa_node.cli.history_commands import history_app
from daa_node.cli.join_commands import join_app
from daa_node.cli.options import (
    HERE,
    ConfigFile,
    Directory,
    Json,
    ShowDashboard,
    Which,
    WithParent,
)
from daa_node.cli.order_commands import order_app
from daa_node.cli.past_commands import past_app
from daa_node.cli.service import service_app
from daa_node.cli.trainers import trainers_app
from daa_node.cli.watch_commands import watch_app
from daa_node.errors import NodeError, UserError

app = typer.Typer(
    name="daa-node",
    help="Train one model on machines that do not trust each other. A quorum agrees on each step "
    "and signs it.",
    epilog="To begin, run `demo`: it shows everything on this machine. To make a network, run "
    "`init` and `id --record` on each host, `genesis create` on one of them, and `run` on each. To "
    "join a network, run `join` with an invite. Every command has --help.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
genesis_app = typer.Typer(no_args_is_help=True, help="Make a network, or show what it is.")
checkpoint_app = typer.Typer(
    no_args_is_help=True, help="List, check, compare or export the chain of a node."
)
validators_app = typer.Typer(
    invoke_without_command=True, help="Show who votes and which changes wait, or ask for one."
)
config_app = typer.Typer(no_args_is_help=True, help="Show the settings of a node.")
app.add_typer(watch_app)
app.add_typer(join_app)
app.add_typer(past_app)
app.add_typer(dashboard_app)
app.add_typer(order_app)
app.add_typer(genesis_app, name="genesis")
checkpoint_app.add_typer(history_app)
app.add_typer(checkpoint_app, name="checkpoint")
app.add_typer(config_app, name="config")
app.add_typer(validators_app, name="validators")
app.add_typer(trainers_app, name="trainers")
app.add_typer(service_app, name="service")


def main() -> None:
    """The entry point. Raises SystemExit always."""
    try:
        if not __debug__:
            raise UserError("python -O removes the checks that keep this program honest: leave it")
        collector.spare_imports()
        app()
    except NodeError as error:
        print(report.plain(f"error: {error}"), file=sys.stderr)
        for line in getattr(error, "__notes__", ()):
            print(report.plain(line), file=sys.stderr)
        raise SystemExit(error.exit_code if isinstance(error, UserError) else 1) from None
    except KeyboardInterrupt:
        raise SystemExit(130) from None
    except BrokenPipeError:
        # the reader of our output has seen enough; keep the interpreter from saying so at exit
        sys.stdout = None
        raise SystemExit(1) from None
    finally:
        collector.as_usual()


@app.command()
def init(
    directory: Directory = HERE,
    role: Annotated[
        str,
        typer.Option(metavar="cloud|edge", help="cloud: always on. edge: slow, or away at times."),
    ] = "cloud",
    port: Annotated[
        int | None,
        typer.Option(metavar="P", min=1, max=65535, help="Where to listen. Without it: 4001."),
    ] = None,
    join: Annotated[
        str | None,
        typer.Option(
            metavar="WHAT",
            help="A network that runs already: its genesis file, or the address of one of its "
            "nodes, like node.example:4001.",
        ),
    ] = None,
    chain: Annotated[
        str | None,
        typer.Option(metavar="ID", help="The chain id of that network, from a person you trust."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a node: its identity and its settings.

    D/keys has the private keys (files of mode 0600). D/config.yaml has every setting with its
    meaning. With --join, D/genesis.json says what the network is; `daa-node id` on a host of the
    network shows the address and the chain id to give.
    """
    from daa_node.cli import local

    local.init(directory, local.Wanted(role, port, join, chain), as_json)


@app.command(name="id")
def show_id(
    directory: Directory = HERE,
    record: Annotated[
        bool, typer.Option("--record", help="Print the signed record, for `genesis create`.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Show who this node is, and how others join its network.

    With --record it prints the signed record instead: what `genesis create` makes a validator of.
    """
    from daa_node.cli import local

    local.show_id(directory, record, as_json)


@genesis_app.command()
def create(
    job: Annotated[Path, typer.Argument(metavar="JOB.yaml", help="What to train, and how.")],
    validator: Annotated[
        list[Path], typer.Option(metavar="RECORD", help="A validator's record; repeat for each.")
    ],
    trainer: Annotated[
        list[Path] | None,
        typer.Option(metavar="RECORD", help="The record of one that trains and does not vote."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Where to write it.")] = Path("genesis.json"),
    weights: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="First weights, a safetensors file. Without: by lot."),
    ] = None,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Make a network from a job and records.

    Its validators and trainers are the nodes of the records (`daa-node id --record`). Both train;
    validators also vote, and any number of trainers may come and go. Copy the file to every host,
    as D/genesis.json. A model of your own (`model: {kind: module}`) is built once for that, by the
    settings of --dir; nothing else needs that directory.
    """
    from daa_node.cli import local

    records = local.Records(validator, trainer or [])
    local.create_genesis(job, records, out, directory, weights, as_json)


@genesis_app.command(name="show")
def show_genesis(
    directory: Directory = HERE,
    file: Annotated[Path | None, typer.Option(help="A genesis file, instead of D's.")] = None,
    as_json: Json = False,
) -> None:
    """Show what a network is.

    Chain id, validators, trainers, model, data, rule, codec, windows and the end of the job.
    """
    from daa_node.cli import local

    local.show_genesis(file or directory / "genesis.json", as_json)


@genesis_app.command(name="digest")
def show_digest(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A file of data.")],
    as_json: Json = False,
) -> None:
    """Print by which digest a job names a file of data.

    It is the blake3 of the file's content; of a file packed by gzip, of what is in it.
    """
    from daa_node.cli import local

    local.show_digest(file, as_json)


@config_app.command(name="show")
def show_config(
    directory: Directory = HERE,
    config: ConfigFile = None,
    origin: Annotated[bool, typer.Option("--origin", help="Say where each is from.")] = False,
    as_json: Json = False,
) -> None:
    """Show every setting as the daemon would use it."""
    from daa_node.cli import local

    local.show_config(directory, config, origin, as_json)


@app.command()
def run(
    directory: Directory = HERE,
    config: ConfigFile = None,
    join: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ADDR",
            help="A node to dial first, like node.example:4001. Repeat for more.",
        ),
    ] = None,
    with_parent: WithParent = False,
    supervise: Annotated[
        bool, typer.Option("--supervise", help="Start it again when it crashes, without systemd.")
    ] = False,
) -> None:
    """Run the node until it is stopped.

    D/genesis.json says of which network it is. After the job's end the node goes on to serve what
    it has. Ctrl-C or SIGTERM lets it finish its round and stop. The same again stops it at once.
    SIGHUP makes it read again the settings that may change.
    """
    from daa_node.cli.doctor.explained import explained

    if supervise:
        from daa_node.cli.supervise import supervise as watch_over

        watch_over(directory, config, tuple(join or ()), with_parent)
        return
    from daa_node.cli.compose import run_daemon

    with explained(directory):
        run_daemon(directory, config, tuple(join or ()), with_parent)


@app.command()
def demo(
    nodes: Annotated[int, typer.Option(min=1, max=16, help="Daemons to start.")] = 4,
    rounds: Annotated[int | None, typer.Option(min=1, help="Outer rounds to train.")] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="D", help="Keep everything here.")
    ] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="For weights and data order.")] = None,
    browser: Annotated[
        bool, typer.Option("--browser", help="Serve the volunteers' page, until Ctrl-C.")
    ] = False,
    browser_port: Annotated[
        int | None,
        typer.Option(min=1, max=65535, metavar="PORT", help="The same, on this port, not 8080."),
    ] = None,
    dashboard: ShowDashboard = False,
    as_json: Json = False,
) -> None:
    """Train with a local cluster of real daemons.

    The text to learn comes with the package. Ctrl-C stops the demo. With --dir, the same command
    goes on where it stopped. With --browser, one of the daemons is a gateway: open the address that
    the demo prints in a browser of this machine. With --dashboard, one of them shows what it does.
    """
    from daa_node.cli.demo import Pages, run_demo

    page_port = browser_port or (8080 if browser else None)
    run_demo(nodes, rounds, directory, seed, Pages(page_port, dashboard), as_json)


@app.command()
def sample(
    prompt: Annotated[str, typer.Option(metavar="TEXT", help="What the text begins with.")],
    tokens: Annotated[
        int, typer.Option(metavar="N", help="Bytes to write, or tokens of a tokenizer.")
    ] = 200,
    temperature: Annotated[
        float, typer.Option(metavar="T", help="0: the likeliest one always. Higher: bolder.")
    ] = 0.8,
    seed: Annotated[
        int | None, typer.Option(metavar="S", help="The same again. Without: by lot.")
    ] = None,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Let the newest certified model write text.

    It reads the chain of the node, whether its daemon runs or not. For language models over bytes,
    or with a tokenizer: byte_gpt, hf_causal_lm, or one of your own that has logits(inputs).
    """
    from daa_node.cli.sample import sample as write

    write(directory, prompt, tokens, temperature, seed, as_json)


@app.command()
def status(directory: Directory = HERE, as_json: Json = False) -> None:
    """Show what the running node does, and why."""
    from daa_node.cli import remote

    remote.status(directory, as_json)


@app.command()
def peers(directory: Directory = HERE, as_json: Json = False) -> None:
    """List the peers that the running node knows.

    LEVEL, HEALTH (0 to 1) and WEAKEST tell how well each contributes, as this node has seen it, and
    where it loses most. What would raise that stands below the table. CHECKS: parts of its training
    that this node has trained again, and how many of these were sound. TOLERATED: how far off they
    may be. SEES US: how this node stands there. --json has every component with its history.
    """
    from daa_node.cli import remote

    remote.peers(directory, as_json)


@app.command()
def logs(
    directory: Directory = HERE,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with new events until Ctrl-C.")
    ] = False,
    count: Annotated[
        int, typer.Option("--count", "-n", min=0, help="How many of the newest events.")
    ] = 50,
    as_json: Json = False,
) -> None:
    """Show the events of the running node."""
    from daa_node.cli import remote

    remote.logs(directory, count, follow, as_json)


@app.command()
def drain(directory: Directory = HERE, as_json: Json = False) -> None:
    """Let the running node finish its round and stop."""
    from daa_node.cli import remote

    remote.drain(directory, as_json)


@validators_app.callback()
def validators(context: typer.Context, directory: Directory = HERE, as_json: Json = False) -> None:
    """Show who votes and which changes wait, or ask for a change."""
    from daa_node.cli import remote

    if context.invoked_subcommand is None:
        remote.validators(directory, as_json)


@validators_app.command()
def propose(
    action: Annotated[
        str, typer.Argument(metavar="ACTION", help="join, leave, stake, rotate or withdraw.")
    ],
    stake: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="For join (1 if not given) and stake.")
    ] = None,
    consent: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="For rotate: what `validators consent` said."),
    ] = None,
    request: Annotated[
        str | None, typer.Option(metavar="ID", help="For withdraw: as `validators` lists it.")
    ] = None,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Ask for a change in this node's name.

    join: become a validator. leave: be none any more. stake: weigh N. rotate: hand the seat to
    another node. withdraw: take back a request of this node, all but leave. A quorum of the
    validators has to approve a join, a rotation and a higher stake. `daa-node validators` shows
    after which round a change takes effect.
    """
    from daa_node.cli import remote

    remote.propose(directory, action, stake, consent, request, as_json)


@validators_app.command()
def approve(
    request: Annotated[str, typer.Argument(metavar="ID", help="As `validators` lists it.")],
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Agree, as a validator, to what another node asks for."""
    from daa_node.cli import remote

    remote.approve(directory, request, as_json)


@validators_app.command(name="consent")
def give_consent(
    seat: Annotated[
        str,
        typer.Argument(metavar="NODE_ID", help="Whose seat this node takes over."),
    ],
    directory: Directory = HERE,
) -> None:
    """Agree to take over a validator's seat.

    Prints this node's half of a rotation. Save it in a file, and give that to `propose rotate
    --consent` on the validator.
    """
    from daa_node.cli import remote

    remote.consent(directory, seat)


@checkpoint_app.command(name="list")
def list_checkpoints(
    count: Annotated[
        int, typer.Option("--count", "-n", min=1, max=10_000_000, help="How many of the newest.")
    ] = 1000,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """List the certified vertices of this node, the newest last."""
    from daa_node.cli import checkpoint

    checkpoint.list_vertices(directory, count, as_json)


@checkpoint_app.command(name="show")
def show_checkpoint(
    vertex: Which = "tip", directory: Directory = HERE, as_json: Json = False
) -> None:
    """Show one vertex: its parents, roots, contributors and signers."""
    from daa_node.cli import checkpoint

    checkpoint.show(directory, vertex, as_json)


@checkpoint_app.command(name="verify")
def verify_checkpoints(
    trust: Annotated[
        str | None,
        typer.Option(
            metavar="VERTEX", help="An id or a tag that you trust. A chain without it is refused."
        ),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="VERTEX", help="Like --trust. States below it are not replayed."
        ),
    ] = None,
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Check every file of the chain.

    It trusts nothing but the genesis. The exit code is 1 if a file is wrong.
    """
    from daa_node.cli import checkpoint

    checkpoint.verify(directory, trust, start, as_json)


@checkpoint_app.command(name="export")
def export_checkpoint(
    vertex: Which = "tip",
    out: Annotated[
        Path | None, typer.Option(help="What to write: model.safetensors, or the folder model.")
    ] = None,
    format_: Annotated[
        str, typer.Option("--format", metavar="F", help="safetensors: one file. hf: a folder.")
    ] = "safetensors",
    directory: Directory = HERE,
    as_json: Json = False,
) -> None:
    """Write a model as safetensors, or for transformers or peft."""
    from daa_node.cli.checkpoint_export import export

    export(directory, vertex, format_, out, as_json)


show_examples(app)
