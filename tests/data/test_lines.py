"""One reader turns every file and stream into lines, or says where it cannot."""

import gzip
import os
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from regard.data.lines import read_lines
from regard.settings.errors import UserError

LINE = st.text(st.characters(exclude_characters="\n\r\0", exclude_categories=["Cs"]))


def lines(data: bytes) -> list[str]:
    return list(read_lines(BytesIO(data), "in.txt"))


def refusal(source: Path | BytesIO, name: str = "in.txt") -> str:
    with pytest.raises(UserError) as caught:
        list(read_lines(source, name))
    assert caught.value.exit_code == 2
    return str(caught.value)


@settings(max_examples=1000)
@given(st.lists(LINE))
def test_lines_survive_there_and_back_again(texts: list[str]) -> None:
    plain = "".join(text + "\n" for text in texts).encode()
    # A mark at the very start is an encoding's, not the text's.
    expected = [texts[0].removeprefix("\ufeff"), *texts[1:]] if texts else []
    assert lines(plain) == expected


@settings(max_examples=1000)
@given(st.lists(LINE, min_size=1))
def test_crlf_reads_as_lf(texts: list[str]) -> None:
    assert lines("".join(text + "\r\n" for text in texts).encode()) == lines(("\n".join(texts) + "\n").encode())


@settings(max_examples=1000)
@given(st.binary() | st.binary().map(lambda b: b"\x1f\x8b\x08\0" + b) | st.binary().map(gzip.compress))
@example(b"\xff\xfe")
@example(b"\xef\xbb\xbf")
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any-bytes"
    path.write_bytes(data)
    for source in (path, BytesIO(data)):
        refused = ""
        try:
            assert all("\n" not in line for line in read_lines(source, "any"))
        except UserError as error:
            refused = str(error)
        assert not refused or refused.startswith("any:")


def test_only_a_line_feed_ends_a_line() -> None:
    odd = "a\u2028b\u2029c\u0085d\x1ce\x1df\x0bg\x0ch\ri"
    assert lines(f"{odd}\nnext".encode()) == [odd, "next"]


def test_a_byte_order_mark_is_dropped() -> None:
    assert lines("\ufeffeins\nzwei\n".encode()) == ["eins", "zwei"]


def test_an_empty_stream_has_no_lines() -> None:
    assert lines(b"") == []


def test_a_last_line_needs_no_end() -> None:
    assert lines(b"a\n\nb") == ["a", "", "b"]


def test_a_line_of_ten_megabytes_is_one_line() -> None:
    assert [len(line) for line in lines(b"x" * 10_000_000 + b"\ny\n")] == [10_000_000, 1]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32"])
def test_another_unicode_encoding_is_named_with_the_way_out(encoding: str) -> None:
    message = refusal(BytesIO("eins\n".encode(encoding)))
    assert message.startswith("in.txt:1:")
    assert f"iconv -f {encoding.upper()} -t UTF-8" in message


def test_latin_1_is_named_with_its_line_and_offset() -> None:
    message = refusal(BytesIO("gut\nschön\n".encode("latin-1")))
    assert message.startswith("in.txt:2: byte 0xf6 at offset 7 is not UTF-8; it looks like Latin-1")


def test_the_offset_counts_the_byte_order_mark() -> None:
    assert "at offset 4 " in refusal(BytesIO(b"\xef\xbb\xbfa\xff"))


def test_windows_text_is_not_taken_for_latin_1() -> None:
    assert "Latin-1" not in refusal(BytesIO("„gut“\n".encode("cp1252")))


def test_a_nul_byte_is_named_with_its_line_and_offset() -> None:
    assert refusal(BytesIO(b"one\ntw\0o\n")).startswith("in.txt:2: NUL byte at offset 6")


@pytest.mark.parametrize("name", ["text.gz", "text"])
def test_a_gzip_is_known_by_its_content(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"eins\nzwei\n"))
    assert list(read_lines(path, "x")) == ["eins", "zwei"]


def test_a_gzip_cut_short_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(b"eins\nzwei\n" * 1000)[:-12])
    assert refusal(path, str(path)).startswith(f"{path}: the gzip is cut short")


@pytest.mark.parametrize("place", [12, -6])
def test_a_corrupt_gzip_is_named(tmp_path: Path, place: int) -> None:
    data = bytearray(gzip.compress(b"eins\nzwei\n" * 1000))
    data[place] ^= 0xFF
    path = tmp_path / "text.gz"
    path.write_bytes(data)
    assert refusal(path, str(path)).startswith(f"{path}: not a valid gzip")


def test_plain_text_called_gz_is_named(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    path.write_text("eins\n")
    assert refusal(path, str(path)).startswith(f"{path}: not a valid gzip")


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none", "none") == "none: no such file"


def test_a_directory_is_no_file(tmp_path: Path) -> None:
    assert "is a directory" in refusal(tmp_path, "here")


def test_a_file_without_permission_is_named(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    path.write_text("eins\n")
    path.chmod(0)
    with somebody():
        assert refusal(path, "secret") == "secret: no permission to read it"


@contextmanager
def somebody() -> Iterator[None]:
    """As a user to whom permissions apply: root may read everything."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_refused_at_once_as_data_is_read_more_than_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tsv")
    read, write = os.pipe()
    for path in (tmp_path / "pipe.tsv", Path(f"/dev/fd/{read}")):
        with pytest.raises(UserError, match="is a pipe, not a regular file; save its content to a file"):
            list(read_lines(path, "pipe"))
    os.close(read)
    os.close(write)
