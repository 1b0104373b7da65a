"""Optimisers by name."""

import subprocess
import sys

import torch

from batchnav.ppo.optimizers import AdamW

TRAINS = """
import sys, torch
from batchnav.ppo.optimizers import AdamW
weight = torch.nn.Parameter(torch.ones(3))
optimizer = AdamW([weight], torch.tensor(1e-2), fused=True)
weight.square().sum().backward()
optimizer.step()
optimizer.zero_grad()
optimizer.load_state_dict(optimizer.state_dict())
print("torch._dynamo" in sys.modules)
"""


def test_adamw_imports_no_compiler():
    """PyTorch's compiler takes seconds to import."""
    found = subprocess.run([sys.executable, "-c", TRAINS], capture_output=True, text=True)
    assert found.stdout.split() == ["False"], found.stderr


def test_adamw_takes_the_steps_of_pytorchs():
    rows = torch.linspace(-1.0, 1.0, 12).reshape(4, 3)
    weights = []
    for kind in (AdamW, torch.optim.AdamW):
        weight = torch.nn.Parameter(torch.ones(3))
        optimizer = kind([weight], torch.tensor(1e-2), eps=1e-5, weight_decay=0.1, fused=True)
        for row in rows:
            optimizer.zero_grad()
            (weight * row).square().sum().backward()
            optimizer.step()
        assert weight.requires_grad and torch.is_grad_enabled()
        weights.append(weight.detach())
    assert torch.equal(*weights) and not torch.equal(weights[0], torch.ones(3))
