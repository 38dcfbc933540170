"""Key files: private, whole, never overwritten, and refused with a remedy when they are not."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from daa_dag.ids import ChainId
from daa_node.adapters.key_files import KeyUse, create_keys, load_keys
from daa_node.cli.identity import create_node
from daa_node.errors import StorageFailed, UserError
from daa_node.identity.keys import NodeKeys

FILES = ["ml_dsa.key", "ml_kem.key", "libp2p.key"]


def test_an_identity_returns_from_its_files(tmp_path: Path) -> None:
    made = create_keys(tmp_path / "node" / "keys")
    again = load_keys(tmp_path / "node" / "keys")
    assert (again.node_id, again.peer_id) == (made.node_id, made.peer_id)
    assert again.ml_kem_public_key == made.ml_kem_public_key


def test_nobody_else_may_read_what_was_created_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        create_keys(tmp_path / "keys")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "keys").stat().st_mode) == 0o700
    for name in FILES:
        assert stat.S_IMODE((tmp_path / "keys" / name).stat().st_mode) == 0o600
    assert [path.name for path in tmp_path.iterdir()] == ["keys"]


def test_an_identity_is_never_overwritten(tmp_path: Path) -> None:
    made = create_keys(tmp_path / "keys")
    with pytest.raises(UserError, match="never overwritten"):
        create_keys(tmp_path / "keys")
    assert load_keys(tmp_path / "keys").node_id == made.node_id


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o666])
def test_a_key_that_others_can_reach_is_refused_with_the_remedy(
    tmp_path: Path, name: str, mode: int
) -> None:
    create_keys(tmp_path / "keys")
    path = tmp_path / "keys" / name
    path.chmod(mode)
    with pytest.raises(UserError) as fault:
        load_keys(tmp_path / "keys")
    assert str(path) in str(fault.value)
    assert f"{mode:04o}" in str(fault.value)
    assert f"chmod 600 {path}" in str(fault.value)
    path.chmod(0o600)
    load_keys(tmp_path / "keys")


def test_a_key_directory_that_others_can_reach_is_refused_with_the_remedy(tmp_path: Path) -> None:
    create_keys(tmp_path / "keys")
    (tmp_path / "keys").chmod(0o755)
    with pytest.raises(UserError, match=r"mode 0755.*chmod 700"):
        load_keys(tmp_path / "keys")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_key_of_another_user_is_refused(tmp_path: Path) -> None:
    create_keys(tmp_path / "keys")
    os.chown(tmp_path / "keys" / "ml_dsa.key", 12345, -1)
    with pytest.raises(UserError, match=r"ml_dsa.key belongs to user 12345"):
        load_keys(tmp_path / "keys")


@pytest.mark.parametrize("name", FILES)
def test_a_key_cut_anywhere_is_refused_by_name(tmp_path: Path, name: str) -> None:
    create_keys(tmp_path / "keys")
    path = tmp_path / "keys" / name
    whole = path.read_bytes()
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        with pytest.raises(UserError, match=name):
            load_keys(tmp_path / "keys")
    path.write_bytes(whole + b"\n")
    with pytest.raises(UserError, match="damaged"):
        load_keys(tmp_path / "keys")


def test_one_changed_byte_of_a_key_is_noticed(tmp_path: Path) -> None:
    create_keys(tmp_path / "keys")
    path = tmp_path / "keys" / "ml_dsa.key"
    whole = path.read_bytes()
    for index in range(len(whole)):
        path.write_bytes(whole[:index] + bytes([whole[index] ^ 1]) + whole[index + 1 :])
        with pytest.raises(UserError, match=r"ml_dsa\.key"):
            load_keys(tmp_path / "keys")


def test_a_key_of_a_newer_version_names_both_versions(tmp_path: Path) -> None:
    create_keys(tmp_path / "keys")
    path = tmp_path / "keys" / "ml_kem.key"
    path.write_bytes(path.read_bytes().replace(b"daa-key 1 ", b"daa-key 2 "))
    with pytest.raises(UserError, match=r"format version 2, this program reads version 1"):
        load_keys(tmp_path / "keys")


def test_keys_in_each_others_place_are_refused(tmp_path: Path) -> None:
    create_keys(tmp_path / "keys")
    os.replace(tmp_path / "keys" / "libp2p.key", tmp_path / "keys" / "ml_dsa.key")
    with pytest.raises(UserError, match="kind ed25519, ml-dsa-65 expected"):
        load_keys(tmp_path / "keys")


def test_missing_keys_are_told_apart_from_no_identity(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="daa-node init"):
        load_keys(tmp_path / "keys")
    create_keys(tmp_path / "keys")
    (tmp_path / "keys" / "ml_dsa.key").unlink()
    with pytest.raises(UserError, match=r"ml_dsa\.key is missing"):
        load_keys(tmp_path / "keys")


def test_a_link_in_place_of_a_key_is_refused(tmp_path: Path) -> None:
    create_keys(tmp_path / "keys")
    path = tmp_path / "keys" / "ml_dsa.key"
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="cannot read"):
        load_keys(tmp_path / "keys")


def test_half_an_identity_never_appears(tmp_path: Path) -> None:
    # The parent is a file: nothing can be created, and nothing is left behind.
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StorageFailed, match="cannot create keys"):
        create_keys(tmp_path / "file" / "keys")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


RIGHT, WRONG = ChainId(b"r" * 32), ChainId(b"w" * 32)


def test_only_the_directory_in_which_keys_were_made_shows_that_they_are_unused(
    tmp_path: Path,
) -> None:
    home = tmp_path / "node"
    keys = create_node(home, "")
    assert not KeyUse(home / "agreement", keys.node_id, RIGHT).begun
    other = NodeKeys.from_seed(b"another")
    assert KeyUse(home / "agreement", other.node_id, RIGHT).begun
    copy = tmp_path / "copy"  # what an operator takes along of an identity
    shutil.copytree(home / "keys", copy / "keys")
    assert load_keys(copy / "keys").node_id == keys.node_id
    assert KeyUse(copy / "agreement", keys.node_id, RIGHT).begun
    KeyUse(copy / "agreement", keys.node_id, RIGHT).begin()
    assert KeyUse(copy / "agreement", keys.node_id, WRONG).begun


def test_keys_that_have_signed_on_one_chain_are_unused_on_another(tmp_path: Path) -> None:
    home = tmp_path / "node"
    name = create_node(home, "").node_id
    for chain, others in ((WRONG, [RIGHT]), (RIGHT, [])):
        for _ in range(2):
            KeyUse(home / "agreement", name, chain).begin()
        assert KeyUse(home / "agreement", name, chain).begun
        assert not any(KeyUse(home / "agreement", name, other).begun for other in others)
    assert KeyUse(home / "agreement", name, WRONG).begun


def test_a_list_of_chains_that_lacks_its_end_shows_nothing(tmp_path: Path) -> None:
    home = tmp_path / "node"
    name = create_node(home, "").node_id
    KeyUse(home / "agreement", name, WRONG).begin()
    (path,) = (home / "agreement").iterdir()
    whole = path.read_bytes()
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert KeyUse(home / "agreement", name, RIGHT).begun
    path.write_bytes(whole)
    assert not KeyUse(home / "agreement", name, RIGHT).begun
