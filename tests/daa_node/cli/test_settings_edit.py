"""A number is changed in a person's file, and nothing else of it."""

import pytest

from daa_node import config
from daa_node.cli.settings_edit import Number, edited
from daa_node.errors import UserError


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", "log:\n  files_max: 7\n"),
        ("# log:\n#   files_max: 4", "# log:\n#   files_max: 4\nlog:\n  files_max: 7\n"),
        ("role: edge\n", "role: edge\nlog:\n  files_max: 7\n"),
        ("log:\n  files_max: 4  # few\nrole: edge\n", "log:\n  files_max: 7  # few\nrole: edge\n"),
        (
            "log:\n    # mine\n    file_bytes_max: 20000\nrole: edge\n",
            "log:\n    # mine\n    files_max: 7\n    file_bytes_max: 20000\nrole: edge\n",
        ),
        ("log: {files_max: 4} # x\n", "log: {files_max: 7} # x\n"),
        ("log: {file_bytes_max: 20000}\n", "log: {files_max: 7, file_bytes_max: 20000}\n"),
        ("log: {}\nrole: edge", "log: {files_max: 7}\nrole: edge"),
        ("log:\nrole: edge\n", "log:\n  files_max: 7\nrole: edge\n"),
        ("log: null\n", "log: \n  files_max: 7\n"),
        ('"log":\n  "files_max": 0x4\n', '"log":\n  "files_max": 7\n'),
        ("log:\r\n  files_max: 4\r\n", "log:\r\n  files_max: 7\r\n"),
        ("gateway:\n  hosts: [ä.example]\nlog: {files_max: 4}", None),
    ],
)
def test_what_a_person_wrote_stays(before: str, after: str | None) -> None:
    text = edited(before, "log.files_max", 7)
    assert text == (after or before.replace("4", "7"))
    if after is not None and "file_bytes" not in before:
        assert config.load("config.yaml", text).value.log.files_max == 7


@pytest.mark.parametrize("value", [None, 2.5, 3, 1e6])
def test_each_number_is_read_as_it_was_meant(value: Number) -> None:
    text = edited("storage:\n  bytes_max: 5\n", "network.upload_mbit_s", value)
    said = config.load("config.yaml", edited(text, "storage.bytes_max", 123_456_789_012)).value
    assert said.storage.bytes_max == 123_456_789_012
    assert said.network.upload_mbit_s == value


@pytest.mark.parametrize("text", ["[1, 2]", "{log: {files_max: 4}}", "log: [", "\x00", "a" * 9])
def test_what_is_no_list_of_sections_is_left_alone(text: str) -> None:
    with pytest.raises(UserError, match="the file of settings"):
        edited(text, "log.files_max", 7)
