"""Renderers by name, and the choice of `auto`."""

import logging

import pytest
from banks import bank_of, room

from batchnav.data.scenes.load import load_scene
from batchnav.errors import ArgumentError, DeviceError
from batchnav.renderers import choose
from batchnav.renderers.choose import RENDERERS, make_renderer
from batchnav.scene.bank import SceneBank


@pytest.fixture(scope="module")
def bank():
    return SceneBank.pack([load_scene("house:3"), load_scene("house:4")], "cpu")


@pytest.mark.parametrize("best", ["raycast", "opengl"])
def test_auto_takes_the_faster_renderer_and_says_why(bank, opengl, monkeypatch, caplog, best):
    monkeypatch.setattr(
        choose, "_seconds", lambda renderer, views: 2.0 if isinstance(renderer, RENDERERS[best]) else 6.0
    )
    caplog.set_level(logging.INFO, "batchnav")
    renderer = make_renderer("auto", bank, 6, height=8, width=8)
    assert isinstance(renderer, RENDERERS[best])
    other = next(name for name in RENDERERS if name != best)
    assert f"renderer: {best}" in caplog.text and f"{best} 3 frames/s" in caplog.text and f"{other} 1 " in caplog.text


def test_auto_renders_what_it_times(bank, opengl):
    assert make_renderer("auto", bank, 6, height=8, width=8).depth.shape == (6, 8, 8)


def test_auto_without_opengl_casts_rays_and_says_what_is_missing(bank, monkeypatch, caplog):
    def missing(*arguments, **options):
        raise DeviceError("OpenGL: found no libEGL")

    monkeypatch.setitem(RENDERERS, "opengl", missing)
    caplog.set_level(logging.INFO, "batchnav")
    assert isinstance(make_renderer("auto", bank, 2, height=8, width=8), RENDERERS["raycast"])
    assert "opengl: not available (OpenGL: found no libEGL)" in caplog.text


def test_an_unknown_renderer_is_named():
    with pytest.raises(ArgumentError, match="renderer: found 'vulkan', expected one of raycast, opengl, auto"):
        make_renderer("vulkan", bank_of([room()], "cpu"), 1)
