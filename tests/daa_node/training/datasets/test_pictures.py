"""Pictures of MNIST's and CIFAR's formats: what is read, and what is refused before training."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from daa_node.errors import UserError
from daa_node.training.data_config import DataConfig
from daa_node.training.data_places import DataFile, OwnFiles
from daa_node.training.datasets import pictures
from daa_node.training.datasets.catalogue import open_examples
from daa_node.training.datasets.files import LOCK, Wanted, open_wanted
from daa_node.training.datasets.pictures import PICTURES_HEAD, Labelled, map_cifar, map_idx
from daa_node.training.model_config import ModelConfig
from tests.daa_node.training.datasets.picture_files import bars, write_cifar, write_idx

MODEL = ModelConfig(kind="cnn", depth=2, width=8, picture_side=12)


@pytest.mark.parametrize("packed", [False, True])
def test_idx_pictures_are_examples_packed_or_not(tmp_path: Path, packed: bool) -> None:
    pixels, labels = bars(40, 12)
    examples = open_examples(write_idx(tmp_path, pixels, labels, packed), MODEL, tmp_path / "c")
    assert (examples.train_count, examples.heldout_count, examples.tokens_each) == (30, 10, 1)
    batch = examples.train(np.array([0, 3, 29]))  # of every four the last is held out
    rows = [0, 4, 38]
    assert (batch.targets == labels[rows]).all()
    expected = pixels[rows].reshape(3, 144).astype(np.float32) / np.float32(255) - np.float32(0.5)
    assert batch.inputs.tobytes() == expected.tobytes()
    assert (examples.heldout(np.array([1])).targets == labels[7]).all()


def test_packed_and_unpacked_files_have_one_digest_and_are_unpacked_once(tmp_path: Path) -> None:
    made = [write_idx(tmp_path / str(packed), *bars(40, 12), packed) for packed in (False, True)]
    plain, packed = ((data.digest, data.labels and data.labels.digest) for data in made)
    assert plain == packed
    cache = tmp_path / "cache"
    open_examples(made[1], MODEL, cache)
    stamps_ns = {file: file.stat().st_mtime_ns for file in cache.glob("[!.]*")}
    assert len(stamps_ns) == 2
    open_examples(made[1], MODEL, cache)
    assert {file: file.stat().st_mtime_ns for file in cache.glob("[!.]*")} == stamps_ns


def test_pictures_are_mapped_and_not_read(tmp_path: Path) -> None:
    data = write_idx(tmp_path, *bars(40, 12))
    assert data.labels is not None
    pictures, labels = (
        open_wanted(Wanted(path, None, "data.path"), tmp_path)
        for path in (data.path, data.labels.path)
    )
    found = map_idx(pictures, labels, 12)
    assert isinstance(found.pixels_NF, np.memmap)
    assert isinstance(found.labels_N, np.memmap)
    (tmp_path / "cifar").write_bytes(bytes(2 * 3073))
    content = open_wanted(Wanted(tmp_path / "cifar", None, "data.path"), tmp_path)
    assert isinstance(map_cifar(content, 1).pixels_NF, np.memmap)


def test_cifar_records_are_examples_and_the_finer_label_counts(tmp_path: Path) -> None:
    pixels = np.random.default_rng(3).integers(0, 256, (20, 3, 32, 32)).astype(np.uint8)
    fine = np.arange(20, dtype=np.uint8)
    cases = {
        "cifar10": (fine[:, None] % 10, fine % 10),
        "cifar100": (np.stack([fine % 5, 80 + fine], axis=1), 80 + fine),
    }
    for kind, (labels, expected) in cases.items():
        write_cifar(tmp_path / kind, pixels, labels.astype(np.uint8))
        data = DataConfig.model_validate({"kind": kind, "path": tmp_path / kind})
        model = ModelConfig(
            kind="mlp",
            depth=1,
            width=8,
            picture_side=32,
            picture_channels=3,
            classes=10 if kind == "cifar10" else 100,
        )
        batch = open_examples(data, model, tmp_path / "cache").train(np.arange(18))
        rows = [*range(9), *range(10, 19)]
        assert (batch.targets == expected[rows]).all()
        found = np.round((batch.inputs + 0.5) * 255).astype(np.uint8)
        assert (found == pixels[rows].reshape(18, -1)).all()


def cut(path: Path) -> None:
    os.truncate(path, path.stat().st_size - 1)


def lengthen(path: Path) -> None:
    os.truncate(path, path.stat().st_size + 1)


def overwrite(content: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        path.write_bytes(content)

    return change


@pytest.mark.parametrize(
    ("file", "change", "words"),
    [
        ("pictures", cut, "its header promises 5776 bytes, it has 5775"),
        ("pictures", lengthen, "its header promises 5776 bytes, it has 5777"),
        ("pictures", overwrite(PICTURES_HEAD.pack(0x803, 0, 12, 12)), "promises 16 bytes, it has"),
        ("pictures", overwrite(PICTURES_HEAD.pack(0x803, 40, 12, 11)), "have 12 x 11 pixels"),
        ("pictures", overwrite(b""), "no pictures in idx"),
        ("pictures", overwrite(b"\0\0\x08\x01" + bytes(12)), "it starts with 00 00 08 01, not"),
        ("labels", overwrite(b"\0\0\x08\x01\0\0\0\x27" + bytes(39)), "39 labels, and .* 40 pic"),
        ("labels", overwrite(b"\0\0\x08\x01\0\0\0\x29" + bytes(41)), "41 labels, and .* 40 pic"),
        (
            "labels",
            overwrite(b"\0\0\x08\x01\0\0\0\x28" + bytes(38) + b"\x0a\0"),
            "picture 38 is 10, the model knows only 10",
        ),
        ("labels", Path.unlink, "labels:1: cannot read the file: No such file.*data.labels"),
    ],
)
def test_damaged_pictures_are_named_with_what_is_wrong(
    tmp_path: Path, file: str, change: Callable[[Path], None], words: str
) -> None:
    data = write_idx(tmp_path, *bars(40, 12))
    assert data.labels is not None
    unpinned = {"digest": None, "labels": data.labels.model_copy(update={"digest": None})}
    change(tmp_path / file)
    with pytest.raises(UserError, match=words) as refused:
        open_examples(data.model_copy(update=unpinned), MODEL, tmp_path / "cache")
    assert str(tmp_path / file) in str(refused.value)


def test_every_label_is_looked_at_piece_by_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pictures, "SCAN_LABELS", 10)
    labels = np.zeros(34, np.uint8)
    labels[33] = 9
    found = Labelled(np.zeros((34, 1), np.uint8), labels)
    found.check_classes(10, tmp_path)
    with pytest.raises(UserError, match="the label of picture 33 is 9, .* only 9 classes"):
        found.check_classes(9, tmp_path)


def test_pictures_of_another_size_are_refused(tmp_path: Path) -> None:
    data = write_idx(tmp_path, *bars(40, 12))
    model = MODEL.model_copy(update={"picture_side": 14})
    with pytest.raises(UserError, match="have 12 x 12 pixels, and the model is for 14 x 14"):
        open_examples(data, model, tmp_path / "cache")


def test_a_cifar_file_of_the_other_kind_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cifar").write_bytes(bytes(4 * 3073))
    content = open_wanted(Wanted(tmp_path / "cifar", None, "data.path"), tmp_path)
    with pytest.raises(UserError, match="no whole number of CIFAR records of 3074"):
        map_cifar(content, 2)
    (tmp_path / "cifar").write_bytes(b"")
    with pytest.raises(UserError, match="0 bytes are no whole number of CIFAR records"):
        map_cifar(content, 1)


@pytest.mark.parametrize("file", ["pictures", "labels"])
def test_one_byte_that_differs_is_refused_with_the_digest_it_should_have(
    tmp_path: Path, file: str
) -> None:
    data = write_idx(tmp_path, *bars(40, 12))
    content = bytearray((tmp_path / file).read_bytes())
    content[-1] ^= 1
    (tmp_path / file).write_bytes(content)
    with pytest.raises(UserError) as refused:
        open_examples(data, MODEL, tmp_path / "cache")
    labels = data.labels or DataFile()
    digest = data.digest if file == "pictures" else labels.digest
    assert f"the genesis names {digest}" in str(refused.value)
    assert str(tmp_path / file) in str(refused.value)


def test_a_packed_file_that_was_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"all the world's a stage " * 999)[:-9])
    with pytest.raises(UserError, match="text.gz:1: gzip cannot unpack it"):
        open_wanted(Wanted(path, None, "data.path"), tmp_path / "cache")
    assert [left.name for left in (tmp_path / "cache").iterdir()] == [LOCK]


def test_a_file_that_only_begins_as_a_packed_one_is_taken_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "tokens.bin"
    path.write_bytes(gzip.compress(b"no text"))
    assert open_wanted(Wanted(path, None, "data.path"), tmp_path / "cache").path == path


def test_data_that_are_named_by_digest_alone_ask_for_their_place(tmp_path: Path) -> None:
    data = DataConfig(kind="text", digest="ab" * 32)
    with pytest.raises(UserError, match=f"blake3 {data.digest}, and no place: .*data.path"):
        open_examples(data, ModelConfig(), tmp_path)


def test_own_pictures_need_labels_of_their_own(tmp_path: Path) -> None:
    common = write_idx(tmp_path / "heldout", *bars(40, 12))
    data = common.model_copy(update={"kind": "local", "format": "idx"})
    own = write_idx(tmp_path / "own", *bars(30, 12, seed=1))
    assert own.labels is not None
    files = OwnFiles(path=own.path, labels=own.labels.path)
    examples = open_examples(data, MODEL, tmp_path / "cache", files)
    assert (examples.train_count, examples.heldout_count) == (30, 40)
    with pytest.raises(UserError, match=r"no place: say in config.yaml, data\.own\.labels, where"):
        open_examples(data, MODEL, tmp_path / "cache", OwnFiles(path=own.path))
