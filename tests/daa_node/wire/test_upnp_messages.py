"""What a router says is read in the forms that routers use, and believed of itself alone."""

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


@pytest.mark.parametrize(
    "page",
    [
        b"",
        b"<root>",
        described(),
        described((upnp_messages.SERVICES[0], "http://10.0.0.5/ctl")),
        described((upnp_messages.SERVICES[0], "http://[::1/ctl")),
        described((upnp_messages.SERVICES[0], "http://a\u2100b/ctl")),
        ENTITIES.encode("utf-16"),
        b'<!DOCTYPE x [<!ENTITY a "aaaa">]><root>&a;</root>',
        b"<root>" + b"<x/>" * upnp_messages.ELEMENTS_MAX + b"</root>",
        bytes(upnp_messages.PAGE_BYTES_MAX + 1),
    ],
)
def test_a_page_that_is_no_description_is_refused(page: bytes) -> None:
    with pytest.raises(Unavailable):
        upnp_messages.service_in(page, AT)


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
    assert upnp_messages.error_in(b"<f><errorCode>-7e9</errorCode></f>") == 0
