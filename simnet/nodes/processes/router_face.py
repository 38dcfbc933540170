"""What a home's router shows its home: SSDP and SOAP (UPnP IGD:1), before a box of ours.

Whoever asks it for a port has the box asked in turn (see port_requests), so that a port is really
open. It lives in the namespace of the node that it serves, as its router would be on its network.
"""

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.sax.saxutils import escape

from daa_node.wire import upnp_messages
from daa_node.wire.limits import KIB
from simnet.nodes.processes.lines import Line
from simnet.nodes.processes.port_requests import asked_of_box

KIND = "urn:schemas-upnp-org:service:WANIPConnection:1"
BODY_BYTES_MAX = 64 * KIB
# Whether (port inside, port outside, seconds; 0 closes it) was done for who asks.
AskBox = Callable[[int, int, int], bool]


class RouterFace(ThreadingHTTPServer):
    """The pages; `outside` is the box's own address, `why_not` an error that it answers with."""

    daemon_threads = True

    def __init__(self, own: str, outside: str, ask_box: AskBox) -> None:
        super().__init__((own, 0), _Pages)
        self.outside = outside
        self.ask_box = ask_box
        self.why_not = 0
        self.asked: list[tuple[str, dict[str, str]]] = []  # actions and what came with them

    @property
    def location(self) -> str:
        host, port = self.server_address[:2]
        return f"http://{host!s}:{port}/description.xml"

    def answer(self, action: str, told: dict[str, str]) -> tuple[int, dict[str, str]]:
        """An error of UPnP or 0, and what is told in return."""
        self.asked.append((action, told))
        match action:
            case _ if self.why_not:
                return self.why_not, {}
            case "GetExternalIPAddress":
                return 0, {"NewExternalIPAddress": self.outside}
            case "AddPortMapping":
                ports = int(told["NewInternalPort"]), int(told["NewExternalPort"])
                is_open = self.ask_box(*ports, int(told["NewLeaseDuration"]))
                return (0 if is_open else upnp_messages.TAKEN), {}
            case "DeletePortMapping":
                self.ask_box(0, int(told["NewExternalPort"]), 0)
                return 0, {}
        return 401, {}  # no such action


class _Pages(BaseHTTPRequestHandler):
    server: RouterFace

    def do_GET(self) -> None:
        self._say(200, _description())

    def do_POST(self) -> None:
        size = min(int(self.headers.get("Content-Length", "0")), BODY_BYTES_MAX)
        told = upnp_messages.fields_of(self.rfile.read(size))
        action = self.headers.get("SOAPAction", "").strip('"').rpartition("#")[2]
        error, fields = self.server.answer(action, told)
        if error:
            self._say(500, f"<f><UPnPError><errorCode>{error}</errorCode></UPnPError></f>".encode())
            return
        self._say(200, upnp_messages.request(KIND, f"{action}Response", fields))

    def _say(self, status: int, page: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(page)))
        self.end_headers()
        self.wfile.write(page)

    def log_message(self, format: str, *arguments: object) -> None:
        """Nobody reads it."""


def _description() -> bytes:
    return (
        '<?xml version="1.0"?><root xmlns="urn:schemas-upnp-org:device-1-0"><device>'
        f"<deviceType>{escape(upnp_messages.GATEWAY)}</deviceType><serviceList><service>"
        f"<serviceType>{KIND}</serviceType><controlURL>/control</controlURL>"
        "</service></serviceList></device></root>"
    ).encode()


def answer_searches(door: socket.socket, location: str) -> None:
    """Until the socket is closed."""
    told = f"HTTP/1.1 200 OK\r\nST: {upnp_messages.GATEWAY}\r\nLOCATION: {location}\r\n\r\n"
    with suppress(OSError):
        while True:
            asked, asker = door.recvfrom(2 * KIB)
            if asked.startswith(b"M-SEARCH"):
                door.sendto(told.encode(), asker)


def serve(own: str, outside: str, line: Line) -> None:
    """The whole life of a face in the namespace of the node at `own`."""
    face = RouterFace(own, outside, lambda *ask: asked_of_box(own, *ask))
    door = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    door.bind(("", upnp_messages.PORT))
    membership = struct.pack("4s4s", *map(socket.inet_aton, (upnp_messages.GROUP, own)))
    door.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, membership)
    for work in (face.serve_forever, lambda: answer_searches(door, face.location)):
        threading.Thread(target=work, daemon=True).start()
    line.send(None)
    line.receive()  # raises EOFError when the tool hangs up
