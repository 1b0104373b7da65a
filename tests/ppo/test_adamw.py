"""AdamW's step and the clipping of gradients against torch's own, to the bit."""

import copy

import torch

from batchnav.ppo.adamw import AdamW
from batchnav.ppo.clip import clip_

SHAPES = ((7, 5), (7,), (), (4, 3, 3, 3))
SETTINGS = {"eps": 1e-5, "weight_decay": 1e-2}


def parameters():
    generator = torch.Generator().manual_seed(0)
    found = [torch.nn.Parameter(torch.randn(shape, generator=generator)) for shape in SHAPES]
    found[3].data = found[3].data.contiguous(memory_format=torch.channels_last)
    return [*found, torch.nn.Parameter(torch.ones(3))]  # of which nothing depends


def steps(optimizer, own, first, last):
    """Clip some steps' gradients and take them: the norms."""
    clip = clip_ if own else torch.nn.utils.clip_grad_norm_
    found, norms = optimizer.param_groups[0]["params"], []
    for step in range(first, last):
        generator = torch.Generator().manual_seed(step)
        for parameter in found[:-1]:
            parameter.grad = torch.randn(parameter.shape, generator=generator) * 0.01 * step
        optimizer.param_groups[0]["lr"].fill_(1e-2 / (1 + step))
        norms.append(clip(found, 0.5))
        optimizer.step()
    assert min(norms) < 0.5 < max(norms)
    return torch.stack(norms)


def test_it_is_torchs_and_goes_on_from_its_state():
    theirs, ours, later = parameters(), parameters(), parameters()
    torchs = torch.optim.AdamW(theirs, torch.tensor(0.0), **SETTINGS, fused=True)
    own = AdamW(ours, torch.tensor(0.0), **SETTINGS)
    assert torch.equal(steps(torchs, False, 0, 20), steps(own, True, 0, 20))
    assert all(map(torch.equal, theirs, ours)) and torch.equal(ours[-1], torch.ones(3))
    resumed = AdamW(later, torch.tensor(0.0), **SETTINGS)
    resumed.load_state_dict(copy.deepcopy(torchs.state_dict()))
    for new, old in zip(later, theirs, strict=True):
        new.data.copy_(old.data)
    steps(torchs, False, 1, 30)
    steps(resumed, True, 1, 30)
    assert all(map(torch.equal, theirs, later))
