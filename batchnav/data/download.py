"""Download of datasets into the folders that Habitat's own tool uses.

huggingface_hub downloads repositories; this module downloads archives. Interrupted downloads continue where they
stopped. Archives are checked by size, and by checksum where one is known: from the catalogue, or from an earlier
download of the same archive. Files are unpacked, renamed and linked only after these checks.
"""

from __future__ import annotations

import base64
import hashlib
import itertools
import lzma
import os
import re
import shutil
import struct
import sys
import tarfile
import time
import urllib.error
import urllib.parse
import urllib.request
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from http.client import HTTPException, HTTPResponse, responses
from pathlib import Path, PurePosixPath
from typing import Any

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from batchnav.data.files import write_json_gz
from batchnav.errors import BatchnavError
from batchnav.runtime.files import open_regular, read_text, replacing

# Catalogue of datasets for navigation: Habitat's identifiers, with address, folder and licence.
#
# No dataset is part of this project. Folders are those of habitat-sim's `datasets_download`: files go to
# data/versioned_data, and links in the folders that Habitat reads point there.

_META = "https://dl.fbaipublicfiles.com/habitat"
_HUGGING_FACE = "https://huggingface.co"
_MATTERPORT = "https://api.matterport.com/resources/habitat"
_MATTERPORT_EXAMPLES = "https://github.com/matterport/habitat-matterport-3dresearch/raw/main/example"

MATTERPORT_TERMS = "Matterport EULA: non-commercial academic use (matterport.com/legal)"
MATTERPORT_TOKEN = "--username and --password: an API token of my.matterport.com, after accepting the EULA"
HUGGING_FACE_TOKEN = "--password: a Hugging Face access token, after accepting the terms on the dataset's page"


@dataclass(frozen=True)
class Source:
    """One archive or repository to download."""

    url: str
    """A `.zip` or `.tar` archive, or a Hugging Face dataset: HOST/datasets/OWNER/NAME."""
    link: str
    """Path below `data` that Habitat reads; a link to the downloaded folder."""
    licence: str
    version: str = ""
    needs: str = ""
    """Options that are needed for access; empty for none."""
    folder: str = ""
    """Folder below data/versioned_data; empty for UID_VERSION."""
    part: str = ""
    """Subfolder that this archive fills, where several archives share one link."""
    lift: str = ""
    """File of the archive that Habitat reads one folder higher."""
    holds: str = ""
    """File of the archive, relative to `link`, that shows that it was downloaded; needed where several archives fill
    one folder without subfolders."""
    sha256: str = ""
    """SHA-256 of the archive; empty for unknown."""

    @property
    def is_repository(self) -> bool:
        """True for a repository of files, False for an archive."""
        return not self.url.endswith((".zip", ".tar", ".tar.gz"))


@dataclass(frozen=True)
class Manual:
    """A dataset that this tool cannot download."""

    link: str
    """Path below `data` where its files belong."""
    licence: str
    how: str
    """How to get it, as an instruction."""


def _hm3d() -> dict[str, Source]:
    found = {}
    for split, kind, version in itertools.product(
        ("minival", "train", "val"),
        ("glb", "habitat", "configs", "semantic_annots", "semantic_configs"),
        ("0.1", "0.2"),
    ):
        semantic = kind.startswith("semantic")
        tag = f"-v{version}" if semantic or (version == "0.2" and kind != "configs") else ""
        suffix = ".tar.gz" if (kind, version) == ("semantic_annots", "0.1") else ".tar"
        found[f"hm3d_{split}_{kind}_v{version}"] = Source(
            f"{_MATTERPORT}/hm3d-{split}-{kind.replace('_', '-')}{tag}{suffix}", "scene_datasets/hm3d",
            MATTERPORT_TERMS, version, MATTERPORT_TOKEN, f"hm3d-{version}/hm3d", split, _lifted(split, kind),
        )  # fmt: skip
    for kind in ("glb", "habitat", "configs", "semantic_annots", "semantic_configs"):
        tag = "" if kind == "configs" else "-v0.2"
        found[f"hm3d_example_{kind}"] = Source(
            f"{_MATTERPORT_EXAMPLES}/hm3d-example-{kind.replace('_', '-')}{tag}.tar", "scene_datasets/hm3d",
            MATTERPORT_TERMS, "0.2", "", "hm3d-0.2/hm3d", "example", _lifted("example", kind),
        )  # fmt: skip
    return found


def _lifted(split: str, kind: str) -> str:
    if kind == "semantic_configs":
        return "hm3d_annotated_basis.scene_dataset_config.json"
    return "hm3d_basis.scene_dataset_config.json" if (split, kind) == ("train", "configs") else ""


def _episodes(name: str, version: str, file: str = "", **shared: str) -> Source:
    url = f"{_META}/data/datasets/pointnav/{name}/{version}/{file or f'pointnav_{name}_{version}'}.zip"
    terms = "CC BY-NC-SA 3.0 US and the scenes' terms" if name != "hm3d" else MATTERPORT_TERMS
    return Source(url, f"datasets/pointnav/{name}/{version}", terms, version, **shared)


def _hugging_face(name: str, link: str, licence: str, version: str, needs: str = "", uid: str = "") -> Source:
    # Folders of repositories have no version in Habitat's layout.
    return Source(f"{_HUGGING_FACE}/datasets/{name}", link, licence, version, needs, uid)


SOURCES: dict[str, Source] = {
    "habitat_test_scenes": _hugging_face(
        "ai-habitat/habitat_test_scenes", "scene_datasets/habitat-test-scenes", "CC BY-NC 4.0", "v1.0",
        uid="habitat_test_scenes",
    ),
    "habitat_test_pointnav_dataset": Source(
        f"{_META}/habitat-test-pointnav-dataset_v1.0.zip", "datasets/pointnav/habitat-test-scenes", "CC BY-NC 4.0",
        "1.0",
    ),
    "mp3d_example_scene": Source(
        f"{_META}/mp3d/mp3d_example_v1.1.zip", "scene_datasets/mp3d_example", "Matterport3D terms of use", "1.1"
    ),
    "replica_cad_dataset": _hugging_face(
        "ai-habitat/ReplicaCAD_dataset", "replica_cad", "CC BY 4.0", "v1.6", uid="replica_cad_dataset"
    ),
    "replica_cad_baked_lighting": _hugging_face(
        "ai-habitat/ReplicaCAD_baked_lighting", "replica_cad_baked_lighting", "CC BY 4.0", "v1.6",
        uid="replica_cad_baked_lighting",
    ),
    "hssd-hab": _hugging_face(
        "hssd/hssd-hab", "scene_datasets/hssd-hab", "CC BY-NC 4.0", "v0.2.4", HUGGING_FACE_TOKEN, "hssd-hab"
    ),
    "ai2thor-hab": _hugging_face(
        "hssd/ai2thor-hab", "scene_datasets/ai2thor-hab", "see the dataset's page", "main", HUGGING_FACE_TOKEN,
        "ai2thor-hab",
    ),
    **_hm3d(),
    "pointnav_gibson_v1": _episodes(
        "gibson", "v1", folder="pointnav_gibson_v1_v1", holds="val/val.json.gz"
    ),
    "pointnav_gibson_0_plus_v1": _episodes(
        "gibson", "v1", "pointnav_gibson_0_plus_v1", folder="pointnav_gibson_v1_v1",
        holds="train_extra_large/train_extra_large.json.gz",
    ),
    "pointnav_gibson_v2": _episodes("gibson", "v2"),
    "pointnav_mp3d_v1": _episodes("mp3d", "v1"),
    "pointnav_hm3d_v1": _episodes("hm3d", "v1"),
}  # fmt: skip
"""Datasets that can be downloaded, by uid: scenes of habitat-sim's tool, and PointNav episodes of habitat-lab."""

MANUAL = {
    "gibson": Manual(
        "scene_datasets/gibson", "Gibson licence: non-commercial research",
        "sign the form at gibsonenv.stanford.edu/database, unpack gibson_habitat_trainval.zip",
    ),
    "mp3d": Manual(
        "scene_datasets/mp3d", "Matterport3D terms of use: non-commercial academic use",
        "sign the terms at niessner.github.io/Matterport, then download_mp.py --task habitat",
    ),
    "procthor": Manual(
        "scene_datasets/procthor", "ProcTHOR-10K: Apache-2.0",
        "get houses (JSON) from github.com/allenai/procthor-10k, then batchnav data import",
    ),
    "aws_small_house": Manual(
        "aws_small_house", "MIT-0",
        "get github.com/aws-robotics/aws-robomaker-small-house-world (branch ros1, commit dd44be62), join the models "
        "of worlds/small_house.world into one mesh file, turn it from +Z up to +Y up",
    ),
}  # fmt: skip
"""Datasets that cannot be downloaded, by uid."""


def _of_split(split: str, version: str) -> tuple[str, ...]:
    kinds = ("habitat", "configs", "semantic_annots", "semantic_configs")
    return tuple(f"hm3d_{split}_{kind}_v{version}" for kind in kinds)


GROUPS: dict[str, tuple[str, ...]] = {
    **{f"hm3d_{s}_v{v}": _of_split(s, v) for s in ("minival", "train", "val") for v in ("0.1", "0.2")},
    "hm3d_example": ("hm3d_example_habitat", "hm3d_example_configs", "hm3d_example_semantic_annots",
                     "hm3d_example_semantic_configs"),
    "hm3d_v0.1": _of_split("val", "0.1") + _of_split("train", "0.1") + _of_split("minival", "0.1"),
    "hm3d": _of_split("val", "0.2") + _of_split("train", "0.2") + _of_split("minival", "0.2"),
    "hm3d_full": tuple(uid for uid in SOURCES if uid.startswith("hm3d_") and not uid.endswith("v0.1")),
}  # fmt: skip
"""Groups of datasets, by Habitat's names."""


def version_folder(uid: str, source: Source, data: Path) -> Path:
    """Folder of a source's files."""
    return data / "versioned_data" / (source.folder or f"{uid}_{source.version}")


def file_list(uid: str, source: Source, data: Path) -> Path | None:
    """File in which Habitat's tool lists the files of a source; None where the source has its own folder."""
    if not source.part:
        return None
    kind = uid.removeprefix(f"hm3d_{source.part}_").removesuffix(f"_v{source.version}").replace("_", "-")
    return version_folder(uid, source, data).parent / f"{source.part}-{kind}-files.json.gz"


def is_present(uid: str, source: Source, data: Path) -> bool:
    """True where a source was downloaded, by this tool or by Habitat's."""
    listed = file_list(uid, source, data)
    return (data / source.link / source.holds).exists() and (listed is None or listed.is_file())


TIMEOUT = 60.0
"""Seconds without data after which a connection counts as lost."""
ATTEMPTS = 5
"""Consecutive connections without data after which a download fails. The wait before the next doubles from 1 second."""
MAX_FILES, MAX_RATIO, MAX_UNPACKED = 200_000, 100, 2**30
"""Bounds of an archive: number of files; unpacked bytes at most MAX_RATIO times its size plus MAX_UNPACKED."""
MAX_HEADER, MAX_HEADERS = 2**16, 2**28
"""Bounds of a tar file's extended headers (pax records, long names), which are read into memory: bytes of one, and of
all of them."""
_EXTENDED = (
    tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK,
)  # fmt: skip
_BLOCK = 2**20
_MAX_TAG = 2**16
"""Largest size of the files with a checksum or an entity tag, bytes."""
_WHOLE_SIZE = re.compile(r"/([0-9]{1,18})$")


class DownloadError(BatchnavError):
    """A dataset that cannot be downloaded: unknown, not allowed, interrupted, damaged."""


@dataclass(frozen=True)
class Login:
    """Credentials: user name and password of an archive, or a Hugging Face token as password."""

    username: str = ""
    password: str = ""

    @property
    def header(self) -> str:
        """The Authorization header; empty without a password."""
        if not self.password:
            return ""
        if not self.username:
            return f"Bearer {self.password}"
        return "Basic " + base64.b64encode(f"{self.username}:{self.password}".encode()).decode()


def download(uids: Sequence[str], data: Path, login: Login | None = None, replace: bool = False) -> list[Path]:
    """Download datasets or groups of them by Habitat's identifiers.

    Args:
        uids: names of `SOURCES` or `GROUPS`.
        data: Habitat's folder `data`.
        login: credentials, for datasets that need them.
        replace: True to download datasets again that are present.

    Returns the links, below `data`. Raises DownloadError.
    """
    login = login or Login()
    wanted = list(dict.fromkeys(part for uid in uids for part in _members(uid)))
    for uid in wanted:
        source = SOURCES[uid]
        if source.needs and not login.password and (replace or not is_present(uid, source, data)):
            raise DownloadError(f"{uid}: needs {source.needs} ({source.licence})")
    for uid in wanted:
        source = SOURCES[uid]
        folder = version_folder(uid, source, data)
        if replace or not is_present(uid, source, data):
            if source.is_repository:
                _fetch_repository(source, folder, login)
            else:
                _fetch_archive(uid, source, data, login)
        _link(folder, data / source.link)
    return sorted({data / SOURCES[uid].link for uid in wanted})


def _members(uid: str) -> Sequence[str]:
    if uid in MANUAL:
        raise DownloadError(f"{uid}: cannot be downloaded by this tool; {MANUAL[uid].how} (to data/{MANUAL[uid].link})")
    if uid not in SOURCES and uid not in GROUPS:
        raise DownloadError(f"{uid}: found no dataset of this name, expected one that `batchnav data list` shows")
    return GROUPS.get(uid, (uid,))


def _fetch_archive(uid: str, source: Source, data: Path, login: Login) -> None:
    """Download, check and unpack an archive."""
    folder = version_folder(uid, source, data)
    archive = data / "versioned_data" / ".downloads" / PurePosixPath(urllib.parse.urlparse(source.url).path).name
    digest = fetch_file(source.url, archive, login.header, uid)
    known = archive.with_name(f"{archive.name}.sha256")
    expected = source.sha256 or (read_text(known, DownloadError, _MAX_TAG).strip() if known.is_file() else "")
    if expected and digest != expected:
        archive.unlink()
        known.unlink(missing_ok=True)
        raise DownloadError(f"{source.url}: found SHA-256 {digest}, expected {expected}; removed, download it again")
    files = unpack(archive, folder / source.part)
    with replacing(known, DownloadError) as part:  # only after the archive was unpacked completely
        part.write_text(digest + "\n")
    if source.lift and (folder / source.part / source.lift).is_file():
        _link(folder / source.part / source.lift, folder / source.lift)
    listed = file_list(uid, source, data)
    if listed is not None:
        write_json_gz([str(folder / source.part), *map(str, files)], listed, DownloadError)
    archive.unlink()


def _fetch_repository(source: Source, folder: Path, login: Login) -> None:
    """Download a Hugging Face dataset at a revision; the folder is renamed at the end."""
    from huggingface_hub import HfApi, snapshot_download  # takes a second
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.utils import disable_progress_bars

    if not sys.stderr.isatty():
        disable_progress_bars()
    host, _, name = source.url.partition("/datasets/")
    part = folder.with_name(f".{folder.name}.part")
    access: dict[str, Any] = {"endpoint": host, "token": login.password or None}
    try:
        # Without the commit, `snapshot_download` would return an incomplete folder when the host cannot be reached.
        commit = HfApi(**access).dataset_info(name, revision=source.version).sha
        snapshot_download(
            name, repo_type="dataset", revision=commit, local_dir=part, cache_dir=part / ".cache", **access
        )
    except HfHubHTTPError as error:
        raise DownloadError(f"{source.url}: {_reason(error.response.status_code)}") from error
    except Exception as error:  # of the HTTP client, of files and of invalid answers
        text = " ".join(str(error).split())[:300]
        raise DownloadError(f"{source.url}: cannot be downloaded ({text}); run the same command to continue") from error
    shutil.rmtree(part / ".cache")
    if not any(part.iterdir()):
        raise DownloadError(f"{source.url}: found no files at version {source.version}, expected at least one")
    if folder.is_dir():
        shutil.rmtree(folder)
    os.replace(part, folder)


def fetch_file(url: str, path: Path, authorization: str, title: str) -> str:
    """Download a file to `path`, continuing an earlier attempt. Returns its SHA-256 as hexadecimal digits.

    Args:
        url: address.
        path: file to write.
        authorization: value of the Authorization header; empty for none.
        title: name in the progress display.

    Raises DownloadError where the server refuses, or ATTEMPTS connections in a row fail.
    """
    part = path.with_name(f"{path.name}.part")
    part.parent.mkdir(parents=True, exist_ok=True)
    columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    failures, done = 0, False
    with Progress(*columns, disable=not sys.stderr.isatty()) as progress:
        task = progress.add_task(title, total=None)
        while not done:
            begin = part.stat().st_size if part.is_file() else 0
            problem: Exception | str = "the connection ended early"
            try:
                done = _append(url, part, authorization, progress, task)
            except urllib.error.HTTPError as error:
                raise DownloadError(f"{url}: {_reason(error.code)}") from error
            except (OSError, HTTPException, ValueError) as error:
                problem = error
            if not done:
                failures = 0 if part.is_file() and part.stat().st_size > begin else failures + 1
                if failures >= ATTEMPTS:
                    raise DownloadError(f"{url}: cannot be downloaded ({problem}); run the same command to continue")
                time.sleep(2.0**failures / 2)
    with open_regular(part, DownloadError) as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()  # type: ignore[arg-type]  # a file, opened to read bytes
    part.with_name(f"{part.name}.tag").unlink(missing_ok=True)
    os.replace(part, path)
    return found


def _append(url: str, part: Path, authorization: str, progress: Progress, task) -> bool:
    """Append the data of one connection to a file. Returns True where the file is complete."""
    tag = part.with_name(f"{part.name}.tag")
    begin = part.stat().st_size if part.is_file() and tag.is_file() else 0
    # The tag identifies the version of the first bytes; for another version the server sends all bytes.
    headers = {"Range": f"bytes={begin}-"} if begin else {}
    if begin and (version := read_text(tag, DownloadError, _MAX_TAG)):
        headers["If-Range"] = version
    try:
        answer = _open(url, authorization, headers)
    except urllib.error.HTTPError as error:
        if error.code != 416:
            raise
        tag.unlink(missing_ok=True)
        return error.headers.get("Content-Range", "").endswith(f"/{begin}")  # complete, or begin again
    with answer:
        if answer.status != 206:
            begin = 0
        whole = None
        length, part_of = answer.headers.get("Content-Length", ""), answer.headers.get("Content-Range", "")
        if begin and not part_of.startswith(f"bytes {begin}-"):
            raise DownloadError(f"{url}: found Content-Range {part_of!r}, expected bytes from {begin} on")
        if length and not (length.isascii() and length.isdigit()):
            raise DownloadError(f"{url}: found Content-Length {length!r}, expected a number of bytes")
        if answer.status == 206 and (named := _WHOLE_SIZE.search(part_of)):
            whole = int(named[1])  # a server may send less than the rest
        total = whole if whole is not None else begin + int(length) if length else None
        tag.write_text(answer.headers.get("ETag") or answer.headers.get("Last-Modified") or "")
        progress.update(task, total=total, completed=begin)
        with open(part, "r+b" if begin else "wb") as file:
            file.seek(begin)
            while block := answer.read(_BLOCK):
                file.write(block)
                progress.advance(task, len(block))
            return total is None or file.tell() == total


def _open(url: str, authorization: str, headers: dict | None = None) -> HTTPResponse:
    if urllib.parse.urlparse(url).scheme not in ("http", "https"):
        raise DownloadError(f"{url}: expected an address that begins with https://")
    request = urllib.request.Request(url, headers={"User-Agent": "batchnav", **(headers or {})})
    if authorization:
        request.add_unredirected_header("Authorization", authorization)  # redirects lead to other hosts
    return urllib.request.urlopen(request, timeout=TIMEOUT)


def _reason(code: int) -> str:
    """What an HTTP status means for a download."""
    if code in (401, 403):
        return f"access denied ({code}): accept the dataset's terms, and give --username and --password"
    return f"the server answered {code} {responses.get(code, '')}".rstrip()


def unpack(archive: Path, folder: Path) -> list[Path]:
    """Unpack a .zip or .tar file into a folder; each file appears atomically. Returns the files.

    DownloadError where the archive is damaged or encrypted, would write outside the folder, or exceeds the bounds
    (MAX_FILES, MAX_RATIO and MAX_UNPACKED).
    """
    scratch = folder.with_name(f".{folder.name}.unpacking")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(parents=True)
    try:
        if archive.suffix == ".zip":
            with zipfile.ZipFile(archive) as zipped:
                members = zipped.infolist()
                _check_sizes(archive, (member.file_size for member in members))
                for member in members:
                    _below(scratch, member.filename)
                zipped.extractall(scratch)
        else:
            with tarfile.open(archive, tarinfo=bounded_headers(archive)) as tar:
                # Sizes in a tar file are found only by reading all of it; compressed, it may be a decompression bomb.
                _check_sizes(archive, (member.size for member in tar))
                tar.extractall(scratch, filter="data")
        files = []
        for source in sorted(path for path in scratch.rglob("*") if not path.is_dir()):
            target = folder / source.relative_to(scratch)
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(source, target)
            files.append(target)
    except (
        zipfile.BadZipFile, tarfile.TarError, zlib.error, lzma.LZMAError, EOFError, OSError, RuntimeError, ValueError,
        struct.error, MemoryError,
    ) as error:  # fmt: skip
        raise DownloadError(f"{archive}: cannot be unpacked ({error})") from error
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return files


def bounded_headers(archive: Path) -> type[tarfile.TarInfo]:
    """The class of an archive's members that checks each header before what follows it is read.

    It raises DownloadError for a negative size, for sparse files, whose lists of pieces have any length, and for
    extended headers above MAX_HEADER and MAX_HEADERS bytes.
    """
    total, sparse = 0, f"{archive}: found a sparse file, expected whole ones; pack it again without --sparse"

    class Member(tarfile.TarInfo):
        @classmethod
        def frombuf(cls, buf, encoding, errors):
            nonlocal total
            member = super().frombuf(buf, encoding, errors)
            extended = member.type in _EXTENDED
            total += tarfile.BLOCKSIZE + member.size if extended else 0
            if member.size < 0:
                raise DownloadError(f"{archive}: found a member of {member.size} bytes, expected 0 or more")
            if member.type == tarfile.GNUTYPE_SPARSE:
                raise DownloadError(sparse)
            if extended and (member.size > MAX_HEADER or total > MAX_HEADERS):
                raise DownloadError(
                    f"{archive}: found an extended header of {member.size} bytes, {total} bytes in all, expected at "
                    f"most {MAX_HEADER} and {MAX_HEADERS}"
                )
            return member

        def _proc_gnusparse_10(self, *_):
            raise DownloadError(sparse)

    return Member


def _check_sizes(archive: Path, sizes: Iterable[int]) -> None:
    """DownloadError where an archive has too many members, or its unpacked size is too large."""
    limit, total = MAX_RATIO * archive.stat().st_size + MAX_UNPACKED, 0
    for number, size in enumerate(sizes, 1):
        if size < 0:
            raise DownloadError(f"{archive}: found a member of {size} bytes, expected 0 or more")
        total += size
        if number > MAX_FILES or total > limit:
            found = f"more than {MAX_FILES} files" if number > MAX_FILES else f"more than {limit} bytes when unpacked"
            raise DownloadError(f"{archive}: found {found}, expected fewer for {archive.stat().st_size} packed bytes")


def _below(folder: Path, name: str) -> Path:
    """The path of a name in a folder. DownloadError where it would lie outside."""
    if PurePosixPath(name).is_absolute() or ".." in PurePosixPath(name).parts:
        raise DownloadError(f"{name!r}: found a file name that leads out of {folder}")
    return folder / name


def _link(target: Path, link: Path) -> None:
    """Make a relative link to a file or folder. DownloadError where a file or folder is in its place."""
    if link.exists() and not link.is_symlink():
        raise DownloadError(f"{link}: found a file or folder, expected none, or a link; move it away")
    link.parent.mkdir(parents=True, exist_ok=True)
    with replacing(link, DownloadError) as part:
        part.symlink_to(os.path.relpath(target.absolute(), link.parent.absolute()))
