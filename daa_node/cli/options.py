"""Options that many commands share."""

from pathlib import Path
from typing import Annotated

import typer

Directory = Annotated[
    Path, typer.Option("--dir", metavar="D", help="The node's directory.", show_default=True)
]
ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", "-c", metavar="FILE", help="Instead of D/config.yaml."),
]
WithParent = Annotated[
    bool, typer.Option("--with-parent", hidden=True, help="End when standard input ends.")
]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object.")]
ShowDashboard = Annotated[
    bool, typer.Option("--dashboard", help="Serve the operator's dashboard, until Ctrl-C.")
]
Which = Annotated[
    str,
    typer.Argument(
        metavar="VERTEX", help="A height, a tag, the start of an id, or tip for the newest."
    ),
]
HERE = Path("daa-data")
