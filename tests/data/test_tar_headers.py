"""Headers of tar archives from strangers: sizes are bounded before they are read."""

import gzip
import io
import tarfile
import tracemalloc

import pytest

from batchnav.data import download as downloading
from batchnav.data.download import DownloadError


def header(kind, size, name="a"):
    """A tar header with a size of any sign."""
    info = tarfile.TarInfo(name)
    info.type = kind
    block = bytearray(info.tobuf(tarfile.GNU_FORMAT))
    block[124:136] = b"%011o\0" % size if size >= 0 else size.to_bytes(12, "big", signed=True)
    block[148:156] = b" " * 8
    block[148:156] = b"%06o\0 " % sum(block)
    return bytes(block)


EXTENDED = [tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK]


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
@pytest.mark.parametrize("kind, size", [(tarfile.REGTYPE, -512), *((kind, 3 * 2**29) for kind in EXTENDED)])
@pytest.mark.parametrize("before", [b"", header(tarfile.REGTYPE, 0)])
def test_tar_headers_are_bounded_before_they_are_read(pack, kind, size, before, tmp_path):
    path = tmp_path / "a.tar.gz"
    path.write_bytes(pack(before + header(kind, size) + bytes(2**20)))
    tracemalloc.start()
    with pytest.raises(DownloadError, match=rf"found (a member|an extended header) of {size} bytes"):
        downloading.unpack(path, tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**25 and not (tmp_path / "out").exists()


def test_a_size_in_a_pax_record_is_checked(tmp_path):
    record = b"13 size=-512\n"
    data = header(tarfile.XHDTYPE, len(record)) + record.ljust(512, b"\0") + header(tarfile.REGTYPE, 0) + bytes(1024)
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(DownloadError, match=r"-512 bytes|cannot be unpacked"):
        downloading.unpack(tmp_path / "a.tar", tmp_path / "out")


def test_all_tar_headers_together_are_bounded(monkeypatch, tmp_path):
    monkeypatch.setattr(downloading, "MAX_HEADERS", 10_000)
    name = header(tarfile.GNUTYPE_LONGNAME, 1024) + b"n" * 100 + bytes(924) + header(tarfile.REGTYPE, 0)
    (tmp_path / "a.tar").write_bytes(20 * name + bytes(1024))
    with pytest.raises(DownloadError, match=r"bytes in all, expected at most 65536 and 10000"):
        downloading.unpack(tmp_path / "a.tar", tmp_path / "out")


def test_long_names_are_unpacked(tmp_path):
    for kind in (tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        with tarfile.open(tmp_path / "a.tar", "w", format=kind) as archive:
            info = tarfile.TarInfo("/".join(["n" * 60] * 4 + ["é.glb"]))
            info.size = 5
            archive.addfile(info, io.BytesIO(b"hello"))
        (file,) = downloading.unpack(tmp_path / "a.tar", tmp_path / f"out{kind}")
        assert file.name == "é.glb" and file.read_bytes() == b"hello"


def test_members_without_end_are_refused(monkeypatch, tmp_path):
    monkeypatch.setattr(downloading, "MAX_FILES", 2000)
    (tmp_path / "a.tar.gz").write_bytes(gzip.compress(100_000 * header(tarfile.REGTYPE, 0) + bytes(1024), 1))
    tracemalloc.start()
    with pytest.raises(DownloadError, match="found more than 2000 files, expected fewer"):
        downloading.unpack(tmp_path / "a.tar.gz", tmp_path / "out")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2**23


@pytest.mark.parametrize("is_pax", [False, True])
def test_sparse_files_are_refused(is_pax, tmp_path):
    data = header(tarfile.GNUTYPE_SPARSE, 512) + bytes(2048)
    if is_pax:
        records = b"22 GNU.sparse.major=1\n22 GNU.sparse.minor=0\n"
        data = header(tarfile.XHDTYPE, len(records)) + records.ljust(512, b"\0") + header(tarfile.REGTYPE, 512)
        data += b"9" * 512 + bytes(1024)
    (tmp_path / "a.tar").write_bytes(data)
    with pytest.raises(DownloadError, match="found a sparse file, expected whole ones"):
        downloading.unpack(tmp_path / "a.tar", tmp_path / "out")
