"""Physics of one cart and its pole: functions of scalars, for CPU and GPU."""

from __future__ import annotations

import math

import numpy as np

from batchnav.runtime.kernels.decorators import inline_function
from batchnav.runtime.kernels.rng import uniform4

# The physics is that of Gymnasium's CartPole-v1, after Barto, Sutton and Anderson (1983).
GRAVITY = 9.8
"""m/s^2."""
CART_MASS = 1.0
"""kg."""
POLE_MASS = 0.1
"""kg."""
HALF_LENGTH = 0.5
"""Distance from the joint to the pole's centre of mass, half its length, metres."""
FORCE = 10.0
"""Force of a push, N."""
TIME_STEP = 0.02
"""Duration of a step, seconds."""
MAX_POSITION = 2.4
"""Largest distance of the cart from the centre of the track, metres; beyond it the episode fails."""
MAX_ANGLE = math.radians(12.0)
"""Largest angle of the pole from upright, radians; beyond it the episode fails."""
MAX_STEPS = 500
"""Longest episode, steps."""
START_RANGE = 0.05
"""Each of the four values of a start state is uniform in [-START_RANGE, START_RANGE)."""
WINDOW_BITS = 3
"""log2 of WINDOW."""
WINDOW = 1 << WINDOW_BITS
"""Number of consecutive steps that share a start state: the length of the shortest possible episode, eight pushes to
one side."""

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


@inline_function
def sin_cos(angle):
    """Sine and cosine by their Taylor series, to float32's precision for |angle| < 0.45.

    A running episode has |angle| <= 0.21. The series is cheaper than a library call, vectorises on the CPU, and has an
    error of 1e-9, where the GPU's fast sine has 5e-7.
    """
    square = angle * angle
    sine = angle * (_ONE + square * (_SIN3 + square * (_SIN5 + square * _SIN7)))
    cosine = _ONE + square * (-_HALF + square * (_COS4 + square * (_COS6 + square * _COS8)))
    return sine, cosine


@inline_function
def push(cart, right):
    """Push one cart right or left for a time step: (position, velocity, angle, spin) -> the same after the step.

    Units are m, m/s, rad and rad/s; spin is the pole's angular velocity.

    Explicit Euler integration, as in Gymnasium, of the equations of Florian, "Correct equations for the dynamics of the
    cart-pole system" (2005), without friction. In float32, within 1e-6 of Gymnasium's float64.
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


@inline_function
def has_failed(cart):
    """True where the cart is beyond MAX_POSITION or the pole beyond MAX_ANGLE."""
    return (abs(cart[0]) > _MAX_POSITION) | (abs(cart[2]) > _MAX_ANGLE)


@inline_function
def start(seed, environment, clock):
    """Start state of an episode that begins at this clock: four numbers from one call of the generator.

    All steps of a window have the same start state. A cart gets one twice only if a loaded state fails
    within the window of its last start. Start states repeat after 2**35 steps.
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
    """Number of steps of an episode from its start `began` to `clock`; both count modulo 2**16."""
    return np.int32(np.int16(np.int32(clock) - np.int32(began)))
