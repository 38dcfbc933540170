"""What is said to a home's router so that it lets others in (UPnP Device Architecture 1.1; IGD:1).

    search (UDP)  -> the place of a description -> the router's services -> SOAP requests to one

Everything read here is of whoever answers on the local network: bounded, and believed of nothing.
"""

import codecs
from dataclasses import dataclass
from urllib.parse import urljoin, urlsplit
from xml.etree import ElementTree
from xml.sax.saxutils import escape

from daa_node.errors import Unavailable
from daa_node.wire.limits import KIB

GROUP, PORT = "239.255.255.250", 1900
GATEWAY = "urn:schemas-upnp-org:device:InternetGatewayDevice:1"
SERVICES = (
    "urn:schemas-upnp-org:service:WANIPConnection:2",
    "urn:schemas-upnp-org:service:WANIPConnection:1",
    "urn:schemas-upnp-org:service:WANPPPConnection:1",
)
ANSWER_BYTES_MAX = 2 * KIB
PAGE_BYTES_MAX = 128 * KIB  # of a talkative router 20
ELEMENTS_MAX = 4096
TAKEN, PERMANENT_ONLY = 718, 725  # errors of AddPortMapping
_ENVELOPE = "http://schemas.xmlsoap.org/soap/envelope/"


@dataclass(frozen=True, slots=True)
class Place:
    """Of a page on the router itself."""

    host: str
    port: int
    path: str


@dataclass(frozen=True, slots=True)
class Service:
    """Of a router, which opens ports."""

    kind: str
    control: Place


def search() -> bytes:
    """Who is a router here?"""
    return (
        f"M-SEARCH * HTTP/1.1\r\nHOST: {GROUP}:{PORT}\r\n"
        f'MAN: "ssdp:discover"\r\nMX: 1\r\nST: {GATEWAY}\r\n\r\n'
    ).encode()


def description_at(answer: bytes, sender: str) -> Place:
    """Where a router that answers describes itself. Raises Unavailable if that is not on itself."""
    lines = answer[:ANSWER_BYTES_MAX].decode("latin-1").split("\r\n")
    for line in lines[1:]:
        name, _, value = line.partition(":")
        if name.strip().lower() == "location" and lines[0].startswith("HTTP/1."):
            return place_of(value.strip(), sender)
    raise Unavailable(f"{sender} answers with no place of a description")


def place_of(url: str, sender: str, base: str = "") -> Place:
    """Raises Unavailable for a page of anybody but the sender: it would have us ask others."""
    try:
        parts = urlsplit(urljoin(base, url))
        port = parts.port or 80
    except ValueError:
        raise Unavailable(f"{sender} names no page of its own") from None
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    is_plain = path.isascii() and path.isprintable() and " " not in path
    if parts.scheme != "http" or parts.hostname != sender or not is_plain:
        raise Unavailable(f"{sender} names no page of its own")
    return Place(sender, port, path)


def service_in(description: bytes, at: Place) -> Service:
    """Raises Unavailable if nothing in it opens ports."""
    base = f"http://{at.host}:{at.port}{at.path}"
    found: dict[str, Service] = {}
    for element in _elements(description):
        if _name(element) == "service":
            told = {_name(child): (child.text or "").strip() for child in element}
            kind = told.get("serviceType", "")
            if kind in SERVICES and kind not in found and told.get("controlURL"):
                control = place_of(told["controlURL"], at.host, base)
                found[kind] = Service(kind, control)
    for kind in SERVICES:
        if kind in found:
            return found[kind]
    raise Unavailable(f"{at.host} describes no service that opens ports")


def request(kind: str, action: str, arguments: dict[str, str]) -> bytes:
    """The body of a SOAP request."""
    told = "".join(f"<{name}>{escape(value)}</{name}>" for name, value in arguments.items())
    return (
        f'<?xml version="1.0"?><s:Envelope xmlns:s="{_ENVELOPE}" '
        's:encodingStyle="http://schemas.xmlsoap.org/soap/encoding/"><s:Body>'
        f'<u:{action} xmlns:u="{kind}">{told}</u:{action}></s:Body></s:Envelope>'
    ).encode()


def fields_of(answer: bytes) -> dict[str, str]:
    """The names and texts in a SOAP answer, whatever is around them. Raises Unavailable."""
    found = _elements(answer)
    return {_name(element): (element.text or "").strip() for element in found if not len(element)}


def error_in(answer: bytes) -> int:
    """The number of a UPnP error; 0 where there is none. Raises Unavailable."""
    code = fields_of(answer).get("errorCode", "")
    return int(code) if code.isascii() and code.isdecimal() and len(code) < 6 else 0


def _elements(page: bytes) -> list[ElementTree.Element]:
    # All that we look for is ASCII. Parsed as text, no page hides anything in a code of its choice.
    text = page.removeprefix(codecs.BOM_UTF8).decode("latin-1")
    if len(page) > PAGE_BYTES_MAX or "<!" in text.replace("<!--", ""):
        raise Unavailable("the router says more than a description")  # entities may grow for ever
    try:
        found = list(ElementTree.fromstring(text).iter())
    except (ElementTree.ParseError, ValueError, LookupError) as fault:
        raise Unavailable(f"the router says no XML: {fault}") from None
    if len(found) > ELEMENTS_MAX:
        raise Unavailable(f"the router says {len(found)} things")
    return found


def _name(element: ElementTree.Element) -> str:
    return element.tag.rpartition("}")[2]
