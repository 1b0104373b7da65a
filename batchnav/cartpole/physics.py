"""One cart and its pole: scalars in, scalars out, for CPU and GPU alike."""

from __future__ import annotations

import math

import numpy as np

from batchnav.runtime.kernels.decorators import exact_function, inline_function
from batchnav.runtime.kernels.rng import uniform4

# The physics is that of Gymnasium's CartPole-v1, after Barto, Sutton and Anderson (1983).
GRAVITY = 9.8
CART_MASS = 1.0
POLE_MASS = 0.1
HALF_LENGTH = 0.5
"""From the joint to the pole's centre of mass: half its length."""
FORCE = 10.0
TIME_STEP = 0.02
MAX_POSITION = 2.4
MAX_ANGLE = math.radians(12.0)
MAX_STEPS = 500
START_RANGE = 0.05
"""An episode starts with each of its four values uniform in [-this, this)."""
WINDOW_BITS = 3
WINDOW = 1 << WINDOW_BITS
"""Steps that share a start: at most as many as the shortest episode has, which is eight pushes to one side."""

# Kernels compute in float32; a plain Python float among the operands would make it float64.
_GRAVITY, _TIME_STEP = np.float32(GRAVITY), np.float32(TIME_STEP)
_MAX_POSITION, _MAX_ANGLE = np.float32(MAX_POSITION), np.float32(MAX_ANGLE)
_THRUST = np.float32(FORCE / (CART_MASS + POLE_MASS))
_POLE_SHARE = np.float32(POLE_MASS / (CART_MASS + POLE_MASS))
_POLE_MOMENT = np.float32(POLE_MASS * HALF_LENGTH / (CART_MASS + POLE_MASS))
_HALF_LENGTH, _INERTIA = np.float32(HALF_LENGTH), np.float32(4.0 / 3.0)
_START_WIDTH, _HALF, _ONE = np.float32(2.0 * START_RANGE), np.float32(0.5), np.float32(1.0)
_WINDOW_BITS = np.int64(WINDOW_BITS)
_SIN3, _SIN5, _SIN7 = np.float32(-1 / 6), np.float32(1 / 120), np.float32(-1 / 5040)
_COS4, _COS6, _COS8 = np.float32(1 / 24), np.float32(-1 / 720), np.float32(1 / 40320)


@exact_function
def sin_cos(angle):
    """Sine and cosine of a small angle by their Taylor series, to float32's precision for |angle| < 0.45.

    A running episode has |angle| <= 0.21. This is cheaper than a library call, vectorises on the CPU, and is more
    exact than the GPU's fast sine (1e-9 against 5e-7).
    """
    square = angle * angle
    sine = angle * (_ONE + square * (_SIN3 + square * (_SIN5 + square * _SIN7)))
    cosine = _ONE + square * (-_HALF + square * (_COS4 + square * (_COS6 + square * _COS8)))
    return sine, cosine


@exact_function
def push(cart, right):
    """Push one cart right or left for a time step: (position, velocity, angle, spin) -> the next four.

    Explicit Euler, as Gymnasium does it; equations of Florian, "Correct equations for the dynamics of the cart-pole
    system" (2005), without friction. In float32; Gymnasium's float64 differs by less than 1e-6.
    """
    position, velocity, angle, spin = cart
    sine, cosine = sin_cos(angle)
    thrust = (_THRUST if right else -_THRUST) + _POLE_MOMENT * spin * spin * sine
    spin_up = (_GRAVITY * sine - cosine * thrust) / (_HALF_LENGTH * (_INERTIA - _POLE_SHARE * cosine * cosine))
    speed_up = thrust - _POLE_MOMENT * spin_up * cosine
    return (
        position + _TIME_STEP * velocity,
        velocity + _TIME_STEP * speed_up,
        angle + _TIME_STEP * spin,
        spin + _TIME_STEP * spin_up,
    )


@exact_function
def has_failed(cart):
    """Whether the cart has left the track or the pole leans too far."""
    return (abs(cart[0]) > _MAX_POSITION) | (abs(cart[2]) > _MAX_ANGLE)


@exact_function
def start(seed, environment, clock):
    """The state of an episode whose first step begins at this time: four numbers from one call of the generator.

    The same throughout a window. A state that was loaded may fail at once, and the next one loaded too: their episodes
    can get the same start. And after 2**35 steps the starts repeat.
    """
    a, b, c, d = uniform4(seed, environment, clock >> _WINDOW_BITS, 0)
    return (
        (a - _HALF) * _START_WIDTH,
        (b - _HALF) * _START_WIDTH,
        (c - _HALF) * _START_WIDTH,
        (d - _HALF) * _START_WIDTH,
    )


@inline_function
def age(began, clock):
    """Steps of an episode at this time; both are looked at modulo 2**16."""
    return np.int32(np.int16(np.int32(clock) - np.int32(began)))
