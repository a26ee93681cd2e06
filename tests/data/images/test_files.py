"""Finding images: the same images and labels, however they are laid out and packed; and hostile data is refused."""

import csv
import gzip
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import tracemalloc
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data.images.drawings import drawn, folder_of, packed
from regard.data.images import store
from regard.data.images.files import ImageCorpus, read_asked, read_captioned, read_labelled, read_tests
from regard.data.images.quick_look import are_images
from regard.data.images.store import write_stores
from regard.data.images.trees import Folder, Zip, leaves, tree_of
from regard.data.labelled import Columns
from regard.settings.errors import UserError
from regard.settings.schema import Image

COUNTS = {"cat": 5, "dog": 4}
PLAIN = Columns()


def labelled(*paths: Path, columns: Columns = PLAIN, share: float = 0.25) -> ImageCorpus:
    return read_labelled(paths, columns, share=share)


def captioned(*paths: Path, columns: Columns = PLAIN) -> ImageCorpus:
    return read_captioned(paths, columns, share=0.25)


def asked(*paths: Path) -> ImageCorpus:
    return read_asked(paths, PLAIN, share=0.25)


def sizes(corpus: ImageCorpus) -> dict[str, int]:
    return {split: len(found) for split, found in corpus.splits.items()}


def labels(corpus: ImageCorpus, split: str) -> list[str]:
    return sorted(label for found in corpus.splits[split] for label in found.texts)


def contents(corpus: ImageCorpus, split: str) -> dict[bytes, tuple[str, ...]]:
    """The bytes of every image, with its labels."""
    found = dict[bytes, tuple[str, ...]]()
    for each in corpus.splits[split]:
        for _, read in each.tree.contents([each.name]):
            content = read()
            found[Path(each.tree.place(each.name)).read_bytes() if content is None else content] = each.texts
    return found


def refused(read: Callable[..., ImageCorpus], *paths: Path, **how: Columns) -> str:
    with pytest.raises(UserError) as caught:
        read(*paths, **how)
    return str(caught.value)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Splits of folders of labels."""
    root = tmp_path / "photos"
    folder_of(root / "train", COUNTS, seed=1)
    folder_of(root / "val", {"cat": 1, "dog": 1}, seed=2)
    folder_of(root / "test", {"cat": 1, "dog": 2}, seed=3)
    return root


def zipped(root: Path, file: Path, *, start: str = "") -> Path:
    with zipfile.ZipFile(file, "w") as archive:
        for path in sorted(root.rglob("*.*")):
            archive.write(path, f"{start}{path.relative_to(root).as_posix()}")
    return file


def tarred(root: Path, file: Path, *, start: str = "") -> Path:
    mode = {".gz": "w:gz", ".tgz": "w:gz", ".xz": "w:xz", ".bz2": "w:bz2"}.get(file.suffix, "w")
    with tarfile.open(file, mode) as archive:  # type: ignore[call-overload]
        archive.add(root, start or ".")
    return file


# Folders and archives


def test_folders_of_splits_hold_folders_of_labels(photos: Path) -> None:
    corpus = labelled(photos)
    assert sizes(corpus) == {"train": 9, "val": 2, "test": 3}
    assert labels(corpus, "train") == ["cat"] * 5 + ["dog"] * 4
    assert labels(corpus, "test") == ["cat"] + ["dog"] * 2


def test_of_folders_of_labels_a_share_of_each_label_is_held_out(photos: Path) -> None:
    corpus = labelled(photos / "train")
    assert sizes(corpus) == {"train": 7, "val": 2}
    assert labels(corpus, "val") == ["cat", "dog"]
    assert "2 of 9 images of train are held out as val" in " ".join(corpus.notes)
    assert corpus.notes[0] == "2 labels, and the images of each: cat (5), dog (4)"


@pytest.mark.parametrize("start", ["", "photos/", "./", "home/me/photos/"])
@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "a.tgz", "a.tar.xz", "a.tar.bz2"])
def test_an_archive_holds_what_was_packed(tmp_path: Path, photos: Path, name: str, start: str) -> None:
    pack = zipped if name.endswith(".zip") else tarred
    whole, archive = labelled(photos), labelled(pack(photos, tmp_path / name, start=start))
    for split in whole.splits:
        assert contents(archive, split) == contents(whole, split)


def test_archives_of_splits_lie_in_a_folder(tmp_path: Path, photos: Path) -> None:
    packs = tmp_path / "packs"
    packs.mkdir()
    (packs / "README.md").write_text("about")
    tarred(photos / "train", packs / "pets_train.tar.xz", start="train")
    zipped(photos / "test", packs / "pets_test.zip")
    corpus = labelled(packs)
    assert sizes(corpus) == {"train": 7, "val": 2, "test": 3}
    assert contents(corpus, "test") == contents(labelled(photos), "test")
    both = labelled(packs / "pets_test.zip", packs / "pets_train.tar.xz")
    assert sizes(both) == sizes(corpus)


@pytest.mark.parametrize("names", [("training", "testing"), ("Train", "TEST"), ("train", "test_hard")])
def test_folders_of_splits_have_other_names_too(tmp_path: Path, names: tuple[str, str]) -> None:
    folder_of(tmp_path / names[0], COUNTS)
    folder_of(tmp_path / names[1], COUNTS, seed=9)
    test = "test" if names[1] == "testing" else names[1].lower()
    assert sizes(labelled(tmp_path)) == {"train": 7, "val": 2, test: 9}


def test_a_label_may_be_called_train(tmp_path: Path) -> None:
    folder_of(tmp_path, {"train": 4, "truck": 4, "test": 4})
    assert labels(labelled(tmp_path), "train") == ["test"] * 3 + ["train"] * 3 + ["truck"] * 3


def test_images_in_no_label_and_in_no_split_are_left_out_and_counted(tmp_path: Path, photos: Path) -> None:
    (photos / "cover.png").write_bytes(packed(drawn()))
    (photos / "train" / "stray.png").write_bytes(packed(drawn()))
    notes = " ".join(labelled(photos).notes)
    assert "1 of 16 images is left out, in no split's folder; the first is cover.png" in notes
    assert "1 of 16 images is left out, in no label's folder; the first is train/stray.png" in notes


def test_hidden_files_and_those_of_other_systems_are_no_images(tmp_path: Path) -> None:
    folder_of(tmp_path / "photos", COUNTS)
    for name in (".cache/x.png", "__MACOSX/cat/1.png", "cat/._001.png"):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "photos" / name).write_bytes(b"junk")
    assert sizes(labelled(tmp_path / "photos")) == {"train": 7, "val": 2}
    assert sizes(labelled(zipped(tmp_path / "photos", tmp_path / "a.zip"))) == {"train": 7, "val": 2}


def test_a_link_in_a_circle_ends(tmp_path: Path) -> None:
    folder_of(tmp_path / "photos", COUNTS)
    (tmp_path / "photos" / "cat" / "again").symlink_to(tmp_path / "photos")
    assert sizes(labelled(tmp_path / "photos")) == {"train": 7, "val": 2}


@pytest.mark.parametrize(("counts", "why"), [
    ({"cat": 3}, "all images have one label, 'cat'; at least two labels are needed"),
    ({}, "no image in it; expected a folder for each label"),
    ({f"{n}": 1 for n in range(12)}, "12 different labels of 12 images; is the label another folder or column?"),
    ({"cat": 1, "dog": 1}, "no label has two images, one to train on and one to measure by"),
])
def test_folders_from_which_nothing_can_be_learned_are_refused(tmp_path: Path, counts: dict[str, int],
                                                              why: str) -> None:
    (tmp_path / "photos").mkdir()
    assert why in refused(labelled, folder_of(tmp_path / "photos", counts))


def test_other_refusals_name_the_place_and_the_way_out(tmp_path: Path, photos: Path) -> None:
    (photos / "test" / "newt").mkdir()
    (photos / "test" / "newt" / "1.png").write_bytes(packed(drawn()))
    assert "photos/test/newt: unknown label 'newt'; train has cat, dog" in refused(labelled, photos)
    assert "no such file or directory" in refused(labelled, tmp_path / "nothing")
    assert "is one image; give a folder" in refused(labelled, photos / "train" / "cat" / "000.png")
    (tmp_path / "a.txt").write_text("x")
    assert "neither a folder nor an archive" in refused(labelled, tmp_path / "a.txt")
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "1.png").write_bytes(packed(drawn()))
    assert "flat: 1 image, but no folder for each label; put" in refused(labelled, tmp_path / "flat")


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read everything")
def test_a_folder_without_permission_is_refused(tmp_path: Path) -> None:
    folder_of(tmp_path / "photos", COUNTS)
    (tmp_path / "photos" / "cat").chmod(0)
    assert "cannot be read" in refused(labelled, tmp_path / "photos")
    (tmp_path / "photos" / "cat").chmod(0o700)


# Hostile archives


@pytest.mark.parametrize("name", ["../evil.png", "/etc/evil.png", "cat/../../evil.png", "C:\\evil.png", "..\\evil.png"])
def test_an_archive_whose_names_lead_out_of_it_is_refused(tmp_path: Path, name: str) -> None:
    assert leaves(name)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(name, packed(drawn()))
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(tarfile.TarInfo(name), io.BytesIO())
    for file in ("a.zip", "a.tar"):
        assert "leads out of the archive" in refused(labelled, tmp_path / file)


@pytest.mark.parametrize("kind", [tarfile.SYMTYPE, tarfile.LNKTYPE])
def test_an_archive_with_links_is_refused(tmp_path: Path, kind: bytes) -> None:
    member = tarfile.TarInfo("cat/1.png")
    member.type, member.linkname = kind, "/etc/passwd"
    with tarfile.open(tmp_path / "a.tar", "w") as tar:
        tar.addfile(member)
    info = zipfile.ZipInfo("cat/1.png")
    info.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr(info, "/etc/passwd")
    for file in ("a.zip", "a.tar"):
        assert "'cat/1.png' is a link" in refused(labelled, tmp_path / file)


def test_a_device_in_a_tar_is_no_image(tmp_path: Path) -> None:
    with tarfile.open(tarred(folder_of(tmp_path / "photos", COUNTS), tmp_path / "a.tar"), "a") as tar:
        for kind in (tarfile.FIFOTYPE, tarfile.CHRTYPE):
            member = tarfile.TarInfo("cat/device.png")
            member.type = kind
            tar.addfile(member)
    assert sizes(labelled(tmp_path / "a.tar")) == {"train": 7, "val": 2}


def test_an_archive_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    """Two gigabytes of zeros; in a tar a header claims them, so not even the archive is large."""
    info = tarfile.TarInfo("cat/1.png")
    info.size = 1 << 40
    (tmp_path / "a.tar").write_bytes(info.tobuf() + bytes(10_240))
    longest = tarfile.TarInfo("././@LongLink")
    longest.type, longest.size = tarfile.GNUTYPE_LONGNAME, 1 << 33
    (tmp_path / "b.tar").write_bytes(longest.tobuf(tarfile.GNU_FORMAT) + bytes(10_240))
    with zipfile.ZipFile(tmp_path / "a.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(40):
            archive.writestr(f"cat/{number}.png", bytes(1 << 20))
    content = bytearray((tmp_path / "a.zip").read_bytes())
    place = 0
    while (place := content.find(b"PK\x01\x02", place)) >= 0:  # the sizes that the directory tells
        content[place + 24 : place + 28] = struct.pack("<I", 1 << 30)
        place += 4
    (tmp_path / "a.zip").write_bytes(content)
    assert "would unpack to more than 1,000 times its size" in refused(labelled, tmp_path / "a.tar") + refused(
        labelled, tmp_path / "a.zip")
    assert "impossible size" in refused(labelled, tmp_path / "b.tar")


@pytest.mark.parametrize(("compression", "why"), [(zipfile.ZIP_DEFLATED, "a damaged member"),
                                                  (zipfile.ZIP_BZIP2, "compressed in an unusual way"),
                                                  (zipfile.ZIP_LZMA, "compressed in an unusual way")])
def test_a_member_of_a_zip_that_unpacks_to_more_than_it_says_takes_no_memory(
    tmp_path: Path, compression: int, why: str
) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w", compression) as archive, archive.open("cat/1.png", "w") as member:
        for _ in range(64):
            member.write(bytes(1 << 20))
    content = bytearray((tmp_path / "a.zip").read_bytes())
    place = content.rfind(b"PK\x01\x02")
    content[place + 24 : place + 28] = struct.pack("<I", 100)
    (tmp_path / "a.zip").write_bytes(content)
    tracemalloc.start()
    try:
        with pytest.raises(UserError, match=why):
            tree_of(tmp_path / "a.zip").read("cat/1.png")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz", "a.tar.xz", "a.tar.bz2"])
def test_an_archive_that_is_cut_short_is_refused(tmp_path: Path, photos: Path, name: str) -> None:
    file = (zipped if name == "a.zip" else tarred)(photos, tmp_path / name)
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    assert refused(labelled, file).startswith(f"{file}")


def test_few_bytes_of_an_archive_are_read_ahead_of_their_decoding(
    tmp_path: Path, photos: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else as many members of half a gigabyte as there are threads would be in memory at once."""
    corpus = labelled(zipped(photos, tmp_path / "a.zip"))
    monkeypatch.setattr(store, "BYTES_TOGETHER", 1)
    monkeypatch.setattr(store, "BYTES_AHEAD", 1)
    read = list[str]()
    content = Zip._content

    def counted(self: Zip, archive: zipfile.ZipFile, name: str, info: zipfile.ZipInfo) -> bytes:
        read.append(name)
        return content(self, archive, name, info)

    monkeypatch.setattr(Zip, "_content", counted)
    results = store._decoded(iter(store._jobs(corpus.splits)), Image(size=4))
    for number, _ in enumerate(results, 1):
        assert len(read) == number
    assert len(read) == sum(sizes(corpus).values())


def test_a_zip_with_a_password_is_refused(tmp_path: Path, photos: Path) -> None:
    file = zipped(photos, tmp_path / "a.zip")
    content = bytearray(file.read_bytes())
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        place = 0
        while (place := content.find(mark, place)) >= 0:
            content[place + at] |= 1
            place += 4
    file.write_bytes(content)
    corpus = labelled(file)
    with pytest.raises(UserError, match="has a password"):
        write_stores(corpus.splits, {split: tmp_path / f"{split}.npy" for split in corpus.splits}, Image(size=4))


def test_a_damaged_member_of_a_zip_is_one_bad_image(tmp_path: Path, photos: Path) -> None:
    file = zipped(photos, tmp_path / "a.zip")
    content = bytearray(file.read_bytes())
    place = content.find(b"IDAT")
    content[place + 8 : place + 12] = b"!!!!"
    file.write_bytes(content)
    corpus = labelled(file)
    kept = write_stores(corpus.splits, {split: tmp_path / f"{split}.npy" for split in corpus.splits}, Image(size=4))
    bad = [why for its in kept.values() for _, why in its.bad]
    assert len(bad) == 1
    assert "a damaged member of an archive (Bad CRC-32" in bad[0]


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("archives")


@settings(max_examples=60)
@given(st.sampled_from(["a.zip", "a.tar", "a.tar.gz", "a.tar.xz", "a.tar.bz2"]), st.data())
def test_a_damaged_archive_is_read_or_refused_by_name(scratch: Path, name: str, data: st.DataObject) -> None:
    if not (scratch / "photos").exists():
        folder_of(scratch / "photos", {"cat": 2, "dog": 2})
    file = (zipped if name == "a.zip" else tarred)(scratch / "photos", scratch / name)
    content = bytearray(file.read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    file.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    outcome = outcome_of(labelled, file)
    assert outcome.startswith((str(file), "("))
    assert are_images([file]) in (True, False)


@settings(max_examples=60)
@given(st.sampled_from(["a.zip", "a.tar", "a.tar.gz", "a.csv", "a.tsv", "a.jsonl", "train-images-idx3-ubyte"]),
       st.sampled_from([b"", b"PK\x03\x04", b"\x1f\x8b\x08", b"\0\0\x08\x03", b'{"image": "1.png", "label"']),
       st.binary(max_size=300))
def test_any_bytes_are_read_or_refused_by_name(scratch: Path, name: str, start: bytes, junk: bytes) -> None:
    folder = scratch / "junk"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    (folder / name).write_bytes(start + junk)
    (folder / "train-labels-idx1-ubyte").write_bytes(b"\0\0\x08\x01" + junk)
    for read in (labelled, captioned):
        assert outcome_of(read, folder / name).startswith((str(folder), "("))
    assert are_images([folder]) in (True, False)


def outcome_of(read: Callable[..., ImageCorpus], *paths: Path) -> str:
    """What a user sees of it."""
    try:
        return f"({len(read(*paths).splits)} splits)"
    except UserError as error:
        return str(error)


# Tables


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """A folder with eight images in it."""
    for place in range(8):
        (tmp_path / "pictures").mkdir(exist_ok=True)
        (tmp_path / "pictures" / f"{place}.png").write_bytes(packed(drawn(place)))
    return tmp_path


ROWS = [(f"pictures/{place}.png", ("cat", "dog")[place % 2]) for place in range(8)]


def written(file: Path, rows: list[tuple[str, str]], header: tuple[str, str] | None) -> Path:
    if file.name.removesuffix(".gz").endswith(".jsonl"):
        keys = header or ("image", "label")
        text = "".join(json.dumps(dict(zip(keys, row, strict=True))) + "\n" for row in rows)
    else:
        output = io.StringIO()
        between = "," if ".csv" in file.name else "\t"
        csv.writer(output, delimiter=between, lineterminator="\n").writerows([*([header] if header else []), *rows])
        text = output.getvalue()
    file.write_bytes(gzip.compress(text.encode()) if file.suffix == ".gz" else text.encode())
    return file


@pytest.mark.parametrize("name", ["a.csv", "a.tsv", "a.jsonl", "a.csv.gz", "a.tsv.gz", "a.jsonl.gz"])
@pytest.mark.parametrize("header", [None, ("path", "label"), ("image", "class"), ("file_name", "anything")])
def test_a_table_names_images_and_labels(pictures: Path, name: str, header: tuple[str, str] | None) -> None:
    corpus = labelled(written(pictures / name, ROWS, header))
    assert sizes(corpus) == {"train": 6, "val": 2}
    found = contents(corpus, "train") | contents(corpus, "val")
    assert found == {(pictures / path).read_bytes(): (label,) for path, label in ROWS}
    assert are_images([pictures / name])


def test_columns_are_chosen_by_name(pictures: Path) -> None:
    (pictures / "a.csv").write_text("id,kind,where\n" + "".join(
        f"{number},{label},{path}\n" for number, (path, label) in enumerate(ROWS)))
    columns = Columns("where", "kind")
    assert labels(labelled(pictures / "a.csv", columns=columns), "val") == ["cat", "dog"]
    assert "which column has the label? The first line has 'id', 'kind', 'where'; choose one with --target" in refused(
        labelled, pictures / "a.csv")
    assert "a.csv:1: --target colour: no such column" in refused(
        labelled, pictures / "a.csv", columns=Columns("where", "colour"))


def test_tables_of_splits_lie_beside_each_other(pictures: Path) -> None:
    written(pictures / "train.csv", ROWS[:6], None)
    written(pictures / "test.csv", ROWS[6:], None)
    for path in (pictures, pictures / "train.csv"):
        assert sizes(labelled(path)) == {"train": 5, "val": 1, "test": 2}
    packs = zipped(pictures, pictures.parent / f"{pictures.name}.zip")
    assert sizes(labelled(packs)) == {"train": 5, "val": 1, "test": 2}


def test_images_of_a_table_lie_in_a_folder_or_an_archive_beside_it(pictures: Path) -> None:
    rows = [(path.removeprefix("pictures/"), label) for path, label in ROWS]
    table = written(pictures / "a.tsv", rows, None)
    assert sizes(labelled(table)) == {"train": 6, "val": 2}
    zipped(pictures / "pictures", pictures / "pictures.zip")
    for path in (pictures / "pictures").iterdir():
        path.unlink()
    assert sizes(labelled(table)) == {"train": 6, "val": 2}
    apart = pictures / "apart"
    apart.mkdir()
    assert sizes(labelled(table.rename(apart / "a.tsv"), pictures / "pictures.zip")) == {"train": 6, "val": 2}


@pytest.mark.parametrize("kind", ["folder", "archive"])
@pytest.mark.parametrize("names", [("train", "test"), ("train_images", "test_images"), ("a/Training", "a/Testing")])
def test_images_of_the_same_name_are_those_of_the_split(tmp_path: Path, names: tuple[str, str], kind: str) -> None:
    if kind == "archive" and "/" in names[0]:
        names = "train", "test_new"
    for split, name in zip(("train", "test"), names, strict=True):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        for place in range(6):
            (folder / f"{place}.png").write_bytes(packed(drawn(place + 10 * (split == "test"))))
        written(tmp_path / f"{split}.csv", [(f"{place}.png", ("cat", "dog")[place % 2]) for place in range(6)], None)
        if kind == "archive":
            zipped(folder, tmp_path / f"{name}.zip")
            for file in folder.iterdir():
                file.unlink()
    corpus = labelled(tmp_path)
    for split, name in zip(("train", "val", "test"), (names[0], *names), strict=True):
        assert all(f"{tmp_path}/{name}" in found.tree.place(found.name) for found in corpus.splits[split])


def test_a_name_that_may_be_several_images_is_refused(tmp_path: Path) -> None:
    for folder in ("large", "small"):
        (tmp_path / folder).mkdir()
        for place in range(4):
            (tmp_path / folder / f"{place}.png").write_bytes(packed(drawn(place)))
    table = written(tmp_path / "a.csv", [(f"{place}.png", ("cat", "dog")[place % 2]) for place in range(4)], None)
    assert refused(labelled, table).startswith(f"{table}:1: 0.png may be {tmp_path}/large/0.png or {tmp_path}/small/")
    written(table, [(f"small/{place}.png", ("cat", "dog")[place % 2]) for place in range(4)], None)
    assert sum(sizes(labelled(table)).values()) == 4


def test_images_that_are_not_there_are_left_out_and_named(pictures: Path) -> None:
    table = written(pictures / "a.csv", [*ROWS, ("pictures/none.png", "cat")], None)
    notes = " ".join(labelled(table).notes)
    assert "1 of 9 lines names an image that is not there, and left out; the first is pictures/none.png" in notes
    assert "a.csv:9" in notes
    lost = written(pictures / "b.csv", [(f"gone/{path}", label) for path, label in ROWS], None)
    assert "b.csv:1: no image gone/pictures/0.png in" in refused(labelled, lost)


@pytest.mark.parametrize("path", ["../secret.png", "/etc/secret.png", "a/../../secret.png", "C:\\secret.png"])
def test_a_path_that_leaves_the_folder_is_refused(pictures: Path, path: str) -> None:
    table = written(pictures / "a.csv", [*ROWS, (path, "cat")], None)
    assert "a.csv:9: the path" in refused(labelled, table)
    assert "leads out of the folder" in refused(labelled, table)


@pytest.mark.parametrize(("text", "why"), [
    ("", "no image is named in it"),
    ("path,label\n", "no image is named in it"),
    ("a.png\nb.png\n", "a.csv:1: only one column; expected the path of an image and its label"),
    ("pictures/0.png,cat\npictures/1.png,dog,7\n", "a.csv:2: 3 columns, but the first line has 2"),
    ("pictures/0.png,cat\npictures/1.png,\n", "a.csv:2: no label"),
    ('pictures/0.png,"cat\n', "broken CSV"),
    ("name,what\nx,cat\n", "which column has the paths of images?"),
])
def test_a_table_that_cannot_be_read_is_refused_with_its_line(pictures: Path, text: str, why: str) -> None:
    (pictures / "a.csv").write_text(text)
    assert why in refused(labelled, pictures / "a.csv")


def test_several_lines_give_an_image_several_captions(pictures: Path) -> None:
    lines = [(f"{place}.png", f"{place} is number {number}") for place in range(8) for number in range(3)]
    expected = {(pictures / "pictures" / f"{place}.png").read_bytes(): tuple(
        caption for path, caption in lines if path == f"{place}.png") for place in range(8)}
    flickr = pictures / "Flickr8k.token.txt"
    flickr.write_text("".join(f"{path}#{row % 3}\t{caption}\n" for row, (path, caption) in enumerate(lines)))
    numbered = pictures / "numbered.tsv"
    numbered.write_text("".join(f"{path}\t{row % 3}\t{caption}\n" for row, (path, caption) in enumerate(lines)))
    lists = pictures / "lists.jsonl"
    lists.write_text("".join(json.dumps({"image": f"{place}.png", "captions": [
        caption for path, caption in lines if path == f"{place}.png"]}) + "\n" for place in range(8)))
    for table in (written(pictures / "a.csv", lines, ("image", "caption")), flickr, numbered, lists):
        corpus = captioned(table)
        assert contents(corpus, "train") | contents(corpus, "val") == expected
        assert sizes(corpus) == {"train": 6, "val": 2}


def test_labels_are_not_taken_for_captions_or_answers(photos: Path, mnist: Path) -> None:
    for path in (photos, photos / "train", photos / "train" / "cat", mnist):
        assert f"{path}: images without captions; give a table of their paths, captions;" in refused(captioned, path)
        assert "give a table of their paths, questions, answers;" in refused(asked, path)


def test_a_blank_caption_is_refused_with_its_line(pictures: Path) -> None:
    written(pictures / "a.tsv", [("pictures/0.png", "a dog"), ("pictures/1.png", " ")], None)
    assert "a.tsv:2: no caption" in refused(captioned, pictures / "a.tsv")


# IDX


def idx(numbers: np.ndarray) -> bytes:
    return struct.pack(f">HBB{numbers.ndim}I", 0, 8, numbers.ndim, *numbers.shape) + numbers.astype(np.uint8).tobytes()


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    root = tmp_path / "mnist"
    root.mkdir()
    for name, count in (("train", 20), ("t10k", 6)):
        images = np.random.default_rng(count).integers(0, 256, (count, 5, 4))
        (root / f"{name}-images-idx3-ubyte").write_bytes(idx(images))
        (root / f"{name}-labels-idx1-ubyte").write_bytes(idx(np.arange(count) % 3))
    return root


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_idx_files_are_read_as_they_are(mnist: Path, ending: str) -> None:
    if ending:
        for file in list(mnist.iterdir()):
            file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
            file.unlink()
    for data in (mnist, zipped_all(mnist)):
        corpus = labelled(data)
        assert sizes(corpus) == {"train": 17, "val": 3, "test": 6} or sizes(corpus)["test"] == 6
        assert labels(corpus, "test") == ["0", "0", "1", "1", "2", "2"]
        assert are_images([data])
    kept = write_stores({"test": corpus.splits["test"]}, {"test": mnist / "test.npy"}, Image(size=5, grey=True,
                                                                                            fit="stretch"))
    assert len(kept["test"].found) == 6


def zipped_all(root: Path) -> Path:
    file = root.with_suffix(".zip")
    with zipfile.ZipFile(file, "w") as archive:
        for path in root.iterdir():
            archive.write(path, path.name)
    return file


def test_the_pixels_of_idx_files_are_those_of_their_bytes(mnist: Path) -> None:
    numbers = np.arange(3 * 4 * 4).reshape(3, 4, 4)
    (mnist / "t10k-images-idx3-ubyte").unlink()
    (mnist / "train-images-idx3-ubyte").write_bytes(idx(numbers))
    (mnist / "train-labels-idx1-ubyte").write_bytes(idx(np.array([0, 0, 1])))
    corpus = labelled(mnist, share=0.01)
    found = {int(each.name): each for split in ("train", "val") for each in corpus.splits[split]}
    kept = write_stores({"all": [found[0], found[1], found[2]]}, {"all": mnist / "all.npy"}, Image(size=4, grey=True))
    assert len(kept["all"].found) == 3
    assert (np.load(mnist / "all.npy")[:, 0] == numbers).all()


@pytest.mark.parametrize(("file", "content", "why"), [
    ("train-images-idx3-ubyte", b"", "it begins with nothing"),
    ("train-images-idx3-ubyte", b"hello", "not an IDX file of bytes: it begins with 68 65 6c 6c"),
    ("train-images-idx3-ubyte", b"\0\0\x08\x03\0\0", "cut short in its header"),
    ("train-images-idx3-ubyte", idx(np.zeros((20, 5, 4)))[:-1], "its header tells of"),
    ("train-images-idx3-ubyte", idx(np.zeros((20, 0, 4))), "holds 20 × 0 × 4 numbers instead of images"),
    ("train-images-idx3-ubyte", struct.pack(">HBB3I", 0, 8, 3, 2**32 - 1, 2**32 - 1, 9), "its header tells of"),
    ("train-labels-idx1-ubyte", idx(np.zeros(19)), "holds 19 labels of 20 images"),
    ("train-labels-idx1-ubyte", None, "its labels are missing; expected them in"),
])
def test_damaged_idx_files_are_refused(mnist: Path, file: str, content: bytes | None, why: str) -> None:
    if content is None:
        (mnist / file).unlink()
    else:
        (mnist / file).write_bytes(content)
    assert why in refused(labelled, mnist)


# Other data, and the quick look


def test_of_other_data_the_tests_are_read(tmp_path: Path, photos: Path) -> None:
    assert sizes(read_tests(photos, PLAIN, ["cat", "dog"])) == {str(photos): 3}
    assert sizes(read_tests(photos / "train", PLAIN, ["cat", "dog"])) == {str(photos / "train"): 9}
    folder_of(photos / "test_hard", {"cat": 2})
    assert sizes(read_tests(photos, PLAIN, ["cat", "dog"])) == {f"{photos} test": 3, f"{photos} test_hard": 2}
    assert "unknown label 'cat'; the model knows dog" in refused(lambda path: read_tests(path, PLAIN, ["dog"]), photos)


def test_texts_are_no_images(tmp_path: Path) -> None:
    texts = tmp_path / "texts"
    texts.mkdir()
    (texts / "train.csv").write_text("text,label\nfine,good\nawful,bad\n")
    (texts / "figures").mkdir()
    (texts / "figures" / "a.png").write_bytes(packed(drawn()))
    (tmp_path / "tweets.csv").write_text("text,label\nlook at this: pic.jpg,good\n" + "no picture here,bad\n" * 9)
    assert not are_images([tmp_path / "tweets.csv"])
    (tmp_path / "empty.csv").write_text("")
    assert not are_images([tmp_path / "empty.csv"])
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "TREC.train.all").write_text("NUM how many")
    (plain / "cover.jpg").write_bytes(b"")
    (tmp_path / "empty").mkdir()
    for path in (texts, texts / "train.csv", plain, plain / "TREC.train.all", tmp_path / "empty", tmp_path / "none"):
        assert not are_images([path])
    assert not are_images([])


def test_images_are_seen_at_a_look(tmp_path: Path, photos: Path) -> None:
    cat = photos / "train" / "cat"  # images without folders of labels are seen, too: whoever reads them says what lacks
    for path in (photos, photos / "train", cat, cat / "000.png", zipped(photos, tmp_path / "a.zip"),
                 tarred(photos, tmp_path / "a.tar.gz")):
        assert are_images([path])


def test_the_quick_look_imports_neither_torch_nor_numpy_nor_pillow() -> None:
    source = ("import sys; from regard.data.images.quick_look import are_images; "
              "print([name for name in ('torch', 'numpy', 'PIL') if name in sys.modules])")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    found = subprocess.run([sys.executable, "-c", source], env=environment, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_a_folder_is_read_in_the_same_order_everywhere(tmp_path: Path) -> None:
    folder_of(tmp_path, {"b": 2, "a": 2})
    assert tree_of(tmp_path).names == Folder(tmp_path).names == ["a/000.png", "a/001.png", "b/000.png", "b/001.png"]
