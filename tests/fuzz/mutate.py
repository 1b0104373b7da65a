"""Ways to break a file: blindly, and knowing its structure so that more of it gets past the first check."""

from __future__ import annotations

import copy
import gzip
import json
import struct
import zlib

import numpy as np
import yaml
from safetensors.numpy import load, save

from batchnav.navmesh import file as navmesh_file

WORDS = [b"\xff\xff\xff\x7f", b"\xff\xff\xff\xff", b"\0\0\0\x80", b"\0\0\xc0\x7f", b"\0\0\x80\x7f", b"\0\0\0\0",
         b"\0\0\0\x10", b"\xca\xf2\x49\x71"]  # fmt: skip
"""Huge and negative counts, NaN, infinity, nothing, 2**28, 1e30."""
TOKENS = [b"NaN", b"1e999", b"-1", b"null", b"[]", b"{}", b'"x"', b"99999999999999999999", b"1e38", b"../../..", b"*"]
VALUES = [None, True, -1, 0, 1, 7, 2**31, 2**63, 10**400, 0.5, 1e38, -1e-38, 1e308, "", "x", "..", "a\0b", "**",
          "/dev/zero", "data:,", "/*/*/*/*", "*/" * 9, "\ud800", [], {},
          [[]], [1, 2, 3], ["x"] * 3, {"a": 1}]  # fmt: skip
"""Unusual values of JSON fields."""
EXTREMES = {
    "f": [np.nan, np.inf, -np.inf, 3e38, -1e30, 1e-40, 0.0, 1e6], "i": [-1, 0, 1, 2**31 - 1, -(2**31), 10**6],
    "u": [0, 1, 255, 6, 7], "b": [False, True],
}  # fmt: skip


_TENFOLD = [f"&a{k} [{', '.join([f'*a{k - 1}'] * 10)}]" for k in range(1, 10)]
YAML = [b"!!int a", b"2026-11-22", b"2026-99-99", b"&a [*a]", b"*nobody", b"{<<: 1}", b"{? [1]: 2}", b"!!binary '*'",
        b"!!python/name:os.system x", b"1e-3", b".nan", b"-.inf", b"0x7f", b"1:30", b"~", b"yes", b"'", b"|", b"\t- a",
        b"[" * 3000, b"9" * 5000, b"x" * 10**6, b"- " * 50, f"[&a0 [1], {', '.join(_TENFOLD)}]".encode(),
        b"\n  <<: {<<: {}}"]  # fmt: skip
"""What a line of YAML may hold that nobody thought of: tags, dates, anchors, a bomb of aliases, depth."""


BLOCKS = ("vertices", "polygons", "details", "detail_vertices", "detail_triangles", "bv_nodes", "low", "high")
"""Of a navmesh's tile."""


def blindly(data: bytes, draw: np.random.Generator) -> bytes:
    """Bits flipped, words and tokens overwritten, parts repeated or cut out, the end cut off."""
    broken = bytearray(data)
    for _ in range(draw.integers(1, 4)):
        at, kind = int(draw.integers(len(broken) or 1)), draw.integers(7)
        end = at + 1 + (int(draw.integers(60)) >> int(draw.integers(7)))  # most often a few bytes
        if kind == 0 and broken:
            broken[at] ^= 1 << int(draw.integers(8))
        elif kind == 1:
            broken[at // 4 * 4 : at // 4 * 4 + 4] = WORDS[draw.integers(len(WORDS))]
        elif kind == 2:
            broken[at:end] = TOKENS[draw.integers(len(TOKENS))]
        elif kind == 3:
            broken[at:at] = broken[at:end] * int(draw.integers(1, 50))
        elif kind == 4:
            del broken[at:end]
        elif kind == 5 and draw.integers(3) == 0:
            del broken[at:]
        elif kind == 6 and len(broken) > 8:  # an inflated length, most often in the head
            at = int(draw.integers(min(len(broken) - 4, 256)))
            (value,) = struct.unpack_from("<I", broken, at)
            struct.pack_into("<I", broken, at, (value * int(draw.integers(2, 1000)) + 1) % 2**32)
    return bytes(broken)


def digit(data: bytes, draw: np.random.Generator) -> bytes:
    """Replace one digit of a text by another."""
    places = [k for k, byte in enumerate(data) if chr(byte).isdigit()]
    changed = bytearray(data)
    changed[places[draw.integers(len(places))]] = ord("0") + draw.integers(10)
    return bytes(changed)


def json_value(value, draw: np.random.Generator):
    """A JSON value with a few of its parts replaced, left out, repeated or nested."""
    value = copy.deepcopy(value)
    for _ in range(draw.integers(1, 3)):
        holder = value
        while True:
            if not isinstance(holder, (dict, list)) or not holder:
                break
            at = int(draw.integers(len(holder)))
            key = list(holder)[at] if isinstance(holder, dict) else at
            if isinstance(holder[key], (dict, list)) and holder[key] and draw.integers(5):
                holder = holder[key]
                continue
            kind = draw.integers(7)
            if kind == 0:
                del holder[key]
            elif kind == 1 and isinstance(holder, list):
                holder += [copy.deepcopy(holder[key]) for _ in range(draw.integers(1, 200))]
            elif kind == 2:
                holder[key] = [holder[key]]
            elif kind in (3, 4) and isinstance(holder[key], (int, float)):
                holder[key] = holder[key] * int(draw.integers(-2, 1000))
            else:
                holder[key] = copy.deepcopy(VALUES[draw.integers(len(VALUES))])
            break
    return value


def json_text(data: bytes, draw: np.random.Generator) -> bytes:
    """JSON, gzipped or not."""
    zipped = data[:2] == b"\x1f\x8b"
    text = json.dumps(json_value(json.loads(gzip.decompress(data) if zipped else data), draw)).encode()
    return gzip.compress(text, 1) if zipped else text


def yaml_text(data: bytes, draw: np.random.Generator) -> bytes:
    """YAML with other values, with lines left out, or with what only YAML can say in place of a value."""
    kind, lines = draw.integers(3), data.split(b"\n")
    if kind == 0:
        return yaml.safe_dump(json_value(yaml.safe_load(data), draw)).encode()
    at = int(draw.integers(len(lines)))
    if kind == 1:
        del lines[at : at + int(draw.integers(1, 4))]
    else:
        lines[at] = lines[at].partition(b":")[0] + b": " + YAML[draw.integers(len(YAML))]
    return b"\n".join(lines)


def glb(data: bytes, draw: np.random.Generator) -> bytes:
    """A GLB whose JSON, or whose numbers, are others; its lengths are right again."""
    (length,) = struct.unpack_from("<I", data, 12)
    tree, binary = json.loads(data[20 : 20 + length]), data[28 + length :]
    if draw.integers(2):
        tree = json_value(tree, draw)
    else:
        binary = blindly(binary, draw)
    return pack_glb(tree, binary)


def pack_glb(tree: dict, binary: bytes) -> bytes:
    """A GLB file of these two parts."""
    text = json.dumps(tree).encode()
    text += b" " * (-len(text) % 4)
    chunks = struct.pack("<2I", len(text), 0x4E4F534A) + text + struct.pack("<2I", len(binary), 0x004E4942) + binary
    return struct.pack("<3I", 0x46546C67, 2, 12 + len(chunks)) + chunks


def array(values: np.ndarray, draw: np.random.Generator) -> np.ndarray:
    """An array with some numbers replaced or mixed up, or fewer rows."""
    values = values.copy()
    if values.dtype.names:
        field = values.dtype.names[draw.integers(len(values.dtype.names))]
        changed = array(values[field], draw)
        values[field][: len(changed)] = changed
        return values
    if not values.size:
        return values
    flat = values.reshape(-1)
    for _ in range(draw.integers(1, 4)):
        kind = draw.integers(4)
        if kind == 0:
            extremes = EXTREMES[values.dtype.kind]
            flat[draw.integers(len(flat))] = np.array(extremes[draw.integers(len(extremes))]).astype(values.dtype)
        elif kind == 1:
            flat[draw.integers(len(flat))] = flat[draw.integers(len(flat))]
        elif kind == 2:
            flat.view(np.uint8)[draw.integers(flat.nbytes)] ^= 1 << int(draw.integers(8))
        elif values.ndim and draw.integers(4) == 0:
            values = values[: draw.integers(len(values) + 1)]
            flat = values.reshape(-1)
            if not flat.size:
                break
    return values


def scene(data: bytes, draw: np.random.Generator) -> bytes:
    """A prepared scene with other arrays or metadata, its check sums right again."""
    arrays = load(data)
    header = json.loads(data[8 : 8 + struct.unpack_from("<Q", data)[0]])
    metadata = header["__metadata__"]
    with np.errstate(all="ignore"):
        for _ in range(draw.integers(1, 3)):
            name = sorted(arrays)[draw.integers(len(arrays))]
            if name == "navmesh":
                arrays[name] = np.frombuffer(navmesh(load(data)[name].tobytes(), draw), np.uint8)
            elif name == "nodes" and draw.integers(2):
                nodes = arrays[name].copy()
                links = array(nodes.view(np.int32)[:, 12:14], draw)
                nodes.view(np.int32)[: len(links), 12:14] = links
                arrays[name] = nodes
            else:
                arrays[name] = array(arrays[name], draw)
    metadata["sums"] = json.dumps({name: zlib.crc32(np.ascontiguousarray(values)) for name, values in arrays.items()})
    if draw.integers(5) == 0:
        key = sorted(metadata)[draw.integers(len(metadata))]
        metadata[key] = ["", "[" * 1000, "-1", "9" * 5000, "{}"][draw.integers(5)]
    return save({name: np.ascontiguousarray(values) for name, values in arrays.items()}, metadata)


def policy(data: bytes, draw: np.random.Generator) -> bytes:
    """A policy with other tensors, or other settings, without the check sum that would tell."""
    tensors = load(data)
    metadata = json.loads(data[8 : 8 + struct.unpack_from("<Q", data)[0]])["__metadata__"]
    del metadata["sha256"]
    if draw.integers(3) == 0:
        name = sorted(tensors)[draw.integers(len(tensors))]
        changed = array(tensors.pop(name), draw)
        kinds = changed, changed.astype(np.float16), changed[None], changed.reshape(-1)[:0]
        tensors[[name, name + "x"][int(draw.integers(5) == 0)]] = kinds[max(0, int(draw.integers(-4, 4)))]
    else:
        key = ("policy", "observations", "num_actions", "info")[draw.integers(4)]
        value = json_value({"": json.loads(metadata[key])}, draw)
        texts = json.dumps(value.get("", 0)), "[" * 5000, "9" * 5000, "", "{" + '"a":{' * 5000
        metadata[key] = texts[max(0, int(draw.integers(-8, 5)))]
    return save({name: values.copy() for name, values in tensors.items()}, metadata)


def navmesh(data: bytes, draw: np.random.Generator) -> bytes:
    """A navmesh with other blocks, counts that fit them, tiles repeated or moved; or with other counts."""
    if draw.integers(4) == 0:
        broken = bytearray(data)
        at = int(draw.integers(min(len(broken), 300) // 4)) * 4
        broken[at : at + 4] = WORDS[draw.integers(len(WORDS))]
        return bytes(broken)
    file = navmesh_file.parse(data, "whole")
    tiles = []
    with np.errstate(all="ignore"):
        for tile in file.tiles:
            field = BLOCKS[draw.integers(len(BLOCKS))]
            values = getattr(tile, field).copy()
            changed = array(values, draw)
            if field in ("low", "high"):
                values[: len(changed)] = changed
                changed = values
            tiles.append(tile._replace(**{field: changed}))
    if draw.integers(3) == 0:
        copies = enumerate(tiles * int(draw.integers(2, 40)))
        tiles = [tile._replace(x=k % 3, y=k // 3 % 3, layer=k // 9) for k, tile in copies]
    return navmesh_file.serialise(file._replace(tiles=tiles, references=list(range(len(tiles)))))
