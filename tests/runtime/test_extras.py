import importlib.metadata

import pytest

from batchnav.runtime.extras import install_command


@pytest.mark.parametrize(
    "lines, expected",
    [
        (["torch>=2.6", 'viser<1.2,>=1.1; extra == "viewer"', "av; extra == 'video'"], "pip install 'viser<1.2,>=1.1'"),
        (["a[b]>=1 ; extra == 'viewer'", "c; extra == 'viewer'", "d; extra == 'viewer2'"], "pip install 'a[b]>=1' 'c'"),
        (None, "pip install '.[viewer]' in the checkout"),
    ],
)
def test_packages_of_an_extra(lines, expected, monkeypatch):
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: lines)
    assert install_command("viewer") == expected


def test_a_checkout_that_is_not_installed(monkeypatch):
    def requires(name):
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "requires", requires)
    assert install_command("video") == "pip install '.[video]' in the checkout"
