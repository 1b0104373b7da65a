"""Materials of glTF files: base colour factor and texture, with the texture's sampler and transform.

As in habitat-sim's unlit rendering, other textures, the second UV set and alpha are ignored; factors and vertex colours
multiply the texture's bytes without gamma correction. Invalid parts are skipped with a warning: a material whose
texture is invalid keeps its factor.
"""

from __future__ import annotations

import base64
import binascii
import math
import urllib.parse
from typing import Any, NamedTuple

import numpy as np

from batchnav.errors import MeshError
from batchnav.scene.images import Images
from batchnav.scene.surface import PLAIN
from batchnav.types import Material, Texture

_SPECULAR = "KHR_materials_pbrSpecularGlossiness"
_TRANSFORM = "KHR_texture_transform"
_SOURCES = ("EXT_texture_webp", "KHR_texture_basisu")
"""Extensions with an alternative image, which takes precedence."""
WRAP = {10497: "repeat", 33648: "mirror", 33071: "clamp"}
MAGNIFY = {9728: "nearest", 9729: "linear"}
MINIFY = {
    **MAGNIFY, 9984: "nearest_mipmap_nearest", 9985: "linear_mipmap_nearest", 9986: "nearest_mipmap_linear",
    9987: "linear_mipmap_linear",
}  # fmt: skip
"""Names of the codes of samplers."""
_BROKEN = (KeyError, IndexError, TypeError, AttributeError, ValueError, OverflowError, MeshError, binascii.Error)


class MaterialUse(NamedTuple):
    """How a primitive uses a material: the material's row, and the transform of UVs."""

    row: int
    uv_matrix: np.ndarray | None = None
    """f64 [2, 3], applied to (u, v, 1); None: identity."""


class GltfMaterials:
    """Materials of a file's primitives, each read once. `document`: a `gltf._Document`."""

    def __init__(self, document, images: Images):
        self._document, self._images = document, images
        self._uses: dict[Any, MaterialUse] = {}
        self._textures: dict[int, int] = {}
        self.materials: list[Material] = []
        self.textures: list[Texture] = []

    def note(self, problem: str) -> None:
        """Record a problem for the warning about the file."""
        self._images.note(problem)

    def use(self, number: Any) -> MaterialUse:
        """Row and UV transform of material `number`; None: of white, for a primitive without a material."""
        key = number if number is None or isinstance(number, int) else str(number)
        if key not in self._uses:
            material, matrix = PLAIN, None
            if number is not None:
                try:
                    material, matrix = self._material(number)
                except _BROKEN as error:
                    self._images.note(f"material {_short(number)} ({_reason(error)})")
            self._uses[key] = MaterialUse(len(self.materials), matrix)
            self.materials.append(material)
        return self._uses[key]

    def _material(self, number: Any) -> tuple[Material, np.ndarray | None]:
        material = _row(self._document.tree.get("materials", []), number)
        base = material.get("pbrMetallicRoughness", {})
        specular = material.get("extensions", {}).get(_SPECULAR, {})
        factor = base.get("baseColorFactor", specular.get("diffuseFactor", [1.0] * 4))
        color = np.array(factor, np.float64)
        if color.shape != (4,) or not np.isfinite(color).all():
            self._images.note(f"material {number}'s colour ({_short(factor)})")
            color = np.ones(4)
        info = base.get("baseColorTexture", specular.get("diffuseTexture"))
        red, green, blue, alpha = np.clip(color, 0.0, 1.0).tolist()
        plain = Material((red, green, blue, alpha))
        if info is None:
            return plain, None
        try:
            texture, transform = self._texture(info["index"]), info.get("extensions", {}).get(_TRANSFORM)
            matrix = _uv_matrix(transform)
            uv_set = (transform or {}).get("texCoord", info.get("texCoord", 0))
        except _BROKEN as error:
            self._images.note(f"material {number}'s texture ({_reason(error)})")
            return plain, None
        if uv_set != 0:
            self._images.note(f"material {number}'s TEXCOORD_{_short(uv_set)} (TEXCOORD_0 is read, as in habitat-sim)")
        return (plain, None) if texture is None else (plain._replace(texture=texture), matrix)

    def _texture(self, number: Any) -> int | None:
        """Row of a texture; None if its image is invalid."""
        if number in self._textures:
            return self._textures[number]
        entry = _row(self._document.tree.get("textures", []), number)
        extensions = entry.get("extensions", {})
        source = entry.get("source")
        for name in _SOURCES:
            source = extensions.get(name, {}).get("source", source)
        if source is None:
            named = ", ".join(map(str, extensions)) or "no image"
            raise MeshError(f"found {named}, expected an image that can be read")
        pixels = self._images.read(source, f"image {source}", lambda: self._bytes(source))
        if pixels is None and source != entry.get("source") and "source" in entry:
            source = entry["source"]  # fallback for readers without the extension
            pixels = self._images.read(source, f"image {source}", lambda: self._bytes(source))
        if pixels is None:
            return None
        sampler = _row(self._document.tree.get("samplers", []), entry["sampler"]) if "sampler" in entry else {}
        wrap = _known(WRAP, sampler, "wrapS", 10497), _known(WRAP, sampler, "wrapT", 10497)
        magnify, minify = _known(MAGNIFY, sampler, "magFilter", 9729), _known(MINIFY, sampler, "minFilter", 9987)
        self._textures[number] = len(self.textures)
        self.textures.append(Texture(pixels, wrap, magnify, minify))
        return self._textures[number]

    def _bytes(self, number: Any) -> bytes:
        """Content of an image file; its declared type is ignored."""
        try:
            image = _row(self._document.tree.get("images", []), number)
            if "bufferView" in image:
                return bytes(self._document.view(image["bufferView"]))
            uri = image["uri"]
            if uri.startswith("data:"):
                return base64.b64decode(uri.partition(",")[2])
            return self._images.file(urllib.parse.unquote(uri))
        except _BROKEN as error:
            raise MeshError(_reason(error)) from error


def _uv_matrix(transform: dict | None) -> np.ndarray | None:
    """Matrix of a KHR_texture_transform: scale, rotation, then translation."""
    if transform is None:
        return None
    angle = float(transform.get("rotation", 0.0))
    (sx, sy), (ox, oy) = (np.array(transform.get(n, d), np.float64) for n, d in (("scale", [1, 1]), ("offset", [0, 0])))
    cosine, sine = math.cos(angle), math.sin(angle)
    matrix = np.array([[cosine * sx, sine * sy, ox], [-sine * sx, cosine * sy, oy]])
    if not np.isfinite(matrix).all():
        raise ValueError(f"{_TRANSFORM} that is not finite")
    return matrix


def _known(names: dict[int, str], sampler: dict, field: str, default: int) -> str:
    """Setting of a sampler; the default for values unknown to glTF."""
    value = sampler.get(field, default)
    return names.get(value if isinstance(value, int) else default, names[default])


def _row(rows: Any, number: Any) -> dict:
    """Entry `number` of a list of the file. IndexError for an invalid index."""
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number < len(rows):
        raise IndexError(f"index {_short(number)} of {len(rows)}")
    return rows[number]


def _short(value: Any) -> str:
    return str(value)[:40]


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, (MeshError, IndexError)) else f"{type(error).__name__}: {error}"
