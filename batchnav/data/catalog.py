"""Catalogue of datasets for navigation: Habitat's identifiers, with address, folder and licence.

No dataset is part of this project. Folders are those of habitat-sim's `datasets_download`: files go to
data/versioned_data, and links in the folders that Habitat reads point there.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from pathlib import Path

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
