"""Image files as RGBA textures of bytes, without colour profiles, as in OpenGL."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import io
import warnings
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from batchnav.config import bounded
from batchnav.errors import MeshError, few, printable
from batchnav.runtime.files import read_named_file
from batchnav.scene.textures import halved

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "TGA", "TIFF", "WEBP")
MOST_PIXELS = 2**28
"""Largest number of pixels of an image file (16,384 x 16,384), since a small file may claim any size."""
FREE_PIXELS, PIXELS_PER_BYTE = 2**26, 128
"""Number of pixels that all images of a mesh file may have, and number of further ones for each byte of its files."""
_STRIP = 2**20
"""Number of pixels that are converted at a time."""
_DEEP = {"F": 1.0} | dict.fromkeys(("I", "I;16", "I;16B", "I;16L", "I;16N"), 65535.0)
"""White value of float and 16-bit greyscale modes of Pillow; mode "I" may have 32 bits."""
_KTX2 = b"\xabKTX 20\xbb\r\n\x1a\n"


@dataclass(frozen=True)
class AppearanceConfig:
    """Settings for reading the appearance of surfaces."""

    largest_texture: int = bounded(4096, 1, 16384)
    """Largest side of a texture, texels; larger textures are halved repeatedly."""
    ids: bool = True
    """Also read the mesh with the ids, if that is another file than the mesh with the colours."""


class Images:
    """Images of one mesh file, each decoded once. Collects problems, which `warn` reports together.

    A small file may hold large images, so their pixels are counted before they are decoded.

    Args:
        path: the mesh file.
        config: settings.
        size: bytes of the mesh file.
    """

    def __init__(self, path: Path, config: AppearanceConfig, size: int):
        self.path, self._largest = path, config.largest_texture
        self._left = FREE_PIXELS + PIXELS_PER_BYTE * size
        self._files: set[bytes] = set()
        self._found: dict[Hashable, np.ndarray | None] = {}
        self._decoded: dict[bytes, np.ndarray] = {}
        self._problems: dict[str, None] = {}
        self._shrunk: list[str] = []

    def read(self, key: Hashable, name: str, load: Callable[[], bytes]) -> np.ndarray | None:
        """RGBA u8 [h, w, 4] of an image whose bytes `load` returns; None, with a note, if it is invalid."""
        if key not in self._found:
            self._found[key] = None
            try:
                self._found[key] = self._pixels(name, load())
            except MeshError as error:
                self.note(f"{name} {error}")
        return self._found[key]

    def file(self, name: str) -> bytes:
        """Content of a file that the mesh file names (`runtime/files.py`); MeshError for invalid names."""
        data = read_named_file(self.path, name, MeshError)
        if (digest := _digest(data)) not in self._files:
            self._files.add(digest)
            self._left += PIXELS_PER_BYTE * len(data)
        return data

    def note(self, problem: str) -> None:
        """Record a problem for `warn`."""
        self._problems[problem] = None

    def warn(self) -> None:
        """Issue warnings for the recorded problems."""
        if self._problems:
            problems = printable(few(list(self._problems), separator="; "))
            warnings.warn(f"{self.path}: some parts of the appearance cannot be read and are ignored: {problems}",
                          stacklevel=2)  # fmt: skip
        if self._shrunk:
            warnings.warn(f"{self.path}: textures larger than largest_texture {self._largest} are reduced: "
                          f"{printable(few(self._shrunk, separator='; '))}", stacklevel=2)  # fmt: skip

    def _pixels(self, name: str, data: bytes) -> np.ndarray:
        """RGBA u8 [h, w, 4]; equal files give one array."""
        self._take(0, 0, len(data))
        digest = _digest(data)
        if digest not in self._decoded:
            self._decoded[digest] = (self._transcode if data.startswith(_KTX2) else self._decode)(name, data)
        return self._decoded[digest]

    def _take(self, width: int, height: int, size: int = 0) -> None:
        """Count pixels, and bytes as pixels. MeshError for more than are left."""
        if (number := width * height + size) > self._left:
            raise MeshError(
                f"has {width} x {height} pixels, expected at most {self._left:,}: the images of a file have "
                f"{FREE_PIXELS:,} pixels and {PIXELS_PER_BYTE} for each byte of its files at most"
            )
        self._left -= number

    def _decode(self, name: str, data: bytes) -> np.ndarray:
        image = open_image(data)
        self._take(*image.size)
        try:
            if max(image.size) > self._largest:
                self._shrunk.append(f"{name} of {image.width} x {image.height}")
                image.draft(None, (self._largest, self._largest))  # decodes a JPEG at a reduced size
            pixels = rgba(image)
            while max(pixels.shape[:2]) > self._largest:
                pixels = halved(pixels)
            return pixels
        except (MemoryError, MeshError):
            raise
        except Exception as error:  # any exception of the decoder on an invalid file
            raise MeshError(f"cannot be decoded ({type(error).__name__}: {error})") from error

    def _transcode(self, name: str, data: bytes) -> np.ndarray:
        """Largest permitted mip level of a KTX 2 file of Basis Universal (KHR_texture_basisu)."""
        if importlib.util.find_spec("opengl_basisu") is None:
            raise MeshError("is a KTX 2 file (KHR_texture_basisu), which needs the package opengl_basisu")
        try:
            texture = importlib.import_module("opengl_basisu").open(data)
            width, height = texture.width, texture.height
            self._take(width, height)
            if max(width, height) > self._largest:
                self._shrunk.append(f"{name} of {width} x {height}")
            level = 0
            while level + 1 < texture.levels and max(width, height) >> level > self._largest:
                level += 1
            pixels = texture.transcode("rgba8", level).data
        except (MemoryError, MeshError):
            raise
        except Exception as error:  # any exception of the decoder, also for a wrong size
            raise MeshError(f"cannot be decoded ({type(error).__name__}: {error})") from error
        while max(pixels.shape[:2]) > self._largest:
            pixels = halved(pixels)
        return pixels


def open_image(data: bytes, formats: tuple[str, ...] = FORMATS) -> Image.Image:
    """Open an image file without decoding it. MeshError where it is of no such format or larger than MOST_PIXELS."""
    limit = Image.MAX_IMAGE_PIXELS
    try:
        Image.MAX_IMAGE_PIXELS = None  # replaced by the limit below
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(io.BytesIO(data), formats=formats)
    except MemoryError:
        raise
    except Exception as error:
        raise MeshError(
            f"is not an image of {', '.join(formats)} ({len(data)} bytes, {type(error).__name__})"
        ) from error
    finally:
        Image.MAX_IMAGE_PIXELS = limit
    if not 0 < image.width * image.height <= MOST_PIXELS:
        raise MeshError(f"has {image.width} x {image.height} pixels, expected at most {MOST_PIXELS}")
    return image


def rgba(image: Image.Image) -> np.ndarray:
    """Decode an image to RGBA u8 [h, w, 4]; greyscale values are copied to all three channels.

    MeshError where greyscale values of more than 8 bits are outside 0 to 1 (floats) or 0 to 65535 (integers).
    """
    image.load()
    deep, white = image.mode in _DEEP, _DEEP.get(image.mode, 255.0)
    if deep:
        ends = [(strip.min(), strip.max()) for _, strip in _strips(image)]
        low, high = np.array(ends, np.float64).min(0)[0], np.array(ends, np.float64).max(0)[1]  # NaN where one is
        if not (low >= 0.0 and high <= white):
            raise MeshError(f"has grey values from {low:g} to {high:g}, expected 0 to {white:g}")
    pixels = np.empty((image.height, image.width, 4), np.uint8)
    for top, strip in _strips(image):
        if deep:
            grey = (strip.astype(np.float64) * (255.0 / white) + 0.5).astype(np.uint8)
            strip = np.asarray(Image.fromarray(grey).convert("RGBA"))
        pixels[top : top + len(strip)] = strip
    return pixels


def _strips(image: Image.Image) -> Iterator[tuple[int, np.ndarray]]:
    """First row and pixels of parts of an image, RGBA bytes unless grey values have more than 8 bits."""
    step = max(_STRIP // image.width, 1)
    for top in range(0, image.height, step):
        strip = image.crop((0, top, image.width, min(top + step, image.height)))
        yield top, np.asarray(strip if image.mode in _DEEP or strip.mode == "RGBA" else strip.convert("RGBA"))


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
