"""Downloads of archives: resumed, checked, unpacked into Habitat's folders."""

import gzip
import hashlib
import io
import json
import shutil
import tarfile
import tracemalloc
import zipfile

import pytest
from file_server import CONTENT

from batchnav.data import download as downloading
from batchnav.data.download import GROUPS, SOURCES, DownloadError, Login, Source, download, is_present
from batchnav.data.files import read_json
from batchnav.errors import MeshError


def zipped(**files):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, data in files.items():
            archive.writestr(name.replace("__", "/").replace("_dot_", "."), data)
    return packed.getvalue()


def tarred(**files):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for name, data in files.items():
            info = tarfile.TarInfo(name.replace("__", "/").replace("_dot_", "."))
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))
    return packed.getvalue()


@pytest.fixture
def offer(server, monkeypatch):
    """Make a source known: offer(uid, path, data, **fields of Source)."""

    def add(uid, path, data, link="scene_datasets/mine", **fields):
        server.files[path] = data
        monkeypatch.setitem(
            SOURCES, uid, Source(server.url + path, link, "MIT", fields.pop("version", "1.0"), **fields)
        )

    return add


def test_an_archive_goes_where_habitat_puts_it(server, offer, tmp_path):
    offer("mine", "/mine_v1.0.zip", zipped(a__b_dot_glb=CONTENT))
    links = download(["mine"], tmp_path)
    link = tmp_path / "scene_datasets" / "mine"
    assert links == [link] and link.is_symlink()
    assert link.resolve() == tmp_path / "versioned_data" / "mine_1.0"
    assert (link / "a" / "b.glb").read_bytes() == CONTENT
    assert is_present("mine", SOURCES["mine"], tmp_path)
    assert [file.name for file in (tmp_path / "versioned_data" / ".downloads").iterdir()] == ["mine_v1.0.zip.sha256"]
    server.requests.clear()
    assert download(["mine"], tmp_path) == links and not server.requests  # it is there
    download(["mine"], tmp_path, replace=True)
    assert server.requests


def test_an_interrupted_download_goes_on(server, offer, tmp_path):
    data = zipped(a_dot_bin=CONTENT)
    offer("mine", "/mine.zip", data, sha256=hashlib.sha256(data).hexdigest())
    server.broken = [1_000_000, 3_000_000]
    download(["mine"], tmp_path)
    ranges = [headers.get("Range") for _, headers in server.requests]
    assert ranges[0] is None and ranges[1:] == ["bytes=1000000-", "bytes=3000000-"]


def test_a_server_that_sends_less_than_the_rest_is_asked_again(server, offer, tmp_path):
    offer("mine", "/mine.zip", zipped(a_dot_bin=CONTENT))
    server.broken, server.piece = [1_000_000], 1_500_000
    download(["mine"], tmp_path)
    assert (tmp_path / "scene_datasets" / "mine" / "a.bin").read_bytes() == CONTENT
    ranges = [headers.get("Range") for _, headers in server.requests]
    assert ranges == [None, *(f"bytes={begin}-" for begin in (1_000_000, 2_500_000, 4_000_000))]


def test_a_given_up_download_goes_on_with_the_next_command(server, offer, tmp_path):
    data = zipped(a_dot_bin=CONTENT)
    offer("mine", "/mine.zip", data)
    server.broken = [1_000_000] + [0] * 20
    with pytest.raises(DownloadError, match="run the same command to continue"):
        download(["mine"], tmp_path)
    assert not (tmp_path / "scene_datasets").exists()
    server.broken, server.requests = [], []
    download(["mine"], tmp_path)
    assert server.requests[0][1]["Range"] == "bytes=1000000-"


def test_a_file_that_changed_meanwhile_begins_again(server, offer, tmp_path):
    offer("mine", "/mine.zip", zipped(a_dot_bin=CONTENT))
    server.broken = [1_000_000] + [0] * 20
    with pytest.raises(DownloadError):
        download(["mine"], tmp_path)
    server.broken = []
    server.files["/mine.zip"] = zipped(a_dot_bin=CONTENT[::-1])
    download(["mine"], tmp_path)
    assert (tmp_path / "scene_datasets" / "mine" / "a.bin").read_bytes() == CONTENT[::-1]


def test_check_sums(server, offer, tmp_path):
    offer("mine", "/mine.zip", zipped(a_dot_bin=CONTENT), sha256="0" * 64)
    with pytest.raises(DownloadError, match="found SHA-256"):
        download(["mine"], tmp_path)
    assert not (tmp_path / "versioned_data" / "mine_1.0").exists()
    # The second time an archive has to be the one that it was.
    offer("mine", "/mine.zip", zipped(a_dot_bin=CONTENT))
    download(["mine"], tmp_path)
    server.files["/mine.zip"] = zipped(a_dot_bin=CONTENT[:-1])
    with pytest.raises(DownloadError, match="found SHA-256"):
        download(["mine"], tmp_path, replace=True)
    assert (tmp_path / "scene_datasets" / "mine" / "a.bin").read_bytes() == CONTENT


def test_hm3d_parts_share_a_folder(server, offer, monkeypatch, tmp_path):
    config = "hm3d_basis.scene_dataset_config.json"
    shared = {"link": "scene_datasets/hm3d", "version": "0.2", "folder": "hm3d-0.2/hm3d", "part": "train"}
    offer("hm3d_train_habitat_v0.2", "/h.tar", tarred(a__a_dot_basis_dot_glb=b"glb"), **shared)
    offer("hm3d_train_configs_v0.2", "/c.tar", tarred(**{config.replace(".", "_dot_"): b"{}"}), lift=config, **shared)
    monkeypatch.setitem(GROUPS, "both", ("hm3d_train_habitat_v0.2", "hm3d_train_configs_v0.2"))
    download(["both"], tmp_path)
    link = tmp_path / "scene_datasets" / "hm3d"
    assert (link / "train" / "a" / "a.basis.glb").read_bytes() == b"glb"
    assert (link / config).read_bytes() == b"{}"
    listed = tmp_path / "versioned_data" / "hm3d-0.2" / "train-habitat-files.json.gz"
    assert json.loads(gzip.decompress(listed.read_bytes()))[1].endswith("train/a/a.basis.glb")
    assert is_present("hm3d_train_configs_v0.2", SOURCES["hm3d_train_configs_v0.2"], tmp_path)


def test_archives_that_fill_one_folder(server, offer, tmp_path):
    shared = {"link": "datasets/pointnav/gibson/v1", "folder": "gibson_v1"}
    offer("some", "/s.zip", zipped(val__val_dot_json_dot_gz=b"1"), holds="val/val.json.gz", **shared)
    offer("more", "/m.zip", zipped(large__large_dot_json_dot_gz=b"2"), holds="large/large.json.gz", **shared)
    download(["some"], tmp_path)
    assert [is_present(uid, SOURCES[uid], tmp_path) for uid in ("some", "more")] == [True, False]
    download(["more"], tmp_path)
    files = sorted(path.name for path in (tmp_path / "datasets/pointnav/gibson/v1").rglob("*.gz"))
    assert files == ["large.json.gz", "val.json.gz"] and is_present("more", SOURCES["more"], tmp_path)


def test_access(server, offer, tmp_path):
    offer("mine", "/mine.zip", zipped(a_dot_bin=b"1"), needs="a token")
    with pytest.raises(DownloadError, match="mine: needs a token"):
        download(["mine"], tmp_path)
    server.login = "Basic dXNlcjpzZWNyZXQ="
    with pytest.raises(DownloadError, match=r"access denied \(401\)"):
        download(["mine"], tmp_path, Login("user", "wrong"))
    download(["mine"], tmp_path, Login("user", "secret"))
    assert (tmp_path / "scene_datasets" / "mine" / "a.bin").is_file()


def test_a_redirect_is_followed_without_the_password(server, offer, tmp_path):
    offer("mine", "/mine.zip", zipped(a_dot_bin=b"1"))
    server.files["/elsewhere.zip"] = server.files.pop("/mine.zip")
    server.moved["/mine.zip"] = f"{server.url}/elsewhere.zip"
    download(["mine"], tmp_path, Login("user", "secret"))
    assert [("Authorization" in headers) for _, headers in server.requests] == [True, False]


def test_answers_that_do_not_fit(server, offer, tmp_path):
    data = zipped(a_dot_bin=CONTENT)
    offer("mine", "/mine.zip", data)
    server.broken, server.range = [1_000_000], "bytes 7-100/200"
    with pytest.raises(DownloadError, match="Content-Range 'bytes 7-100/200', expected bytes from 1000000 on"):
        download(["mine"], tmp_path)
    server.range, server.length = "", "many"
    with pytest.raises(DownloadError, match="Content-Length 'many'"):
        download(["mine"], tmp_path)
    server.length = ""
    download(["mine"], tmp_path)


def test_an_archive_that_cannot_be_unpacked_is_no_measure_of_the_next(server, offer, tmp_path):
    """Its check sum was kept, and the whole archive then refused."""
    offer("mine", "/mine.zip", b"this is no archive")
    with pytest.raises(DownloadError, match="cannot be unpacked"):
        download(["mine"], tmp_path)
    server.files["/mine.zip"] = zipped(a_dot_bin=CONTENT)
    download(["mine"], tmp_path)


def with_bytes(data, signature, offset, value):
    """A zip whose headers of a kind hold another 16-bit value."""
    data = bytearray(data)
    at = data.find(signature)
    while at >= 0:
        data[at + offset : at + offset + 2] = value.to_bytes(2, "little")
        at = data.find(signature, at + 4)
    return bytes(data)


def test_archives_of_other_kinds_and_bombs_are_named(server, offer, monkeypatch, tmp_path):
    plain = zipped(a_dot_bin=b"x" * 100)
    entry, central = b"PK\x03\x04", b"PK\x01\x02"
    encrypted = with_bytes(with_bytes(plain, entry, 6, 1), central, 8, 1)
    exotic = with_bytes(with_bytes(plain, entry, 8, 97), central, 10, 97)
    offer("mine", "/mine.zip", encrypted)
    for data, match in ((encrypted, "encrypted"), (exotic, "cannot be unpacked")):
        server.files["/mine.zip"] = data
        with pytest.raises(DownloadError, match=match):
            download(["mine"], tmp_path)
    monkeypatch.setattr(downloading, "MAX_UNPACKED", 0)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("a.bin", bytes(10**7))
    offer("tarred", "/mine.tar.gz", gzip.compress(tarred(a_dot_bin=bytes(10**7))))
    server.files["/mine.zip"] = packed.getvalue()
    for name in ("mine", "tarred"):
        message = r"found more than [0-9]+ bytes when unpacked, expected fewer for [0-9]+ packed bytes"
        with pytest.raises(DownloadError, match=message):
            download([name], tmp_path)
    monkeypatch.setattr(downloading, "MAX_FILES", 2)
    server.files["/mine.zip"] = zipped(a=b"a", b=b"b", c=b"c")
    with pytest.raises(DownloadError, match="found more than 2 files, expected fewer"):
        download(["mine"], tmp_path)
    assert not (tmp_path / "scene_datasets").exists()


def test_what_cannot_be_downloaded_is_named(server, offer, tmp_path):
    with pytest.raises(DownloadError, match="batchnav data list"):
        download(["nonsense"], tmp_path)
    with pytest.raises(DownloadError, match=r"gibson: cannot be downloaded by this tool.*gibsonenv\.stanford\.edu"):
        download(["gibson"], tmp_path)
    offer("mine", "/mine.zip", b"this is no archive")
    with pytest.raises(DownloadError, match=r"mine\.zip: cannot be unpacked"):
        download(["mine"], tmp_path)
    del server.files["/mine.zip"]
    with pytest.raises(DownloadError, match="the server answered 404"):
        download(["mine"], tmp_path)


def test_archives_write_nowhere_else(server, offer, tmp_path):
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("../../evil", "x")
    offer("mine", "/mine.zip", packed.getvalue())
    with pytest.raises(DownloadError, match="leads out"):
        download(["mine"], tmp_path / "data")
    offer("other", "/other.tar", tarred(**{"..__..__evil": b"x"}))
    with pytest.raises(DownloadError, match="cannot be unpacked"):
        download(["other"], tmp_path / "data")
    assert not list(tmp_path.rglob("evil"))


def test_a_folder_in_the_links_place_stays(server, offer, tmp_path):
    offer("mine", "/mine.zip", zipped(a_dot_bin=b"1"))
    (tmp_path / "scene_datasets" / "mine").mkdir(parents=True)
    (tmp_path / "scene_datasets" / "mine" / "own.glb").touch()
    with pytest.raises(DownloadError, match="move it away"):
        download(["mine"], tmp_path, replace=True)
    assert (tmp_path / "scene_datasets" / "mine" / "own.glb").exists()


def test_the_catalogue_is_whole():
    assert all(uid in SOURCES for parts in GROUPS.values() for uid in parts)
    assert not set(SOURCES) & set(GROUPS)
    for uid, source in SOURCES.items():
        assert source.url.startswith("https://") and source.licence and source.version, uid
    # Habitat's names of what people use most.
    assert {"habitat_test_scenes", "habitat_test_pointnav_dataset", "replica_cad_dataset", "hssd-hab",
            "hm3d_val_habitat_v0.2"} <= set(SOURCES)  # fmt: skip
    assert {"hm3d", "hm3d_minival_v0.2", "hm3d_example"} <= set(GROUPS)
    url = SOURCES["hm3d_val_habitat_v0.2"].url
    assert url == "https://api.matterport.com/resources/habitat/hm3d-val-habitat-v0.2.tar"
    assert SOURCES["hm3d_train_semantic_annots_v0.1"].url.endswith("hm3d-train-semantic-annots-v0.1.tar.gz")
    assert downloading.version_folder("hssd-hab", SOURCES["hssd-hab"], downloading.Path("d")).name == "hssd-hab"


# Headers of tar archives from strangers: sizes are bounded before they are read


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


# Bounds on reading JSON that hold for any file

JSON_MEMORY = 33
"""JSON takes at most so many times its text in memory; objects of nothing but an object take the most."""


@pytest.mark.parametrize(
    "piece", ["{}", "[]", '{"":0}', '{"":{}}', '{"":[]}', "[[]]", '"\u0101"', "300", "1.5", "null"]
)
def test_the_memory_of_json_is_bounded_by_its_text(tmp_path, piece):
    path = tmp_path / "a.json"
    path.write_text(f"[{','.join([piece] * 100_000)}]", encoding="utf-8")
    tracemalloc.start()
    try:
        read_json(path, MeshError)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= (JSON_MEMORY + 6) * path.stat().st_size  # 6: the bytes, and the text with up to 4 per character


# Downloads of repositories through huggingface_hub, from a server that answers as Hugging Face does

COMMIT = "a" * 40
API, BASE = "/api/datasets/me/scenes", f"/datasets/me/scenes/resolve/{COMMIT}"
TREE = f"{API}/tree/{COMMIT}?recursive=true&expand=false"
LARGE = {
    "type": "file", "path": "sub/large.glb", "size": len(CONTENT), "oid": "b" * 40,
    "lfs": {"oid": hashlib.sha256(CONTENT).hexdigest(), "size": len(CONTENT), "pointerSize": 130},
}  # fmt: skip
SMALL = {"type": "file", "path": "read me.md", "size": 5, "oid": hashlib.sha1(b"blob 5\0hello").hexdigest()}


@pytest.fixture
def repository(server, monkeypatch):
    """A dataset: a large file, a small one, a list of two pages."""
    server.commit = COMMIT
    server.files |= {
        f"{API}/revision/v1": json.dumps({"id": "me/scenes", "sha": COMMIT, "siblings": []}).encode(),
        TREE: json.dumps([{"type": "directory", "path": "sub", "size": 0, "oid": "c" * 40}, LARGE]).encode(),
        f"{TREE}&cursor=2": json.dumps([SMALL]).encode(),
        f"{BASE}/sub/large.glb": CONTENT,
        f"{BASE}/read%20me.md": b"hello",
    }
    server.links[TREE] = f'<{server.url}{TREE}&cursor=2>; rel="next"'
    source = Source(f"{server.url}/datasets/me/scenes", "scene_datasets/mine", "MIT", "v1", folder="mine")
    monkeypatch.setitem(SOURCES, "mine", source)


def test_a_repository_with_a_token(server, repository, tmp_path):
    server.login = "Bearer token"
    with pytest.raises(DownloadError, match=r"access denied \(401\): accept .* and give --username"):
        download(["mine"], tmp_path, Login(password="wrong"))
    download(["mine"], tmp_path, Login(password="token"))
    folder = tmp_path / "scene_datasets" / "mine"
    assert folder.resolve() == tmp_path / "versioned_data" / "mine"
    assert (folder / "sub" / "large.glb").read_bytes() == CONTENT and (folder / "read me.md").read_bytes() == b"hello"
    assert sorted(path.name for path in folder.iterdir()) == ["read me.md", "sub"]


def test_an_interrupted_repository_goes_on_and_is_never_taken_for_whole(server, repository, tmp_path):
    kept = server.files.pop(f"{BASE}/read%20me.md")
    with pytest.raises(DownloadError, match=r"the server answered 404|cannot be downloaded"):
        download(["mine"], tmp_path)
    revision = server.files.pop(f"{API}/revision/v1")
    with pytest.raises(DownloadError, match="the server answered 404"):
        download(["mine"], tmp_path)
    assert not (tmp_path / "scene_datasets").exists()
    server.files |= {f"{BASE}/read%20me.md": kept, f"{API}/revision/v1": revision}
    server.requests.clear()
    download(["mine"], tmp_path)
    assert (tmp_path / "scene_datasets" / "mine" / "sub" / "large.glb").read_bytes() == CONTENT
    assert not any(path.endswith("large.glb") and "Range" not in found for path, found in server.requests)


def test_a_file_of_another_size_is_refused(server, repository, tmp_path):
    server.files[f"{BASE}/read%20me.md"] = b"hi"
    server.sizes[f"{BASE}/read%20me.md"] = 5
    with pytest.raises(DownloadError, match="cannot be downloaded"):
        download(["mine"], tmp_path)
    assert not (tmp_path / "versioned_data" / "mine").exists()


@pytest.mark.parametrize("listing", [b"{}", b"[3]", b"[" * 1000, b'[{"type": "file", "path": "../../evil"}]'])
def test_lists_of_files_that_are_invalid(server, repository, tmp_path, listing):
    server.links.clear()
    server.files[TREE] = listing
    with pytest.raises(DownloadError, match=r"cannot be downloaded|found no files at version v1"):
        download(["mine"], tmp_path)
    assert not (tmp_path / "scene_datasets").exists()


@pytest.mark.parametrize("path", ["../../evil", "/tmp/evil", "a/../../b"])
def test_files_write_nowhere_else(server, repository, tmp_path, path):
    server.links.clear()
    server.files[TREE] = json.dumps([{**SMALL, "path": path}]).encode()
    server.files[f"{BASE}/{path}"] = b"hello"
    with pytest.raises(DownloadError, match=r"cannot be downloaded .*Invalid filename"):
        download(["mine"], tmp_path / "data")
    shutil.rmtree(tmp_path / "data", ignore_errors=True)
    assert not [found for found in tmp_path.rglob("*") if found.is_file()]
