"""Vector loads and stores and other instructions that numba lacks. For CPU and CUDA unless noted otherwise."""

from __future__ import annotations

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.core.cpu import CPUContext
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype


def instruction(plain):
    """Decorator of an intrinsic. `plain`: Python function in its place if NUMBA_DISABLE_JIT=1, which checks indices."""
    return (lambda _: plain) if config.DISABLE_JIT else intrinsic


def _plain_load4(array, row, column):
    flat = array.reshape(len(array), -1)
    return tuple(flat[row, column + lane] for lane in range(4))


def _plain_load_columns(array, rows, first, column, out):
    for c, values in enumerate(out):
        for k in range(first, first + GROUP):
            values[k] = array[rows[k], column + c]


def _plain_load1(array, row, column):
    return array[row, column]


def _plain_store4(array, row, column, values):
    for lane in range(4):
        array[row, column + lane] = values[lane]


def _plain_store2(array, row, column, values):
    array[row, column], array[row, column + 1] = values


def _plain_store1(array, row, column, value):
    array[row, column] = value


def _plain_fma(a, b, c):
    return np.float32(np.float64(a) * np.float64(b) + np.float64(c))


def _plain_prefetch(array, row, column):
    pass


@instruction(_plain_load4)
def load4(typingctx, array, row, column):
    """Four adjacent elements of a C-ordered 2-D or 3-D array, in one 16-byte load; rows of the latter are flattened.

    The row length and `column` must be multiples of four. The array must be 16-byte aligned, as torch and NumPy
    allocate, and have fewer than 2**33 elements. On the GPU (`ld.global.v4`) BVH traversal is 2.4 times as fast as with
    scalar loads.
    """
    if not (isinstance(array, types.Array) and array.ndim in (2, 3) and array.layout == "C"):
        return None
    signature = types.UniTuple(array.dtype, 4)(array, types.int32, types.int32)

    def codegen(context, builder, signature, args):
        pointer = _vector_pointer(context, builder, signature, args)
        if isinstance(context, CPUContext):  # scalar loads, so that LLVM can vectorise a loop over adjacent rows
            element = context.get_data_type(signature.args[0].dtype)
            first = builder.bitcast(pointer, element.as_pointer())
            places = [builder.gep(first, [ir.Constant(ir.IntType(64), i)], inbounds=True) for i in range(4)]
            return context.make_tuple(builder, signature.return_type, [builder.load(place) for place in places])
        vector = builder.load(pointer, align=16)
        lanes = [builder.extract_element(vector, ir.Constant(ir.IntType(32), i)) for i in range(4)]
        return context.make_tuple(builder, signature.return_type, lanes)

    return signature, codegen


@instruction(_plain_prefetch)
def prefetch(typingctx, array, row, column):
    """Prefetch the cache line of `array[row, column]` on the CPU. The row need not exist.

    Requirements on `array` and `column` are those of `load4`.
    """
    if not (isinstance(array, types.Array) and array.ndim in (2, 3) and array.layout == "C"):
        return None

    def codegen(context, builder, signature, args):
        word = ir.IntType(32)
        place = builder.bitcast(_vector_pointer(context, builder, signature, args), ir.IntType(8).as_pointer())
        kind = ir.FunctionType(ir.VoidType(), [place.type, word, word, word])
        instruction = builder.module.declare_intrinsic("llvm.prefetch", [place.type], kind)
        to_read, to_keep, data = (ir.Constant(word, value) for value in (0, 3, 1))
        builder.call(instruction, [place, to_read, to_keep, data])
        return context.get_dummy_value()

    return types.void(array, types.int32, types.int32), codegen


GROUP = 16
"""Number of rows that `load_columns` reads at once: the float32 lanes of an AVX-512 register."""


@instruction(_plain_load_columns)
def load_columns(typingctx, array, rows, first, column, out):
    """`out[c][k] = array[rows[k], column + c]` for k from `first` to `first + GROUP - 1` and c from 0 to 3. CPU only.

    Requirements on `array` are those of `load4`; `out` is a tuple of four arrays. It loads four numbers at once and
    transposes them in registers.
    """
    if not (isinstance(array, types.Array) and array.ndim == 2 and array.layout == "C"):
        return None
    signature = types.void(array, rows, types.int32, types.int32, out)

    def codegen(context, builder, signature, args):
        source, rows = (context.make_array(signature.args[i])(context, builder, args[i]) for i in (0, 1))
        element, word = context.get_data_type(signature.args[0].dtype), ir.IntType(32)
        quad = ir.VectorType(element, 4)

        def at(pointer, index):
            return builder.gep(pointer, [builder.sext(index, ir.IntType(64))], inbounds=True)

        def shuffled(a, b, places):
            return builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(word, len(places)), places))

        row_length = cgutils.unpack_tuple(builder, source.shape, 2)[1]
        quads = []
        for lane in range(GROUP):
            row = builder.load(at(rows.data, builder.add(args[2], ir.Constant(word, lane))))
            start = builder.mul(builder.sext(row, row_length.type), row_length)
            place = builder.gep(at(source.data, args[3]), [start], inbounds=True)
            quads.append(builder.load(builder.bitcast(place, quad.as_pointer()), align=4))
        # Register j holds the rows j, j + 4, j + 8 and j + 12; then blocks of 4 x 4 numbers are transposed.
        whole, half = list(range(16)), list(range(8))
        j0, j1, j2, j3 = (
            shuffled(shuffled(quads[j], quads[j + 4], half), shuffled(quads[j + 8], quads[j + 12], half), whole)
            for j in range(4)
        )

        def quarters(a, b, *places):
            return shuffled(a, b, [4 * m + p for m in range(4) for p in places])

        low, high = (0, 16, 1, 17), (2, 18, 3, 19)
        columns = [
            quarters(quarters(j0, j1, *part), quarters(j2, j3, *part), *places)
            for part in (low, high)
            for places in ((0, 1, 16, 17), (2, 3, 18, 19))
        ]
        for values, array in zip(columns, cgutils.unpack_tuple(builder, args[4], 4), strict=True):
            target = context.make_array(signature.args[4].dtype)(context, builder, array).data
            builder.store(values, builder.bitcast(at(target, args[2]), values.type.as_pointer()), align=4)
        return context.get_dummy_value()

    return signature, codegen


def thread_array(size, dtype):
    """Device function that returns an uninitialised thread-local array of `size` four-byte numbers.

    numba's `cuda.local.array` is zero-initialised, which is expensive in short threads. On the CPU the compiler knows
    that no other pointer refers to the array, so it can move loads of other memory across stores to it.
    """
    element = from_dtype(np.dtype(dtype))
    kind = types.Array(element, 1, "C")

    @instruction(lambda: np.empty(size, dtype))
    def allocate(typingctx):
        def codegen(context, builder, signature, args):
            with builder.goto_entry_block():
                memory = builder.alloca(ir.ArrayType(context.get_data_type(element), size))
            array = context.make_array(kind)(context, builder)
            data = builder.bitcast(memory, array.data.type)
            length, width = (ir.Constant(ir.IntType(64), n) for n in (size, 4))
            context.populate_array(array, data=data, shape=[length], strides=[width], itemsize=width, meminfo=None)
            return array._getvalue()

        return kind(), codegen

    return allocate


@instruction(lambda value: np.float32(value).view(np.int32))
def float_bits(typingctx, value):
    """The bits of a float32 as an int32, to store integers in float32 rows that `load4` reads."""
    if value != types.float32:
        return None

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(32))

    return types.int32(types.float32), codegen


@instruction(lambda value: np.int32(value).view(np.float32))
def bits_float(typingctx, value):
    """The float32 with the bits of an int32: the inverse of `float_bits`."""
    if value != types.int32:
        return None

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), codegen


LOW, HIGH = np.int32(0x7410), np.int32(0x7432)
"""Selectors of `half_word`: which half of a word, as PTX's `prmt` selects bytes."""


def _plain_half_word(word, selector):
    return np.float32(2**23 + (int(word) >> (0 if selector == LOW else 16) & 0xFFFF))


@instruction(_plain_half_word)
def half_word(typingctx, word, selector):
    """2**23 plus the unsigned number in half a word, as a float32: one instruction on the GPU."""
    if not (word == selector == types.int32):
        return None

    def codegen(context, builder, signature, args):
        bits, kind = args[0], args[0].type
        large = ir.Constant(kind, 0x4B000000)
        if isinstance(context, CPUContext):
            shift = builder.shl(builder.and_(args[1], ir.Constant(kind, 2)), ir.Constant(kind, 3))
            half = builder.and_(builder.lshr(bits, shift), ir.Constant(kind, 0xFFFF))
            return builder.bitcast(builder.or_(half, large), ir.FloatType())
        permute = ir.InlineAsm(ir.FunctionType(kind, [kind] * 3), "prmt.b32 $0, $1, $2, $3;", "=r,r,r,r")
        return builder.bitcast(builder.call(permute, [bits, large, args[1]]), ir.FloatType())

    return types.float32(types.int32, types.int32), codegen


@instruction(_plain_fma)
def fma(typingctx, a, b, c):
    """Fused multiply-add of float32: a * b + c with one rounding, one instruction on GPUs and recent CPUs."""
    if not (a == b == c == types.float32):
        return None

    def codegen(context, builder, signature, args):
        return builder.fma(*args)

    return types.float32(types.float32, types.float32, types.float32), codegen


def _as_vector(builder, values):
    vector = ir.Constant(ir.VectorType(values[0].type, len(values)), ir.Undefined)
    for lane, value in enumerate(values):
        vector = builder.insert_element(vector, value, ir.Constant(ir.IntType(32), lane))
    return vector


def _store(width):
    """Intrinsic that stores `width` adjacent elements at once: a tuple, or a scalar for width 1."""

    def store(typingctx, array, row, column, values):
        if not (isinstance(array, types.Array) and array.ndim == 2 and array.layout == "C"):
            return None
        kind = types.UniTuple(array.dtype, width) if width > 1 else array.dtype
        signature = types.void(array, types.int32, types.int32, kind)

        def codegen(context, builder, signature, args):
            pointer = _vector_pointer(context, builder, signature, args, width)
            value = _as_vector(builder, cgutils.unpack_tuple(builder, args[3], width)) if width > 1 else args[3]
            builder.store(value, pointer, align=4 * width)
            return context.get_dummy_value()

        return signature, codegen

    return store


store4 = instruction(_plain_store4)(_store(4))
"""Store a tuple of four adjacent elements in one 16-byte store; requirements as for `load4`."""
store2 = instruction(_plain_store2)(_store(2))
"""Store a tuple of two adjacent elements in one 8-byte store; `column` must be even."""


@instruction(_plain_load1)
def load1(typingctx, array, row, column):
    """`array[row, column]` with the index arithmetic of `load4`; numba's own takes 20 instructions on the GPU."""
    if not (isinstance(array, types.Array) and array.ndim == 2 and array.layout == "C"):
        return None

    def codegen(context, builder, signature, args):
        return builder.load(_vector_pointer(context, builder, signature, args, 1), align=4)

    return array.dtype(array, types.int32, types.int32), codegen


store1 = instruction(_plain_store1)(_store(1))
"""`array[row, column] = value` with the index arithmetic of `load4`."""


def _plain_copy_fields(i, source, target_out):
    for name in set(source._fields) & set(target_out._fields):
        getattr(target_out, name)[i] = getattr(source, name)[i]


@instruction(_plain_copy_fields)
def copy_fields(typingctx, i, source, target_out):
    """Copy row i of each field that two NamedTuples have in common: arrays [N] or [N, 3] of equal dtypes, C-ordered."""
    if not (isinstance(source, types.NamedTuple) and isinstance(target_out, types.NamedTuple)):
        return None
    pairs = [(source.fields.index(name), k) for k, name in enumerate(target_out.fields) if name in source.fields]
    for first, second in pairs:
        one, other = source.types[first], target_out.types[second]
        if (one.dtype, one.ndim, one.layout) != (other.dtype, other.ndim, "C"):
            return None

    def codegen(context, builder, signature, args):
        word = args[0].type
        for first, second in pairs:
            kind = source.types[first]
            data = [
                context.make_array(kind)(context, builder, builder.extract_value(record, k)).data
                for record, k in ((args[1], first), (args[2], second))
            ]
            columns = 1 if kind.ndim == 1 else 3
            start = builder.mul(args[0], ir.Constant(word, columns))
            places = [builder.add(start, ir.Constant(word, column)) for column in range(columns)]
            values = [builder.load(builder.gep(data[0], [place])) for place in places]
            for place, value in zip(places, values, strict=True):
                builder.store(value, builder.gep(data[1], [place]))
        return context.get_dummy_value()

    return types.void(types.int64, source, target_out), codegen


def _vector_pointer(context, builder, signature, args, width=4):
    """Address of `array[row, column]` as a pointer to a vector of `width` elements, or to an element for width 1."""
    array_type = signature.args[0]
    struct = context.make_array(array_type)(context, builder, args[0])
    row_length, *others = cgutils.unpack_tuple(builder, struct.shape, array_type.ndim)[1:]
    for other in others:
        row_length = builder.mul(row_length, other)
    # A 32-bit multiplication, since a 64-bit one takes four on the GPU; counting in vectors of four extends its range.
    two = ir.Constant(args[1].type, 2)
    row_vectors = builder.lshr(builder.trunc(row_length, args[1].type), two)
    index = builder.mul(args[1], row_vectors, flags=["nsw"])
    index = builder.add(index, builder.lshr(args[2], two), flags=["nsw"])
    element = context.get_data_type(array_type.dtype)
    vectors = builder.bitcast(struct.data, ir.VectorType(element, 4).as_pointer())
    pointer = builder.gep(vectors, [builder.sext(index, row_length.type)])
    if width == 4:
        return pointer
    part = builder.and_(args[2], ir.Constant(args[2].type, 3))
    part = builder.lshr(part, ir.Constant(args[2].type, width // 2))
    parts = builder.bitcast(pointer, (ir.VectorType(element, width) if width > 1 else element).as_pointer())
    return builder.gep(parts, [builder.zext(part, row_length.type)])
