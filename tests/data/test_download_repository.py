"""Downloads of repositories through huggingface_hub, from a server that answers as Hugging Face does."""

import hashlib
import json
import shutil

import pytest
from file_server import CONTENT

from batchnav.data.catalog import SOURCES, Source
from batchnav.data.download import DownloadError, Login, download

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
