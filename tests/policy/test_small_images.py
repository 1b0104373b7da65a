"""Convolutions of small images as matrix products."""

import pytest
import torch
from torch.nn import functional as F

from batchnav.policy.small_images import conv3x3, dense_weight, is_small

ROUNDING = 1e-4  # float32 sums of 144 products of size 1, in another order
SIZES = [(1, 1), (1, 2), (2, 1), (2, 2)]


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_a_dense_weight_is_the_convolution(height, width):
    torch.manual_seed(0)
    x = torch.randn(7, 5, height, width, dtype=torch.float64)
    weight = torch.randn(3, 5, 3, 3, dtype=torch.float64, requires_grad=True)
    rows = F.linear(x.permute(0, 2, 3, 1).flatten(1), dense_weight(weight, height, width))
    found = rows.view(7, height, width, 3).permute(0, 3, 1, 2)
    expected = F.conv2d(x, weight, padding=1)
    torch.testing.assert_close(found, expected)
    by = torch.randn_like(found)
    torch.testing.assert_close(*(torch.autograd.grad(y, weight, by)[0] for y in (found, expected)))


@pytest.mark.parametrize(("height", "width"), SIZES)
def test_small_images_fill_a_dense_weight(height, width):
    """Each pixel sees every other one; of images beyond, corners would see nothing of each other."""
    assert is_small(height, width) and dense_weight(torch.ones(2, 2, 3, 3), height, width).all()
    assert not is_small(3, width) and not is_small(height, 3)


@pytest.mark.cuda
@pytest.mark.parametrize(("height", "width"), [*SIZES, (3, 2)])
def test_convolutions_on_cuda(height, width, monkeypatch):
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    x = torch.randn(9, 16, height, width, device="cuda").to(memory_format=torch.channels_last)
    weight, bias = torch.randn(32, 16, 3, 3, device="cuda"), torch.randn(32, device="cuda")
    found, expected = conv3x3(x, weight, bias), F.conv2d(x, weight, bias, padding=1)
    torch.testing.assert_close(found, expected, atol=ROUNDING, rtol=ROUNDING)
    assert found.is_contiguous(memory_format=torch.channels_last)
