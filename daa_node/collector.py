"""The garbage collector of a process that begins: what is imported never ends, so let it be.

A daemon's imports make 180,000 objects. By its usual threshold the collector looks through all of
them again and again while they come, which is a seventh of what a start costs in CPU.
"""

import gc

EVERY = 50_000  # objects: a few young collections, and no full one, while anything is imported
USUAL = gc.get_threshold()


def spare_imports() -> None:
    """To be said before them. A command that is soon over may leave it at that, until its end."""
    gc.set_threshold(EVERY, *USUAL[1:])


def as_usual() -> None:
    """To be said by what ends inside a process that goes on."""
    gc.set_threshold(*USUAL)


def end_imports() -> None:
    """To be said by who lives on: what is there is never looked at again, and the rest as usual."""
    gc.freeze()
    gc.set_threshold(*USUAL)
