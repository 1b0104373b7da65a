"""Downloads of archives: resumed, checked, unpacked into Habitat's folders."""

import gzip
import hashlib
import io
import json
import tarfile
import zipfile

import pytest
from file_server import CONTENT

from batchnav.data import catalog
from batchnav.data import download as downloading
from batchnav.data.catalog import GROUPS, SOURCES, Source, is_present
from batchnav.data.download import DownloadError, Login, download


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
    assert catalog.version_folder("hssd-hab", SOURCES["hssd-hab"], downloading.Path("d")).name == "hssd-hab"
