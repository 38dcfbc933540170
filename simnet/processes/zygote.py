"""The warm parent: imports everything once, then forks a daemon into a namespace whenever asked.

A daemon forked from here is `daa-node run` as the command line starts it, in a process of its own:
own process group, own log, own namespace, and the kernel kills it when this process ends. Forking
needs a single thread, so nothing here starts one, and no event loop runs before the fork.

    COLD --world: namespaces--> COLD --workers, hub: forks--> COLD --warm: imports--> WARM
    WARM --daemon, probe, command: forks--> WARM
"""

import gc
import os
import select
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from time import perf_counter

from simnet.processes import daemon, hub, kernel, namespaces, probes, workers

FREE_DESCRIPTORS_FROM = 3  # above the standard ones
WARM = ("daa_node.cli.compose", "daa_node.cli.main", "simnet.adversaries.disguise")


class Zygote:
    """Obeys the tool on `line` until it closes it."""

    def __init__(self, line: socket.socket) -> None:
        self._line = line
        self._namespaces: list[namespaces.Namespace] = []
        self._children: dict[int, int] = {}  # descriptor that tells of its end -> pid

    def run(self) -> None:
        while True:
            line = self._line.fileno()
            ready, _, _ = select.select([line, *self._children], [], [])
            for source in ready:
                if source != line:
                    self._bury(source)
                    continue
                message, descriptors = kernel.receive(self._line)
                if message is None:
                    return
                try:
                    self._obey(message, descriptors)
                except OSError as refused:
                    kernel.send(self._line, {"refused": str(refused)})

    def _obey(self, message: kernel.Message, descriptors: list[int]) -> None:
        match message["do"]:
            case "tun world":
                self._make_tun_world(message)
            case "cabled world":
                self._make_cabled_world(message)
            case "hub":
                (descriptor,) = descriptors
                line = socket.socket(fileno=descriptor)
                self._fork(message, lambda: hub.Hub(line).run(), descriptor)
                line.close()
            case "workers":
                path = Path(message["path"])
                self._fork(message, lambda: workers.Workers(path).run())
            case "warm":
                kernel.send(self._line, {"warm_s": _warm()})
            case "daemon":
                nature = daemon.Nature.from_message(message["nature"])
                self._fork(message, lambda: daemon.be_daemon(nature))
            case "command":
                self._fork(message, lambda: _run_command(message["arguments"]))
            case "probe":
                (descriptor,) = descriptors
                line = socket.socket(fileno=descriptor)
                address = message["address"]
                self._fork(message, lambda: probes.Prober(line, address).run(), descriptor)
                line.close()

    def _make_tun_world(self, order: kernel.Message) -> None:
        if order["user_namespace"]:
            kernel.become_root_of_a_user_namespace()
        self._namespaces, tuns = namespaces.make_namespaces(order["count"], order["device"])
        kernel.send(self._line, {}, tuns)
        for tun in tuns:
            os.close(tun)  # else the devices would outlive the switch

    def _make_cabled_world(self, order: kernel.Message) -> None:
        if order["user_namespace"]:
            kernel.become_root_of_a_user_namespace()
        self._namespaces = hub.make_namespaces(order["count"])
        kernel.send(self._line, {})

    def _fork(self, message: kernel.Message, life: Callable[[], None], kept: int = -1) -> None:
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                self._be_born(message, parent, kept)
                life()
                code = 0
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            finally:
                _flush()
                os._exit(code)  # what our parent has set up to run at its exit is not ours to run
        os.setpgid(pid, pid)  # as the child does, but before the tool may signal its group
        self._children[os.pidfd_open(pid)] = pid
        kernel.send(self._line, {"pid": pid})

    def _be_born(self, message: kernel.Message, parent: int, kept: int) -> None:
        """In the child: everything that makes it a process of its own."""
        kernel.die_with_parent(parent)
        os.setpgid(0, 0)
        node = message.get("node")
        if node is not None and self._namespaces:
            kernel.set_namespace(self._namespaces[node].descriptor)
        log = os.open(message["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        nothing = os.open(os.devnull, os.O_RDONLY)
        for source, target in ((nothing, 0), (log, 1), (log, 2)):
            os.dup2(source, target)
        for descriptor in map(int, os.listdir("/proc/self/fd")):
            if descriptor >= FREE_DESCRIPTORS_FROM and descriptor != kept:
                with suppress(OSError):  # the one that listed the others is closed already
                    os.close(descriptor)

    def _bury(self, descriptor: int) -> None:
        pid = self._children.pop(descriptor)
        os.close(descriptor)
        _, status = os.waitpid(pid, 0)
        kernel.send(self._line, {"ended": pid, "code": os.waitstatus_to_exitcode(status)})


def _warm() -> float:
    """Import what a daemon imports, and put it where no child's collector will touch it."""
    began_s = perf_counter()
    for name in WARM:
        import_module(name)
    gc.collect()
    gc.freeze()
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"{threads} threads: a fork would copy one and leave the others' locks"
    return perf_counter() - began_s


def _run_command(arguments: list[str]) -> None:
    """What `daa-node ARGUMENTS` does. Raises SystemExit."""
    from daa_node.cli.main import main as daa_node_main

    sys.argv = ["daa-node", *arguments]
    daa_node_main()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            continue  # closed, or gone with its reader


def main() -> None:
    """Started by the tool alone."""
    line, _ = kernel.line_to_tool("simnet.processes.zygote")
    with suppress(BrokenPipeError):  # the tool is gone, and with us all that we forked
        Zygote(line).run()


if __name__ == "__main__":
    main()
