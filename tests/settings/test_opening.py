"""Files are opened so that nothing hangs, and nothing is written through a link."""

import os
import socket
from pathlib import Path

import pytest

from regard.settings.errors import UserError
from regard.settings.opening import own_folder, refuse_irregular, remove, replacing, to_read, to_write

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes here")


@pytest.fixture
def odd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """A pipe, a socket, and links to a pipe and to a device."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "to pipe").symlink_to(tmp_path / "pipe")
    (tmp_path / "to zero").symlink_to("/dev/zero")
    with socket.socket(socket.AF_UNIX) as end, monkeypatch.context() as patch:
        patch.chdir(tmp_path)  # the name of a socket must be short
        end.bind("socket")
    return [tmp_path / name for name in ("pipe", "socket", "to pipe", "to zero")]


def test_what_is_no_regular_file_is_refused_at_once_and_named(odd: list[Path]) -> None:
    for path in [*odd, Path("/dev/zero")]:
        with pytest.raises(UserError, match=r"is a (pipe|socket|device), not a regular file") as refusal:
            refuse_irregular(path)
        assert str(refusal.value).startswith(f"{path}: ")
        for mode in ("wb", "ab", "r+b", "a+b"):
            with (pytest.raises(UserError, match=r"not a regular file|is a symbolic link"),
                  open(path, mode, opener=to_write)):
                pass


def test_a_link_is_followed_to_read_and_refused_to_write(tmp_path: Path) -> None:
    precious, link, dangling = tmp_path / "precious", tmp_path / "link", tmp_path / "dangling"
    precious.write_bytes(b"keep me")
    link.symlink_to(precious)
    dangling.symlink_to(tmp_path / "new")
    with open(link, "rb", opener=to_read) as file:
        assert file.read() == b"keep me"
    for path in (link, dangling):
        for mode in ("wb", "ab", "r+b", "a+b"):
            with pytest.raises(UserError, match="is a symbolic link"), open(path, mode, opener=to_write):
                pass
    assert precious.read_bytes() == b"keep me"
    assert not (tmp_path / "new").exists()


def test_a_file_of_two_names_is_read_and_not_written(tmp_path: Path) -> None:
    precious, link = tmp_path / "precious", tmp_path / "link"
    precious.write_bytes(b"keep me")
    os.link(precious, link)
    for mode in ("wb", "ab", "r+b", "a+b"):
        with pytest.raises(UserError, match="is one of 2 names of a file"), open(link, mode, opener=to_write):
            pass
    with open(link, "rb", opener=to_read) as file:
        assert file.read() == b"keep me"
    with replacing(link) as file:
        file.write(b"new")
    assert precious.read_bytes() == b"keep me"
    with open(precious, "ab", opener=to_write) as file:  # it has one name again
        file.write(b"!")


def test_opening_to_write_is_as_ever_where_no_link_is(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with open(path, "w", opener=to_write, encoding="utf-8") as file:
        file.write("long ago")
    with open(path, "w", opener=to_write, encoding="utf-8") as file:
        file.write("one")
    with open(path, "a", opener=to_write, encoding="utf-8") as file:
        file.write(", two")
    assert path.read_text(encoding="utf-8") == "one, two"
    assert path.stat().st_mode & 0o777 == 0o666 & ~_umask()
    with pytest.raises(FileExistsError), open(path, "xb", opener=to_write):
        pass
    with pytest.raises(FileNotFoundError), open(tmp_path / "none", "rb", opener=to_read):
        pass
    for opener, mode in ((to_read, "rb"), (to_write, "ab")):
        with pytest.raises(IsADirectoryError), open(tmp_path, mode, opener=opener):
            pass


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


def test_a_file_is_replaced_whole_or_not_at_all_and_never_what_a_link_in_its_way_leads_to(tmp_path: Path) -> None:
    path, precious = tmp_path / "run.json", tmp_path / "precious"
    precious.write_bytes(b"keep me")
    for name in ("run.json", ".run.json.tmp"):
        (tmp_path / name).symlink_to(precious)
    with replacing(path) as file:
        file.write(b"new")
    assert not path.is_symlink()
    with pytest.raises(TypeError), replacing(path) as file:
        file.writelines([b"half", None])  # type: ignore[list-item]
    assert path.read_bytes() == b"new"
    assert precious.read_bytes() == b"keep me"
    assert sorted(item.name for item in tmp_path.iterdir()) == ["precious", "run.json"]


def test_a_linked_folder_inside_a_run_is_refused_and_only_the_link_is_ever_removed(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious").write_bytes(b"keep me")
    (tmp_path / "checkpoints").symlink_to(elsewhere)
    with pytest.raises(UserError, match="checkpoints: is a symbolic link"):
        own_folder(tmp_path / "checkpoints")
    remove(tmp_path / "checkpoints")
    assert (elsewhere / "precious").read_bytes() == b"keep me"
    assert own_folder(own_folder(tmp_path / "checkpoints")).is_dir()
    remove(elsewhere)
    remove(elsewhere)
    assert not elsewhere.exists()
