"""The kind of a file by its first bytes and by its name. It is asked before torch is imported."""

import re

__all__ = ["ARCHIVES", "ENDINGS", "START", "described", "format_of", "has_image_ending", "is_archive"]

START = 512  # bytes of a file that tell its kind
ENDINGS = ("jpg", "jpeg", "jpe", "jfif", "png", "webp", "gif", "bmp", "tif", "tiff", "pgm", "ppm")
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tgz", ".tar.xz", ".txz", ".tar.bz2", ".tbz2")

FORMATS = {"JPEG": rb"\xff\xd8\xff", "PNG": rb"\x89PNG\r\n\x1a\n", "WebP": rb"RIFF....WEBP", "GIF": rb"GIF8[79]a",
           "BMP": rb"BM....\0\0\0\0", "TIFF": rb"II\*\0|MM\0\*", "PPM": rb"P[1-6]\s"}
# Files that are often taken for images, or called so.
OTHERS = {
    "an HEIC image; convert it to JPEG or PNG": rb"....ftyp(heic|heix|mif1|msf1|heim|heis|hevc)",
    "an AVIF image; convert it to JPEG or PNG": rb"....ftyp(avif|avis)",
    "a JPEG 2000 image; convert it to JPEG or PNG": rb"\0\0\0\x0cjP  |\xff\x4f\xff\x51",
    "a JPEG XL image; convert it to JPEG or PNG": rb"\xff\x0a|\0\0\0\x0cJXL ",
    "a Photoshop file; convert it to JPEG or PNG": rb"8BPS",
    "an icon; convert it to PNG": rb"\0\0\x01\0",
    "a video": rb"....ftyp|\x1aE\xdf\xa3|RIFF....AVI ",
    "a sound": rb"RIFF....WAVE|ID3|fLaC|OggS",
    "a PDF": rb"%PDF",
    "a zip archive": rb"PK\x03\x04|PK\x05\x06",
    "a gzip": rb"\x1f\x8b",
    "an xz archive": rb"\xfd7zXZ\0",
    "a bzip2 archive": rb"BZh",
    "a tar archive": rb".{257}ustar",
    "a NumPy array": rb"\x93NUMPY",
    "a pointer of Git LFS; fetch the file with `git lfs pull`": rb"version https://git-lfs",
}
MARKUP = re.compile(rb"(?i)\s*(<!doctype html|<html)"), re.compile(rb"(?is)\s*(<\?xml.*)?<svg")
CONTROLS = bytes({*range(32)} - {*b"\t\n\f\r\x1b"}) + b"\x7f"


def _pattern(start: bytes) -> re.Pattern[bytes]:
    return re.compile(start, re.DOTALL)


IMAGES = {name: _pattern(start) for name, start in FORMATS.items()}
NO_IMAGES = {name: _pattern(start) for name, start in OTHERS.items()}


def format_of(content: bytes) -> str | None:
    """The format of an image that can be read.

    >>> format_of(b"GIF89a and so on"), format_of(b"hello")
    ('GIF', None)
    """
    return next((name for name, start in IMAGES.items() if start.match(content)), None)


def described(content: bytes) -> str:
    """A content that is no image, in words.

    >>> described(b"To be, or not to be"), described(b"<!DOCTYPE html>"), described(b"%PDF-1.7")
    ("text: 'To be, or not to be'", 'a web page', 'a PDF')
    """
    start = content[:START]
    if not start.strip(b"\0"):
        return "only zero bytes"
    if name := next((name for name, pattern in NO_IMAGES.items() if pattern.match(start)), None):
        return name
    if MARKUP[0].match(start):
        return "a web page"
    if MARKUP[1].match(start):
        return "an SVG drawing; convert it to PNG"
    if start.translate(None, CONTROLS) != start:
        return f"bytes of an unknown format, {start[:4].hex(' ')} …"
    text = start.decode(errors="replace")
    line = next(line.strip() for line in [*text.splitlines(), text] if line.strip() or line is text)
    return f"text: {line[:30]!r}"


def has_image_ending(name: str) -> bool:
    """
    >>> [has_image_ending(name) for name in ("a/dog.JPG", "1000268201.jpg#0", "dog.txt", "jpg")]
    [True, False, False, False]
    """
    stem, _, ending = name.rpartition("/")[2].rpartition(".")
    return bool(stem) and ending.lower() in ENDINGS


def is_archive(name: str) -> bool:
    """
    >>> [is_archive(name) for name in ("cifar10_train.tar.xz", "photos.ZIP", "labels.csv.gz")]
    [True, True, False]
    """
    return name.lower().endswith(ARCHIVES)
