"""Growing arrays and sorting in compiled code. Written as loops, since slices and `sort` take seconds to compile."""

import numpy as np

from batchnav.runtime.kernels.decorators import device_function, lean_function


@device_function
def with_capacity(rows, used, extra):
    """A 2-D array with capacity for `used` + `extra` rows: `rows` itself, or a copy of twice the size."""
    if used + extra <= len(rows):
        return rows
    larger = np.empty((2 * (used + extra), rows.shape[1]), rows.dtype)
    for i in range(used):
        for a in range(rows.shape[1]):
            larger[i, a] = rows[i, a]
    return larger


@device_function
def first_rows(rows, used):
    """A copy of the first `used` rows of a 2-D array."""
    kept = np.empty((used, rows.shape[1]), rows.dtype)
    for i in range(used):
        for a in range(rows.shape[1]):
            kept[i, a] = rows[i, a]
    return kept


@lean_function
def copy_row(source, i, k, target_out):
    """target_out[k] = source[i] for 2-D arrays."""
    for a in range(target_out.shape[1]):
        target_out[k, a] = source[i, a]


@lean_function
def sort_keys(count, keys_out):
    """Sort the first `count` keys, in place (Shellsort)."""
    gap = np.int64(1)
    while gap < count // 2:
        gap = 2 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            key = keys_out[i]
            k = i
            while k >= gap and keys_out[k - gap] > key:
                keys_out[k] = keys_out[k - gap]
                k -= gap
            keys_out[k] = key
        gap //= 2
