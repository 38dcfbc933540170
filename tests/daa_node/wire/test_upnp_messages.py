"""What a router says is read in the forms that routers use, and believed of itself alone."""

from xml.etree import ElementTree

import pytest

from daa_node.errors import Unavailable
from daa_node.wire import upnp_messages
from daa_node.wire.upnp_messages import Place

ROUTER = "192.168.1.1"
AT = Place(ROUTER, 5000, "/root/desc.xml")


# Hidden from whoever looks at bytes for a declaration.
KIND = f"<serviceType>{upnp_messages.SERVICES[0]}</serviceType>"
ENTITIES = (
    '<?xml version="1.0" encoding="utf-16"?><!DOCTYPE x [<!ENTITY c "/ctl">]>'
    f"<root><service>{KIND}<controlURL>&c;</controlURL></service></root>"
)


def described(*services: tuple[str, str]) -> bytes:
    told = "".join(
        f"<service><serviceType>{kind}</serviceType><controlURL>{url}</controlURL></service>"
        for kind, url in services
    )
    return (
        '<?xml version="1.0"?><!-- made by hand --><root xmlns="urn:schemas-upnp-org:device-1-0">'
        f"<device><deviceList><device>{told}</device></deviceList></device></root>"
    ).encode()


def test_the_place_of_a_description_is_read_whatever_the_case() -> None:
    answer = b"HTTP/1.1 200 OK\r\nlocation:  http://192.168.1.1:5000/root/desc.xml?v=1 \r\n\r\n"
    found = upnp_messages.description_at(answer, ROUTER)
    assert found == Place(ROUTER, 5000, "/root/desc.xml?v=1")
    assert upnp_messages.place_of("http://192.168.1.1", ROUTER) == Place(ROUTER, 80, "/")


@pytest.mark.parametrize(
    "answer",
    [
        b"M-SEARCH * HTTP/1.1\r\nLOCATION: http://192.168.1.1/x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nST: any\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: "
        + bytes(upnp_messages.ANSWER_BYTES_MAX)
        + b"\r\nLOCATION: http://192.168.1.1/x\r\n\r\n",
    ],
    ids=["a question", "no place", "beyond what is read"],
)
def test_what_is_no_answer_with_a_place_is_refused(answer: bytes) -> None:
    with pytest.raises(Unavailable, match="answers with no place of a description"):
        upnp_messages.description_at(answer, ROUTER)


@pytest.mark.parametrize(
    "location",
    [
        b"http://10.0.0.5:5000/x",
        b"https://192.168.1.1/x",
        b"http://192.168.1.1@10.0.0.5/x",
        b"http://192.168.1.1:99999/x",
        b"http://[::1/x",
        b"http://192.168.1.1/a b",
        b"",
    ],
)
def test_nobody_has_us_ask_another_host(location: bytes) -> None:
    answer = b"HTTP/1.1 200 OK\r\nLOCATION: " + location + b"\r\n\r\n"
    with pytest.raises(Unavailable, match=r"192\.168\.1\.1"):
        upnp_messages.description_at(answer, ROUTER)


def test_of_several_services_the_newest_is_taken_wherever_it_stands() -> None:
    page = described(
        ("urn:schemas-upnp-org:service:Layer3Forwarding:1", "/l3"),
        (upnp_messages.SERVICES[1], "ctl/one"),
        (upnp_messages.SERVICES[0], "http://192.168.1.1:5001/two"),
    )
    found = upnp_messages.service_in(page, AT)
    assert found.kind == upnp_messages.SERVICES[0]
    assert found.control == Place(ROUTER, 5001, "/two")
    relative = upnp_messages.service_in(described((upnp_messages.SERVICES[2], "ctl")), AT)
    assert relative.control == Place(ROUTER, 5000, "/root/ctl")


def test_of_two_services_of_a_kind_the_first_is_taken() -> None:
    kind = upnp_messages.SERVICES[0]
    found = upnp_messages.service_in(described((kind, ""), (kind, "/one"), (kind, "/two")), AT)
    assert found.control == Place(ROUTER, 5000, "/one")


@pytest.mark.parametrize(
    ("page", "why"),
    [
        (b"", "no XML"),
        (b"<root>", "no XML"),
        (described(), "no service that opens ports"),
        (described((upnp_messages.SERVICES[0], "http://10.0.0.5/ctl")), "no page of its own"),
        (described((upnp_messages.SERVICES[0], "http://[::1/ctl")), "no page of its own"),
        (described((upnp_messages.SERVICES[0], "http://a\u2100b/ctl")), "no page of its own"),
        (ENTITIES.encode("utf-16"), "no XML"),
        (ENTITIES.replace("utf-16", "utf-8").encode(), "more than a description"),
        (b'<!DOCTYPE x [<!ENTITY a "aaaa">]><root>&a;</root>', "more than a description"),
        (b"<root>" + b"<x/>" * upnp_messages.ELEMENTS_MAX + b"</root>", "says 4097 things"),
        (bytes(upnp_messages.PAGE_BYTES_MAX + 1), "more than a description"),
    ],
)
def test_a_page_that_is_no_description_is_refused(page: bytes, why: str) -> None:
    with pytest.raises(Unavailable, match=why):
        upnp_messages.service_in(page, AT)


def test_a_page_as_long_as_one_may_be_is_read() -> None:
    kind = upnp_messages.SERVICES[0]
    page = described((kind, "/ctl"))
    found = len(list(ElementTree.fromstring(page).iter()))
    page = page.removesuffix(b"</root>") + b"<x/>" * (upnp_messages.ELEMENTS_MAX - found)
    page += b" " * (upnp_messages.PAGE_BYTES_MAX - len(page) - len(b"</root>")) + b"</root>"
    assert upnp_messages.service_in(page, AT).control == Place(ROUTER, 5000, "/ctl")


@pytest.mark.parametrize("code", ["utf-8-sig", "iso-8859-1"])
def test_a_router_may_have_a_name_beyond_ascii_in_any_code(code: str) -> None:
    name = f'<?xml version="1.0" encoding="{code.removesuffix("-sig")}"?><n>Gerät</n>'
    assert upnp_messages.fields_of(name.encode(code)).keys() == {"n"}


def test_a_request_says_what_is_in_it_and_nothing_more() -> None:
    kind = upnp_messages.SERVICES[1]
    body = upnp_messages.request(kind, "AddPortMapping", {"NewRemoteHost": "", "NewNote": "a<b&c"})
    assert upnp_messages.fields_of(body) == {"NewRemoteHost": "", "NewNote": "a<b&c"}
    assert upnp_messages.error_in(body) == 0
    assert upnp_messages.error_in(b"<f><errorCode>718</errorCode></f>") == upnp_messages.TAKEN
    for code in ("-7e9", "1" * 6, "1" * 5000, "&#x663;"):  # int() takes the last one, too
        page = f"<f><errorCode>{code}</errorCode></f>".encode()
        assert upnp_messages.error_in(page) == 0
    assert upnp_messages.error_in(b"<f><errorCode>99999</errorCode></f>") == 99_999
