"""`batchnav doctor`: what is here, what to install, and how much memory a configuration takes."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from worlds import write_floor

import batchnav
from batchnav.data.scenes.load import load_scene, map_scenes
from batchnav.diagnostics import doctor, installation
from batchnav.errors import MeshError
from batchnav.renderers.opengl import gl
from batchnav.runtime.imports import install_command
from batchnav.scene.resident import SceneSize


def test_doctor_says_what_is_here_and_what_to_install(run, monkeypatch):
    text = run("doctor")
    assert "NCCL" in text
    for word in ("batchnav", "Python", "moderngl", "extra viewer", "cache folder", "OpenGL", "renderers"):
        assert f"\n {word} " in text

    def missing(name):
        raise OSError(name)

    monkeypatch.setattr(gl.ctypes, "CDLL", missing)
    text = run("doctor")
    assert re.search(r"apt-get\s+install\s+libegl1", text) and "no context" in text  # lines are wrapped


def test_doctor_names_missing_extras_and_its_version(monkeypatch):
    monkeypatch.setattr(installation, "_version", lambda name: None if name in ("av", "skrl") else "1.0")
    found = {finding.what: finding for finding in installation.installation(batchnav.__version__)}
    assert found["batchnav"].found == batchnav.__version__
    assert found["extra video"].advice == f"for MP4 videos: {install_command('video')}"
    assert "skrl missing" in found["extra adapters"].found and not found["extra viewer"].advice


def test_doctor_knows_every_extra_and_its_packages():
    project = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = {
        extra: {Requirement(line).name for line in lines} for extra, lines in project["optional-dependencies"].items()
    }
    for extra in ("cuda", "dev", "docs", "policies"):
        extras.pop(extra)
    assert {extra: set(packages) for extra, (packages, _) in installation.EXTRAS.items()} == extras


def test_doctor_reports_a_cache_folder_that_cannot_be_used(tmp_path, monkeypatch):
    folder = tmp_path / "cache"
    folder.mkdir()
    folder.chmod(0o777)  # others could write machine code into it
    environment = {**os.environ, "BATCHNAV_CACHE": str(folder)}
    command = [sys.executable, "-m", "batchnav", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    assert "cannot be used" in done.stdout and "chmod -R go-w" in done.stdout and "numba" in done.stdout
    monkeypatch.setenv("BATCHNAV_CACHE", str(tmp_path / "own"))
    monkeypatch.setattr(installation, "LEAST_SPACE", 1 << 70)
    assert "free some space" in installation._cache().advice
    (tmp_path / "file").touch()
    monkeypatch.setenv("BATCHNAV_CACHE", str(tmp_path / "file"))
    assert "cannot be created" in installation._cache().advice


def test_doctor_plans_many_scenes(run, tmp_path):
    """By three of them, and the sizes of the files of all."""
    for k in range(5):
        write_floor(tmp_path / f"{k}.glb")
    text = run("doctor", "--scenes", tmp_path)
    found = {finding.what: finding for finding in doctor.plan_findings(tmp_path)}
    assert found["plan: scenes"].found.startswith("5 in ") and found["plan: scenes"].found.endswith("3 were measured")
    assert "all fit into" in found["plan: depth"].found and set(found) == {
        *(f"plan: {name}" for name in ("scenes", "prepared files", "batchnav data prepare", "file cache")),
        *(f"plan: {name}" for name in doctor.PLANNED),
    }
    assert all(name in text for name in ("plan: scenes", "cached scenes"))
    with pytest.raises(MeshError, match="found no"):
        doctor.plan_findings(tmp_path / "none")


def test_doctor_tells_how_many_scenes_fit(tmp_path, monkeypatch):
    for k in range(4):
        write_floor(tmp_path / f"{k}.glb")
    size = SceneSize.of(load_scene(tmp_path / "0.glb")).with_appearance(()).num_bytes
    monkeypatch.setattr(doctor, "_free_memory", lambda device: int(2.5 * size))
    monkeypatch.setattr(doctor, "_host_memory", lambda: 1)
    found = {finding.what: finding for finding in doctor.plan_findings(tmp_path)}
    assert "about 100% of the scenes" in found["plan: file cache"].advice
    assert "; 2 fit into" in found["plan: depth"].found and "--scenes.gigabytes" in found["plan: depth"].advice


def test_doctor_predicts_a_configurations_memory(run, tmp_path):
    config = tmp_path / "small.yaml"
    config.write_text(
        "{scenes: {houses: 1}, policy: {se_resnet9: {base_width: 8}}, ppo: {num_envs: 4, rollout_steps: 2}, "
        "device: cpu}"
    )
    text = run("doctor", "--config", str(config))
    assert "memory: scenes" in text and "memory: total, on cpu" in text and "memory: scenes measured" not in text


def test_doctor_measures_few_of_many_scenes(monkeypatch, tmp_path):
    """Each sampled scene represents its neighbours; the output states the possible error."""
    asked, config = [], tmp_path / "many.yaml"
    config.write_text(
        "{scenes: {houses: 1000}, policy: {se_resnet9: {base_width: 8}}, ppo: {num_envs: 4, rollout_steps: 2}}"
    )
    one = map_scenes(SceneSize.of, ["house:0"])[0]
    small, large = (one._replace(bvh=one.bvh._replace(nodes=k * one.bvh.nodes)) for k in (1, 5))

    def measured(function, names, *how):
        asked.extend(names)
        return [small if int(name.removeprefix("house:")) < 500 else large for name in names]

    monkeypatch.setattr(doctor, "map_scenes", measured)
    how, *parts = doctor.memory_findings(config)
    assert len(asked) == doctor.MAX_MEASURED and len(set(asked)) == len(asked)
    assert how.what == "memory: scenes measured" and how.found.startswith("64 of 1,000: the total is within ")
    found = dict(part[:2] for part in parts)["memory: scenes"]
    bare = [scene.with_appearance(()).num_bytes for scene in (small, large)]
    assert found == f"{(500 * bare[0] + 500 * bare[1]) / 1e9:.3f} GB"
    assert doctor._sampling_error([90, 110] * 32, 10**9) == doctor._sampling_error([9, 11] * 32, 10**9)
    assert "is within 2% (95%)" in doctor._sampling_error([90, 110] * 32, 10**9)


def test_doctor_says_which_gpus_do_not_reach_each_other(monkeypatch):
    cuda = doctor.torch.cuda
    monkeypatch.setattr(doctor.torch.distributed, "is_nccl_available", lambda: True)
    monkeypatch.setattr(cuda.nccl, "version", lambda: (2, 27, 3))
    monkeypatch.setattr(cuda, "is_available", lambda: True)
    monkeypatch.setattr(cuda, "device_count", lambda: 3)
    monkeypatch.setattr(cuda, "can_device_access_peer", lambda i, j: (i, j) != (0, 2))
    monkeypatch.setenv("NCCL_NVLS_ENABLE", "0")
    version, links = doctor._nccl()
    assert version.found.startswith("2.27.3") and "NCCL_NVLS_ENABLE=0" in version.found
    assert links.found == "no peer access between cuda:0 and cuda:2" and "nvidia-smi topo -m" in links.advice
