"""A process that tells what it was given, and then does as its last word says."""

import json
import os
import random
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path


def told() -> dict[str, object]:
    """All in which a process that was forked could differ from one that was started anew."""
    status = dict(
        line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines()
    )
    alike = ("Umask", "SigBlk", "SigIgn", "SigCgt", "NoNewPrivs", "Seccomp")
    return {
        "words": sys.argv,
        "main": [__name__, str(__spec__.name), sys.modules["__main__"].__name__],
        "parent": os.getppid(),
        "session is its own": os.getsid(0) == os.getpid(),
        "group is its own": os.getpgid(0) == os.getpid(),
        "directory": os.getcwd(),
        "environment": dict(os.environ),
        "search path": sys.path,
        "descriptors": [each for each in range(1000) if Path(f"/proc/self/fd/{each}").exists()],
        "inherits": [os.get_inheritable(each) for each in range(3)],
        "limits": [resource.getrlimit(each) for each in range(16)],
        "niceness": os.nice(0),
        "threads": [each.name for each in threading.enumerate()],
        "python's signals": [str(signal.getsignal(each)) for each in (1, 2, 13, 15, 17)],
        "streams": [
            [stream.encoding, stream.errors, stream.line_buffering, stream.fileno()]
            for stream in (sys.stdin, sys.stdout, sys.stderr)
        ],
        **{key: status[key] for key in alike},
    }


def do(word: str) -> None:
    """What one of the ways to live and to end needs."""
    if word == "raise":
        raise KeyError("own words")
    if word == "exit":
        sys.exit(7)
    if word == "read":
        sys.stdin.read()
    if word == "dice":
        from trio._core import _run  # the others take no time for it

        print(random.random(), os.urandom(8).hex(), _run._r.random())
    if word == "thread":
        threading.Timer(0.2, print, ["said by a thread"]).start()
    if word == "child":
        child = [sys.executable, "-m", __spec__.name, "end"]
        print(subprocess.run(child, capture_output=True, text=True, check=True).stdout, end="")


if __name__ == "__main__":
    print(json.dumps(told()), flush=True)
    do(sys.argv[-1])
