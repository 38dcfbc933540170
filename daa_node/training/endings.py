"""How a process ended, in words that say where to look."""

import signal

# What a person would not guess from the signal's name.
MEANT = {
    signal.SIGBUS: "a file that it had mapped was cut short, or its disk is full or failing",
    signal.SIGKILL: "by somebody, or by the kernel for lack of memory",
}


def how_ended(returncode: int) -> str:
    """`returncode` as subprocess gives it: negative for a signal."""
    if returncode >= 0:
        return f"exit code {returncode}"
    try:
        name = signal.Signals(-returncode)
    except ValueError:  # a real-time one
        return f"killed by signal {-returncode}"
    why = f": {MEANT[name]}" if name in MEANT else ""
    return f"killed by signal {-returncode} ({name.name}){why}"
