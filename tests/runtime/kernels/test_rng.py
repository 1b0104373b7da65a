"""Random numbers against the published test vectors of Random123, and their statistics."""

import numba
import numpy as np

from batchnav.runtime.kernels.decorators import cpu_kernel
from batchnav.runtime.kernels.rng import philox, uniform4


def test_philox_known_answers():
    generate = numba.njit(lambda *words: philox(*words))
    # kat_vectors of Random123, philox4x32 with 10 rounds.
    ones = np.uint32(0xFFFFFFFF)
    assert generate(*[np.uint32(0)] * 6) == (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert generate(*[ones] * 6) == (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)
    pi = [0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0]
    assert generate(*map(np.uint32, pi)) == (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1)


@cpu_kernel
def _fill(seed, out):
    for i in range(out.shape[0]):
        a, b, c, d = uniform4(seed, i, 3, 5)
        out[i, 0], out[i, 1], out[i, 2], out[i, 3] = a, b, c, d


def test_uniforms_are_uniform_and_independent():
    n = 100_000
    a, b = np.empty((n, 4), np.float32), np.empty((n, 4), np.float32)
    _fill(7, a)
    _fill(8, b)
    assert a.min() >= 0.0 and a.max() < 1.0
    # Mean and correlations of n uniforms: five standard errors.
    assert np.all(abs(a.mean(0) - 0.5) < 5 * (1 / 12) ** 0.5 / n**0.5)
    both = np.concatenate([a, b], axis=1)
    correlation = np.corrcoef(both, rowvar=False) - np.eye(8)
    assert abs(correlation).max() < 5 / n**0.5
