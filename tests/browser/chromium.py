"""The browser that opens the pages; the scripts that drive it are told where it is."""

import shutil

NAMES = ("chromium", "google-chrome")


def chromium() -> str:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    assert found, "no Chromium on this machine: on Debian and Ubuntu, apt-get install chromium"
    return found
