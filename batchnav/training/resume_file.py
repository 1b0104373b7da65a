"""The file `resume.pt`: the learner's state in torch's format, compressed, followed by its SHA-256.

`torch.load` reads the file: torch's format is a zip archive, whose members are deflated here. Maps compress to a few
per cent of their size, because most cells are unexplored.
"""

from __future__ import annotations

import hashlib
import io
import zipfile
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from batchnav.errors import CheckpointError
from batchnav.runtime.files import read_regular, replacing

_SEAL = b"sha256:"
"""Prefix of the last 71 bytes, the checksum. They follow torch's file; torch ignores them."""
_FASTEST = 1
"""Compression level of zlib. Higher levels take several times as long and save a few per cent."""


class ResumeFile:
    """Writes and reads `resume.pt`. A thread serializes, compresses and writes, while training continues.

    Args:
        path: the file.
    """

    def __init__(self, path: Path):
        self.path = path
        self._thread = ThreadPoolExecutor(1, "save")
        self._written: Future[None] | None = None

    def load(self) -> dict[str, Any]:
        """The saved state, tensors on the CPU. Errors of torch and zlib for a damaged file pass through."""
        return torch.load(io.BytesIO(_unsealed(self.path)), map_location="cpu", weights_only=True)

    def save(self, state: dict[str, Any]) -> None:
        """Write the state atomically in the background; its tensors must not change meanwhile.

        Waits for the previous save. CheckpointError if that one failed.
        """
        self.finish()
        self._written = self._thread.submit(self._write, state)

    def finish(self) -> None:
        """Wait until the last save is on disk. CheckpointError if it failed."""
        written, self._written = self._written, None
        if written is not None:
            written.result()

    def close(self) -> None:
        """`finish`, and end the thread."""
        try:
            self.finish()
        finally:
            self._thread.shutdown()

    def _write(self, state: dict[str, Any]) -> None:
        content = io.BytesIO()
        torch.save(state, content)
        packed = _deflated(content)
        packed.write(_SEAL + hashlib.sha256(packed.getbuffer()).hexdigest().encode())
        with replacing(self.path, CheckpointError) as part:
            part.write_bytes(packed.getbuffer())


def _deflated(content: io.BytesIO) -> io.BytesIO:
    """The zip archive `content` with compressed members."""
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(content) as source,
        zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=_FASTEST) as target,
    ):
        for member in source.infolist():
            target.writestr(member.filename, source.read(member))
    return packed


def _unsealed(path: Path) -> bytes:
    """Content of a resume file without its checksum, after verification."""
    data = read_regular(path, CheckpointError)
    end = len(data) - len(_SEAL) - 64
    if not data[max(end, 0) :].startswith(_SEAL):
        raise ValueError("it has no checksum at its end")
    if hashlib.sha256(memoryview(data)[:end]).hexdigest().encode() != data[end + len(_SEAL) :]:
        raise ValueError("its SHA-256 differs from the stored one")
    return data[:end]
