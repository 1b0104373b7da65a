"""Counter-based random numbers: the key (seed, environment, episode, index) determines them on every device.

Philox 4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). The generator has no state:
results do not depend on the order of threads, and a run resumes from its episode counters.
"""

import numpy as np

from batchnav.runtime.kernels.decorators import inline_function

_M0, _M1 = np.uint64(0xD2511F53), np.uint64(0xCD9E8D57)
_W0, _W1 = np.uint32(0x9E3779B9), np.uint32(0xBB67AE85)
_TO_UNIT = np.float32(2.0**-24)


@inline_function
def philox(c0, c1, c2, c3, k0, k1):
    """Philox 4x32-10: four uint32 counters and a key of two -> four uint32, each uniform over its range."""
    for _ in range(10):
        p0 = _M0 * np.uint64(c0)
        p1 = _M1 * np.uint64(c2)
        c0, c1, c2, c3 = (
            np.uint32((p1 >> np.uint64(32)) ^ c1 ^ k0),  # numba widens; without casts the GPU multiplies 64 by 64 bits
            np.uint32(p1 & np.uint64(0xFFFFFFFF)),
            np.uint32((p0 >> np.uint64(32)) ^ c3 ^ k1),
            np.uint32(p0 & np.uint64(0xFFFFFFFF)),
        )
        k0 = np.uint32(k0 + _W0)
        k1 = np.uint32(k1 + _W1)
    return c0, c1, c2, c3


@inline_function
def uniform4(seed, environment, episode, index):
    """Four float32 in [0, 1) with 24 random bits each.

    `seed` is an int64. The others are integers below 2**32; `index` counts the calls for one episode.
    """
    bits = np.uint64(seed)
    a, b, c, d = philox(
        np.uint32(environment), np.uint32(episode), np.uint32(index), np.uint32(0),
        np.uint32(bits & np.uint64(0xFFFFFFFF)), np.uint32(bits >> np.uint64(32)),
    )  # fmt: skip
    return _unit(a), _unit(b), _unit(c), _unit(d)


@inline_function
def _unit(bits):
    """A float32 in [0, 1) from 32 random bits."""
    return np.float32(np.uint32(bits >> np.uint32(8))) * _TO_UNIT
