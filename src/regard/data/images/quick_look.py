"""A quick look at data: whether it holds images. It needs neither numpy nor torch, which take seconds to import."""

from collections.abc import Sequence
from pathlib import Path

from regard.data.images.formats import has_image_ending, is_archive
from regard.data.images.idx import idx_files
from regard.data.images.tables import names_images, tables_of
from regard.data.images.trees import Folder, Tar, tree_of
from regard.data.layout import DOCUMENTS, is_directory, kind
from regard.data.splits import split_of
from regard.settings.errors import UserError

__all__ = ["are_images"]

FIRST_NAMES = 200  # names of a tar that tell whether it holds images


def are_images(paths: Sequence[Path]) -> bool:
    """Whether data holds images, as far as a quick look at names and at the first lines of tables tells.

    It needs neither numpy nor torch. Of data that cannot be read it says no: whoever reads it says why.
    """
    try:
        return bool(paths) and any(map(_has_images, paths))
    except (UserError, OSError, ValueError):
        return False


def _has_images(path: Path) -> bool:
    if not is_directory(path):
        tree = Folder(path.parent)
        return bool(idx_files([path.name])) or has_image_ending(path.name) or (
            _packs_images(path) if is_archive(path.name) else
            bool(tables_of([path.name])) and names_images(tree, path.name))
    folder = Folder(path)
    top = sorted(entry.name for entry in path.iterdir() if entry.is_file())
    if idx_files(top):
        return True
    if tables := tables_of(top):
        if any(names_images(folder, name) for name in tables):
            return True
        if any(split_of(Path(name)) for name in tables):
            return False
    if any(split_of(Path(name)) and kind(Path(name)) not in DOCUMENTS and not is_archive(name) for name in top):
        return False  # plain lines of `LABEL text`
    nested = (name for entry in sorted(path.iterdir()) if entry.is_dir() for name in Folder(entry).some_names())
    if any(map(has_image_ending, nested)) or any(_packs_images(path / name) for name in top if is_archive(name)):
        return True
    alone = sum(map(has_image_ending, top))  # without labels: whoever reads images says how to label them
    return alone > 0 and 2 * alone >= len(top)


def _packs_images(path: Path) -> bool:
    tree = tree_of(path)
    names = tree.first_names(FIRST_NAMES) if isinstance(tree, Tar) else tree.names
    return any(map(has_image_ending, names)) or bool(idx_files(names))
