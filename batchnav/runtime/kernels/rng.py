"""Counter-based random numbers: the key (seed, environment, episode, index) determines them on every device.

Philox 4x32-10 of Salmon et al., "Parallel random numbers: as easy as 1, 2, 3" (SC 2011). The generator has no state:
results do not depend on the order of threads, and a run resumes from its episode counters.
"""

import math

import numpy as np

from batchnav.runtime.kernels.decorators import device_function, inline_function

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


# Random numbers of the steps of an episode: uniform numbers, and the normal quantile for noise.
#
# The key (seed, environment, episode, step, stream, index) determines the numbers on every device, for any order of
# threads. A stream is a purpose, such as depth noise; the index counts within it, for example pixels.

MAX_INDICES = 1 << 20
"""Number of indices per stream: the pixels of an image of 1024 x 1024."""
CAMERA, ACTUATION, DEPTH, RGB = range(4)
"""Streams. Index k + 1 of CAMERA gives the random parameters of camera k; index 0 is used by `rng.uniform4`. The noise
streams of camera k are DEPTH + 2 k and RGB + 2 k."""
MASK = 2048
"""First of the four streams of the goal mask's noise of camera 0; those of camera k begin at MASK + 4 k."""
DISTURBANCE = 4095
"""Stream of the errors of an episode's odometry and of its latency: the last one."""
_LOW, _STEP = np.float32(0.5), np.float32(2.0**-23)
_ZERO, _HALF, _ONE = np.float32(0.0), np.float32(0.5), np.float32(1.0)

# Wichura's PPND7: numerators and denominators, highest power first, for the centre and the tails.
_MIDDLE, _MIDDLE_2 = np.float32(0.425), np.float32(0.180625)
_A = tuple(map(np.float32, (5.9109374720e1, 1.5929113202e2, 5.0434271938e1, 3.3871327179)))
_B = tuple(map(np.float32, (6.7187563600e1, 7.8757757664e1, 1.7895169469e1, 1.0)))
_C = tuple(map(np.float32, (1.7023821103e-1, 1.3067284816, 2.7568153900, 1.4234372777)))
_D = tuple(map(np.float32, (1.2021132975e-1, 7.3700164250e-1, 1.0)))
_TAIL = np.float32(1.6)


@inline_function
def step_uniforms(seed, environment, episode, step, stream, index):
    """Four float32 in (0, 1), each an odd multiple of 2^-24.

    Counters are integers below 2^32; `index` is below MAX_INDICES.
    """
    bits = np.uint64(seed)
    a, b, c, d = philox(
        np.uint32(environment), np.uint32(episode), np.uint32(step), np.uint32(stream * MAX_INDICES + index),
        np.uint32(bits & np.uint64(0xFFFFFFFF)), np.uint32(bits >> np.uint64(32)),
    )  # fmt: skip
    return _inside(a), _inside(b), _inside(c), _inside(d)


@inline_function
def _inside(bits):
    """A float32 in (0, 1) from 32 random bits."""
    return (np.float32(np.uint32(bits >> np.uint32(9))) + _LOW) * _STEP


@device_function
def normal_quantile(p):
    """Quantile function of the standard normal distribution, for p in [2^-24, 1 - 2^-24].

    Algorithm PPND7 of Wichura, "Algorithm AS 241: The percentage points of the normal distribution" (Applied Statistics
    37, 1988), with seven digits and without the branch for p below e^-25.
    """
    q = p - _HALF
    if abs(q) <= _MIDDLE:
        r = _MIDDLE_2 - q * q
        above = ((_A[0] * r + _A[1]) * r + _A[2]) * r + _A[3]
        return q * above / (((_B[0] * r + _B[1]) * r + _B[2]) * r + _B[3])
    r = np.float32(math.sqrt(-np.float32(math.log(p if q < _ZERO else _ONE - p)))) - _TAIL
    far = (((_C[0] * r + _C[1]) * r + _C[2]) * r + _C[3]) / ((_D[0] * r + _D[1]) * r + _D[2])
    return -far if q < _ZERO else far
