import functools
import gzip
import hashlib
import io
import json
import tarfile
import threading
import zipfile
from http.server import ThreadingHTTPServer

import pytest
from file_server import Handler

from batchnav.data import catalog
from batchnav.data import download as downloading
from batchnav.data.catalog import GROUPS, SOURCES, Source, is_present
from batchnav.data.download import DownloadError, Login, download

CONTENT = bytes(range(256)) * 20_000


@pytest.fixture
def server(monkeypatch):
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.files, server.moved, server.links, server.broken, server.requests = {}, {}, {}, [], []
    server.login = server.range = server.length = ""
    server.piece = 0
    server.url = f"http://127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=functools.partial(server.serve_forever, 0.01), daemon=True).start()
    monkeypatch.setattr(downloading.time, "sleep", lambda _: None)
    yield server
    server.shutdown()
    server.server_close()


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


@pytest.fixture
def repository(server, monkeypatch):
    """A dataset on something like Hugging Face: a large file, a small one, a list of two pages."""
    large, small = CONTENT, b"hello"
    blob = hashlib.sha1(b"blob 5\0hello").hexdigest()
    tree, base = "/api/datasets/me/scenes/tree/v1", "/datasets/me/scenes/resolve/v1"
    rows = [
        {"type": "directory", "path": "sub", "size": 0, "oid": "x"},
        {"type": "file", "path": "sub/large.glb", "size": len(large), "oid": "y",
         "lfs": {"oid": hashlib.sha256(large).hexdigest(), "size": len(large)}},
    ]  # fmt: skip
    server.files |= {
        f"{tree}?recursive=true": json.dumps(rows).encode(),
        f"{tree}?recursive=true&cursor=2": json.dumps(
            [{"type": "file", "path": "read me.md", "size": 5, "oid": blob}]
        ).encode(),
        f"{base}/sub/large.glb": large,
        f"{base}/read%20me.md": small,
    }
    server.links[f"{tree}?recursive=true"] = f'<{server.url}{tree}?recursive=true&cursor=2>; rel="next"'
    source = Source(f"{server.url}/datasets/me/scenes", "scene_datasets/mine", "MIT", "v1", folder="mine")
    monkeypatch.setitem(SOURCES, "mine", source)
    return base


def test_a_repository(server, repository, tmp_path):
    server.login = "Bearer token"
    download(["mine"], tmp_path, Login(password="token"))
    folder = tmp_path / "scene_datasets" / "mine"
    assert folder.resolve() == tmp_path / "versioned_data" / "mine"
    assert (folder / "sub" / "large.glb").read_bytes() == CONTENT
    assert (folder / "read me.md").read_bytes() == b"hello"


def test_a_repositorys_check_sums_and_what_is_there_already(server, repository, tmp_path):
    server.files[f"{repository}/read%20me.md"] = b"hallo"
    with pytest.raises(DownloadError, match=r"read%20me\.md: found checksum"):
        download(["mine"], tmp_path)
    assert not (tmp_path / "scene_datasets").exists()
    server.files[f"{repository}/read%20me.md"] = b"hello"
    server.requests.clear()
    download(["mine"], tmp_path)
    assert not any("large" in path for path, _ in server.requests)  # came whole the first time


def test_what_an_earlier_attempt_left_is_checked(server, repository, tmp_path):
    """Of the right size, and of other bytes: it was begun again, and not taken."""
    left = tmp_path / "versioned_data" / ".mine.part" / "sub" / "large.glb"
    left.parent.mkdir(parents=True)
    left.write_bytes(bytes(len(CONTENT)))
    download(["mine"], tmp_path)
    assert (tmp_path / "scene_datasets" / "mine" / "sub" / "large.glb").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("listing", "match"),
    [
        (b"[]", "found no files at version v1"),
        (b"{}", "found no list of files|found no files"),
        (b"[3]", "found no list of files"),
        (b"[" * 100_000, "found no list of files"),
        (b'[{"type": "file", "path": "a"}]', "found an incomplete list of files"),
        (b'[{"type": "file", "path": "a", "size": "x", "oid": "y"}]', "found an incomplete list of files"),
    ],
)
def test_listings_that_are_none(server, repository, tmp_path, listing, match):
    server.links.clear()
    server.files[repository.replace("/datasets", "/api/datasets").replace("resolve", "tree") + "?recursive=true"] = (
        listing
    )
    with pytest.raises(DownloadError, match=match):
        download(["mine"], tmp_path)


ROW = {"type": "file", "size": 5, "oid": hashlib.sha1(b"blob 5\0hello").hexdigest()}


@pytest.mark.parametrize(
    ("paths", "match"),
    [
        (["a", "a/b"], "found the files 'a' and 'a/b', expected no file with the name of a folder"),
        (["a/b/c", "d", "a"], "found the files 'a' and 'a/b/c'"),
        (["."], r"found the file name '\.', which leads out"), (["a/./b"], "which leads out"), (["a//b"], "empty part"),
        (["/a"], "which leads out"), (["a/../../b"], "which leads out"), ([""], "which leads out"), (["a/"], "empty"),
        (["a.part", "a"], r"found the files 'a' and 'a\.part', expected no file with the temporary name"),
        (["a", "a.part.tag"], r"'a\.part\.tag'"), (["a", "b", "a"], "'a' twice"),
        (["a\ud800"], "has control characters"), (["a\nb"], "has control characters"), (["a\x1b[31m"], "control"),
        (["a\0b"], "control"), (["x" * 300], "too long, expected at most 246 bytes"), (["\u00e9" * 150], "too long"),
    ],
)  # fmt: skip
def test_names_in_a_listing_that_are_no_files_are_refused(server, repository, tmp_path, paths, match):
    server.links.clear()
    page = repository.replace("/datasets", "/api/datasets").replace("resolve", "tree") + "?recursive=true"
    server.files[page] = json.dumps([{**ROW, "path": path} for path in paths]).encode()
    server.files |= {f"{repository}/{path}": b"hello" for path in ("a", "a.part", "a/b")}
    with pytest.raises(DownloadError, match=match):
        download(["mine"], tmp_path)
    assert not any("resolve" in path for path, _ in server.requests)


def test_a_listing_without_end_is_given_up(server, repository, tmp_path, monkeypatch):
    page = repository.replace("/datasets", "/api/datasets").replace("resolve", "tree") + "?recursive=true"
    for number in range(20):
        here = page if not number else f"{page}&cursor={number}"
        server.files[here] = json.dumps([{**ROW, "path": str(number)}]).encode()
        server.links[here] = f'<{server.url}{page}&cursor={number + 1}>; rel="next"'
    for name, value, match in (("MAX_PAGES", 5, "5 files on 5 pages"), ("MAX_FILES", 3, "4 files on 4 pages")):
        with monkeypatch.context() as patch, pytest.raises(DownloadError, match=f"does not end: found {match}"):
            patch.setattr(downloading, name, value)
            download(["mine"], tmp_path)
    monkeypatch.setattr("batchnav.data.listing.MAX_PAGE_BYTES", 10)
    with pytest.raises(DownloadError, match=r"found no list of files \(a page of more than 10 bytes"):
        download(["mine"], tmp_path)


def test_a_listing_that_is_not_for_everyone_says_what_to_do(server, repository, tmp_path):
    server.login = "Bearer token"
    with pytest.raises(DownloadError, match=r"tree/v1.*access denied \(401\): accept .* and give --username"):
        download(["mine"], tmp_path, Login(password="wrong"))


def test_the_token_goes_to_no_other_host(server, repository, tmp_path):
    (page,) = server.links
    same = server.url + page
    for elsewhere in ("http://localhost:9/more", same.replace("127.0.0.1", "localhost"), same):
        server.links[page] = f'<{elsewhere}>; rel="next"'
        with pytest.raises(DownloadError, match=r"continues at .*, expected a new page"):
            download(["mine"], tmp_path, Login(password="token"))


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
    assert catalog.version_folder("hssd-hab", SOURCES["hssd-hab"], downloading.Path("d")).name == "hssd-hab"
