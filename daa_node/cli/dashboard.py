"""`daa-node dashboard`: where a running node's page is, and the token that opens it.

A browser is given a file of mode 0600 that leads to the page: the address itself, on a command
line, could be read by all users of this host, and the token with it.
"""

import html
import os
import sys
import webbrowser
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from daa_node.adapters import control_socket
from daa_node.adapters.site_directory import DASHBOARD, read_site
from daa_node.adapters.token_files import read_token
from daa_node.cli import report
from daa_node.cli.data_directory import DataDirectory
from daa_node.errors import UserError
from daa_node.wire.page_files import Site

WAY_IN = "dashboard.html"
_WAY_IN_PAGE = """<!doctype html>
<html lang="en">
  <head>
    <meta charset="utf-8" />
    <meta name="referrer" content="no-referrer" />
    <meta http-equiv="refresh" content="0; url={address}" />
    <title>To the dashboard</title>
  </head>
  <body><p><a href="{address}">To the dashboard of this node</a></p></body>
</html>
"""


def dashboard(root: Path, only_print: bool, as_json: bool) -> None:
    """Raises UserError if no daemon runs in `root`, or it has no dashboard."""
    directory = DataDirectory(root)
    directory.check()
    said = control_socket.ask(directory.control, "status")
    address = address_of(directory, said["api"])
    if as_json:
        report.put_json({"url": address})
        return
    report.put(address)
    if not only_print and sys.stdout.isatty():
        open_in_browser(directory, address)


def address_of(
    directory: DataDirectory, api: Mapping[str, Any] | None, site: Path = DASHBOARD
) -> str:
    """With the token that reads in its fragment. `api`: as `status` tells of it.

    Raises UserError where there is nothing to open, with what to do.
    """
    if api is None:
        raise UserError(
            f"this node has no dashboard: write `api: {{listen: '127.0.0.1:9180'}}` into "
            f"{directory.config}, and start it again"
        )
    if api["url"] is None:
        why = api["failure"] or "its door opens in a moment, ask again"
        raise UserError(f"the dashboard cannot be opened now: {why}", exit_code=1)
    check_built("daa-node dashboard", site, then=", and start the daemon again")
    return f"{api['url']}#token={read_token(directory.root)}"


def check_built(who: str, site: Path = DASHBOARD, then: str = "") -> None:
    """Raises UserError if the dashboard's files are not there, in the name of `who`.

    `then`: what is to be done once they are.
    """
    try:
        version = Site(read_site(site)).version
    except OSError as fault:
        raise UserError(f"{who}: the dashboard cannot be read: {fault}") from None
    if version is None:
        raise UserError(
            f"{who}: the dashboard is not built: run `make dashboard` in the source tree, with "
            f"Node.js{then}"
        )


def open_in_browser(directory: DataDirectory, address: str) -> None:
    """Where there is a screen; whoever has none has the address."""
    if not _has_screen():
        return
    way_in = directory.root.resolve() / WAY_IN
    try:
        _write_for_us_alone(way_in, _WAY_IN_PAGE.format(address=html.escape(address)))
    except OSError as fault:
        report.note(f"no browser is opened: {way_in} cannot be written: {fault.strerror}")
        return
    if not webbrowser.open(way_in.as_uri()):
        report.note("no browser could be opened: open the address above")


def _has_screen() -> bool:
    """Else a browser of text would take the terminal."""
    return sys.platform == "darwin" or bool(
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    )


def _write_for_us_alone(path: Path, text: str) -> None:
    path.unlink(missing_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(text)
