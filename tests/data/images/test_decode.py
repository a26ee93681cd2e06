"""Images: every format and mode becomes upright pixels; what is no image is refused by name, with what it is."""

import struct
import zlib
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as pillow
from PIL import ImageOps

from data.images.drawings import drawn, packed
from regard.data.images.decode import BadImage, ImageFile, decode
from regard.settings.schema import Image

LOSSLESS = ("PNG", "WebP", "BMP", "TIFF", "PPM")


def array(image: pillow.Image) -> np.ndarray:
    return np.asarray(image)


def refused(content: bytes, name: str = "dog.jpg") -> str:
    with pytest.raises(BadImage) as caught:
        decode(content, name)
    assert str(caught.value).startswith(f"{name}: ")
    return str(caught.value)


@pytest.mark.parametrize("kind", LOSSLESS)
def test_a_lossless_format_keeps_every_pixel(kind: str) -> None:
    image = drawn()
    how = {"lossless": True} if kind == "WebP" else {}
    assert (array(decode(packed(image, kind, **how), "a")) == array(image)).all()


def test_jpeg_is_read_as_pillow_reads_it() -> None:
    content = packed(drawn(size=(40, 30)), "JPEG")
    with pillow.open(BytesIO(content)) as opened:
        assert (array(decode(content, "a")) == array(opened)).all()


@pytest.mark.parametrize("mode", ["L", "1", "P"])
def test_grey_one_bit_and_palette_become_the_same_colours(mode: str) -> None:
    image = drawn(mode=mode)
    assert (array(decode(packed(image), "a")) == array(image.convert("RGB"))).all()
    assert (array(decode(packed(image), "a", grey=True)) == array(image.convert("L"))).all() or mode == "P"


def test_sixteen_bits_are_the_upper_eight() -> None:
    numbers = np.arange(0, 65536, 911, dtype=np.uint16).reshape(8, 9)
    for kind in ("PNG", "TIFF"):
        found = decode(packed(pillow.fromarray(numbers), kind), "a", grey=True)
        assert (array(found) == numbers >> 8).all()


def test_transparency_is_seen_on_white() -> None:
    image = pillow.new("RGBA", (2, 1), (200, 0, 0, 255))
    image.putpixel((1, 0), (9, 9, 9, 0))
    assert array(decode(packed(image), "a")).tolist() == [[[200, 0, 0], [255, 255, 255]]]
    half = pillow.new("LA", (1, 1), (0, 128))
    assert array(decode(packed(half), "a", grey=True)).item() in (126, 127, 128)


def test_a_transparent_colour_of_a_palette_is_seen_on_white() -> None:
    image = pillow.new("P", (2, 1), 0)
    image.putpalette([10, 20, 30, 40, 50, 60])
    image.putpixel((1, 0), 1)
    for transparency in (1, bytes([255, 0])):
        found = decode(packed(image, transparency=transparency), "a")
        assert array(found).tolist() == [[[10, 20, 30], [255, 255, 255]]]


def test_cmyk_becomes_rgb() -> None:
    image = pillow.new("CMYK", (16, 16), (0, 255, 255, 0))
    red = array(decode(packed(image, "JPEG", quality=100), "a"))[8, 8]
    assert red[0] > 200
    assert max(red[1:]) < 60


def test_of_an_animation_the_first_frame_is_read() -> None:
    frames = [pillow.new("RGB", (4, 4), colour) for colour in ("red", "blue")]
    for kind in ("GIF", "WebP", "PNG"):
        content = packed(frames[0], kind, save_all=True, append_images=frames[1:], **(
            {"lossless": True} if kind == "WebP" else {}))
        assert array(decode(content, "a"))[0, 0].tolist() == [255, 0, 0]


@pytest.mark.parametrize("turn", range(1, 9))
@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WebP", "TIFF"])
def test_an_image_stands_upright_whatever_its_exif_orientation(kind: str, turn: int) -> None:
    exif = pillow.Exif()
    exif[0x0112] = turn
    content = packed(drawn(size=(16, 8)), kind, exif=exif)
    with pillow.open(BytesIO(content)) as opened:
        upright = array(ImageOps.exif_transpose(opened).convert("RGB"))
    assert upright.shape[:2] == ((8, 16) if turn < 5 else (16, 8))
    assert (array(decode(content, "a")) == upright).all()


@given(st.binary(max_size=80))
def test_damaged_exif_is_no_reason_to_refuse_an_image(exif: bytes) -> None:
    assert decode(packed(drawn(), exif=b"Exif\0\0II*\0" + exif), "a").size in ((9, 7), (7, 9))


@pytest.mark.parametrize(("content", "why"), [
    (b"", "the file is empty"),
    (b"not an image\n", "text: 'not an image'"),
    (b"<!DOCTYPE html><p>404", "a web page"),
    (b"<?xml version='1.0'?>\n<svg width='1'/>", "an SVG drawing"),
    (b"%PDF-1.7 ...", "a PDF"),
    (b"\0\0\0\x18ftypheic", "an HEIC image; convert it"),
    (b"\0" * 100, "only zero bytes"),
    (b"\x07\x01\x02\x03 and so on", "unknown format, 07 01 02 03"),
    (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
])
def test_what_is_no_image_is_refused_with_what_it_looks_like(content: bytes, why: str) -> None:
    assert why in refused(content)


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "WebP", "GIF", "BMP"])
def test_a_file_that_is_cut_short_is_refused(kind: str) -> None:
    content = packed(drawn(size=(64, 64)), kind)
    why = refused(content[: len(content) // 2])
    assert "cut short" in why or "damaged" in why


def test_an_image_of_60_000_by_60_000_is_refused_by_its_header() -> None:
    """If its pixels were read, they would take 10 GB, and the rest of the file is missing."""
    header = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    content = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk)) + \
        struct.pack(">I", 4) + b"IDAT"
    assert "60,000 × 60,000 pixels" in refused(content, "bomb.png")


def test_an_image_without_pixels_is_refused() -> None:
    content = bytearray(packed(drawn(), "BMP"))
    content[18:22] = struct.pack("<i", 0)
    assert "a BMP of 0 pixels" in refused(bytes(content))


def outcome(content: bytes) -> str:
    """What a user sees of it."""
    try:
        return f"{decode(content, 'dog.jpg').size}"
    except BadImage as error:
        return str(error)


@settings(max_examples=300)
@given(st.sampled_from(["PNG", "JPEG", "WebP", "GIF", "BMP", "TIFF", "PPM"]), st.data())
def test_a_damaged_image_is_decoded_or_refused_by_name(kind: str, data: st.DataObject) -> None:
    content = bytearray(packed(drawn(size=(12, 10)), kind))
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    assert outcome(bytes(content[: data.draw(st.integers(0, len(content)))])).startswith(("dog.jpg: ", "("))


@given(st.binary(max_size=200), st.sampled_from([b"", b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF89a", b"II*\0"]))
def test_any_bytes_are_refused_or_decoded(junk: bytes, start: bytes) -> None:
    assert outcome(start + junk).startswith(("dog.jpg: ", "("))


def test_a_path_that_cannot_be_read_is_refused_by_name(tmp_path: Path) -> None:
    for path, why in ((tmp_path / "none.png", "no such file"), (tmp_path, "is a directory"),
                      (Path("a\0b.png"), "cannot be read")):
        with pytest.raises(BadImage, match=why):
            ImageFile(str(path)).pixels(Image(size=4))


# Scaling


def pixels(image: pillow.Image, **settings: object) -> np.ndarray:
    return ImageFile("a", packed(image)).pixels(Image(**settings))  # type: ignore[arg-type]


def test_the_shorter_side_is_scaled_and_the_middle_cut_out() -> None:
    image = drawn(size=(20, 10))
    wide = image.resize((16, 8), pillow.Resampling.BICUBIC).crop((5, 1, 11, 7))
    found = pixels(image, size=6, resize=8, resample="bicubic")
    assert (found == array(wide).transpose(2, 0, 1)).all()


def test_stretching_scales_both_sides() -> None:
    image = drawn(size=(20, 10))
    found = pixels(image, size=6, fit="stretch", resample="bilinear")
    assert (found == array(image.resize((6, 6), pillow.Resampling.BILINEAR)).transpose(2, 0, 1)).all()


def test_grey_images_have_one_channel() -> None:
    assert pixels(drawn(), size=4, grey=True).shape == (1, 4, 4)


@given(st.integers(1, 40), st.integers(1, 40), st.integers(1, 9), st.sampled_from(["crop", "stretch"]))
def test_any_size_becomes_the_size_of_the_model(width: int, height: int, size: int, fit: str) -> None:
    assert pixels(drawn(size=(width, height)), size=size, fit=fit).shape == (3, size, size)


def test_of_a_very_long_image_only_the_middle_is_scaled() -> None:
    """Otherwise it would be 224 times 6,720,000 pixels."""
    assert pixels(pillow.new("L", (30_000, 1), 7), size=224).shape == (3, 224, 224)


def test_pixels_in_memory_are_read_as_they_are() -> None:
    made = np.random.default_rng(0).integers(0, 256, (3, 5, 5), np.uint8)
    again = ImageFile.of("a", made, is_fitted=True).pixels(Image(size=5, resize=8))
    assert (again == made).all()


@pytest.mark.parametrize(("settings", "processor"), [
    ({"size": 24, "fit": "stretch"}, ("ViTImageProcessorPil", {"size": {"height": 24, "width": 24}})),
    ({"size": 24, "resample": "bicubic"}, ("CLIPImageProcessorPil", {
        "size": {"shortest_edge": 24}, "crop_size": {"height": 24, "width": 24}})),
    ({"size": 24, "resize": 32, "resample": "bicubic"}, ("BitImageProcessorPil", {
        "size": {"shortest_edge": 32}, "crop_size": {"height": 24, "width": 24}})),
])
def test_the_pixels_are_those_of_transformers_image_processors(
        settings: dict[str, object], processor: tuple[str, dict[str, object]]) -> None:
    transformers = pytest.importorskip("transformers")
    import torch

    from regard.data.images.pixels import normalized

    name, how = processor
    reader = getattr(transformers, name, None)
    if reader is None:
        pytest.skip(f"transformers has no {name}")
    reader = reader(**how)
    image = Image(mean=tuple(reader.image_mean), std=tuple(reader.image_std), **settings)  # type: ignore[arg-type]
    for size in ((50, 37), (31, 60), (24, 24), (10, 13)):
        given = drawn(size=size)
        ours = normalized(torch.from_numpy(ImageFile("a", packed(given)).pixels(image))[None], image)
        theirs = torch.tensor(np.array(reader(images=given)["pixel_values"]))
        torch.testing.assert_close(ours, theirs, atol=1e-5, rtol=0)
