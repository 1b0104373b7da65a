"""Downloads of datasets whose files a host lists page by page, as Hugging Face does."""

import hashlib
import json

import pytest
from file_server import CONTENT

from batchnav.data import download as downloading
from batchnav.data.catalog import SOURCES, Source
from batchnav.data.download import DownloadError, Login, download


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
