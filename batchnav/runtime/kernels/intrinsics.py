"""Instructions that numba has no name for, as functions that kernels call; for both devices, or as they say."""

from __future__ import annotations

import threading

import numpy as np
from llvmlite import ir
from numba import config, types
from numba.core import cgutils
from numba.core.cpu import CPUContext
from numba.extending import intrinsic
from numba.np.numpy_support import from_dtype


def _instruction(plain):
    """Decorator of an intrinsic.

    `plain` stands in for it with NUMBA_DISABLE_JIT=1: kernels are Python then, which checks their indices.
    """
    return (lambda _: plain) if config.DISABLE_JIT else intrinsic


OVERLAP_CAPABILITY = (9, 0)
"""From this compute capability on (Hopper) a kernel's first blocks can be set up while the one before ends."""


def _plain_load4(array, row, column):
    return tuple(array[row, column + lane] for lane in range(4))


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


@_instruction(_plain_load4)
def load4(typingctx, array, row, column):
    """Four neighbouring elements of a C-ordered 2-D array, in one 16-byte load.

    The row length and `column` must be multiples of four, the array 16-byte aligned (torch and NumPy allocate so) and
    of fewer than 2**33 elements.
    On the GPU this decides the speed of tree traversal (`ld.global.v4`, measured 2.4 times the scalar loads).
    """
    if not (isinstance(array, types.Array) and array.ndim == 2 and array.layout == "C"):
        return None
    signature = types.UniTuple(array.dtype, 4)(array, types.int32, types.int32)

    def codegen(context, builder, signature, args):
        pointer = _vector_pointer(context, builder, signature, args)
        if isinstance(context, CPUContext):  # where a loop over such loads is to become vectors of neighbouring rows
            element = context.get_data_type(signature.args[0].dtype)
            first = builder.bitcast(pointer, element.as_pointer())
            places = [builder.gep(first, [ir.Constant(ir.IntType(64), i)], inbounds=True) for i in range(4)]
            return context.make_tuple(builder, signature.return_type, [builder.load(place) for place in places])
        vector = builder.load(pointer, align=16)
        lanes = [builder.extract_element(vector, ir.Constant(ir.IntType(32), i)) for i in range(4)]
        return context.make_tuple(builder, signature.return_type, lanes)

    return signature, codegen


@_instruction(_plain_prefetch)
def prefetch(typingctx, array, row, column):
    """Have the CPU begin to load the part of its cache around `array[row, column]`, which it is soon to read.

    `array` and `column` are as of `load4`. It changes nothing, and there need not be such a row.
    """
    if not (isinstance(array, types.Array) and array.ndim == 2 and array.layout == "C"):
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
"""Rows that `load_columns` reads at a time: as many as an AVX-512 register has numbers."""


@_instruction(_plain_load_columns)
def load_columns(typingctx, array, rows, first, column, out):
    """`out[c][k] = array[rows[k], column + c]` for k from `first` to `first + GROUP - 1` and c from 0 to 3; on the CPU.

    `array` is as of `load4`, `out` a tuple of four arrays. Four numbers are loaded at a time, and transposed in
    registers.
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
        # Register j gets the rows j, j + 4, j + 8 and j + 12; then the quarters are transposed, four by four numbers.
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


def room_for(size, dtype):
    """A device function that gives a thread's own array of `size` numbers of four bytes, not initialised.

    numba's `cuda.local.array` is filled with zeros, which a short-lived thread pays for in each of its rows. On the CPU
    nothing else can point into it, which compilers know, so that they move other loads past what is stored here.
    """
    element = from_dtype(np.dtype(dtype))
    kind = types.Array(element, 1, "C")

    @_instruction(lambda: np.empty(size, dtype))
    def room(typingctx):
        def codegen(context, builder, signature, args):
            with builder.goto_entry_block():
                memory = builder.alloca(ir.ArrayType(context.get_data_type(element), size))
            array = context.make_array(kind)(context, builder)
            data = builder.bitcast(memory, array.data.type)
            length, width = (ir.Constant(ir.IntType(64), n) for n in (size, 4))
            context.populate_array(array, data=data, shape=[length], strides=[width], itemsize=width, meminfo=None)
            return array._getvalue()

        return kind(), codegen

    return room


@_instruction(lambda value: np.float32(value).view(np.int32))
def float_bits(typingctx, value):
    """The 32 bits of a float32 as an int32: how integers travel in rows of floats that `load4` reads."""
    if value != types.float32:
        return None

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.IntType(32))

    return types.int32(types.float32), codegen


@_instruction(lambda value: np.int32(value).view(np.float32))
def bits_float(typingctx, value):
    """The float32 of the 32 bits of an int32: the inverse of `float_bits`."""
    if value != types.int32:
        return None

    def codegen(context, builder, signature, args):
        return builder.bitcast(args[0], ir.FloatType())

    return types.float32(types.int32), codegen


@_instruction(_plain_fma)
def fma(typingctx, a, b, c):
    """a * b + c of float32, rounded once: one instruction on the GPU and on any CPU of the last ten years."""
    if not (a == b == c == types.float32):
        return None

    def codegen(context, builder, signature, args):
        return builder.fma(*args)

    return types.float32(types.float32, types.float32, types.float32), codegen


def _plain_atomic_min(array, row, column, value):
    old = array[row, column]
    array[row, column] = min(old, value)
    return old


def _plain_atomic_add(array, row, column, value):
    old = array[row, column]
    array[row, column] = old + value
    return old


def _plain_atomic_or(array, row, column, value):
    old = array[row, column]
    array[row, column] = old | value
    return old


def _lesser(builder, a, b):
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def _plain_sync_lanes():
    thread = threading.current_thread()
    if hasattr(thread, "syncthreads"):  # one of numba's simulator
        thread.syncthreads()


@_instruction(_plain_sync_lanes)
def sync_lanes(typingctx):
    """All threads of a block come here before any goes on, and see what the others wrote. On the CPU nothing."""

    def codegen(context, builder, signature, args):
        if not isinstance(context, CPUContext):
            nothing = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, nothing, "llvm.nvvm.barrier0"), ())
        return context.get_dummy_value()

    return types.void(), codegen


_CHANGES = {"min": _lesser, "add": ir.IRBuilder.add, "or": ir.IRBuilder.or_}


def _atomic(operation):
    """An intrinsic that changes `array[row, column]` of a C-ordered 2-D array of int32, and returns what was there.

    Nobody comes between. Where one thread has the array to itself, as on the CPU, it is a load and a store.
    """

    def change(typingctx, array, row, column, value):
        if not (isinstance(array, types.Array) and array.ndim == 2 and array.dtype == types.int32):
            return None

        def codegen(context, builder, signature, args):
            struct = context.make_array(signature.args[0])(context, builder, args[0])
            row_length = cgutils.unpack_tuple(builder, struct.shape, 2)[1]
            index = builder.add(
                builder.mul(builder.sext(args[1], row_length.type), row_length), builder.sext(args[2], row_length.type)
            )
            pointer = builder.gep(struct.data, [index])
            if not isinstance(context, CPUContext):
                return builder.atomic_rmw(operation, pointer, args[3], "monotonic")
            old = builder.load(pointer)
            changed = _CHANGES[operation](builder, old, args[3])
            builder.store(changed, pointer)
            return old

        return types.int32(array, types.int32, types.int32, types.int32), codegen

    return change


atomic_min = _instruction(_plain_atomic_min)(_atomic("min"))
"""The lesser of what is there and a value."""
atomic_add = _instruction(_plain_atomic_add)(_atomic("add"))
"""Their sum."""
atomic_or = _instruction(_plain_atomic_or)(_atomic("or"))
"""The bits of both."""


def _as_vector(builder, values):
    vector = ir.Constant(ir.VectorType(values[0].type, len(values)), ir.Undefined)
    for lane, value in enumerate(values):
        vector = builder.insert_element(vector, value, ir.Constant(ir.IntType(32), lane))
    return vector


def _store(width):
    """An intrinsic that writes `width` neighbouring elements at once, which come as a tuple (one: as it is)."""

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


store4 = _instruction(_plain_store4)(_store(4))
"""Write four neighbouring elements in one 16-byte store; the arguments are as of `load4`, and a tuple of four."""
store2 = _instruction(_plain_store2)(_store(2))
"""As `store4` with a tuple of two, from an even column on."""


@_instruction(_plain_load1)
def load1(typingctx, array, row, column):
    """`array[row, column]` of an array as of `load4`, by its arithmetic: numba's takes 20 instructions on the GPU."""
    if not (isinstance(array, types.Array) and array.ndim == 2 and array.layout == "C"):
        return None

    def codegen(context, builder, signature, args):
        return builder.load(_vector_pointer(context, builder, signature, args, 1), align=4)

    return array.dtype(array, types.int32, types.int32), codegen


store1 = _instruction(_plain_store1)(_store(1))
"""`array[row, column] = value`, likewise."""


def _vector_pointer(context, builder, signature, args, width=4):
    """Address of `array[row, column]` as a vector of `width` elements (1: as an element)."""
    array_type = signature.args[0]
    struct = context.make_array(array_type)(context, builder, args[0])
    row_length = cgutils.unpack_tuple(builder, struct.shape, 2)[1]
    # One 32-bit multiplication, since one of 64 bits is four on the GPU; in vectors it reaches four times as far.
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


def _grid_control(instruction):
    """A device function that is one PTX instruction, or nothing on GPUs before OVERLAP_CAPABILITY, which lack it."""

    @intrinsic
    def control(typingctx):
        def codegen(context, builder, signature, args):
            text, word = ir.IntType(8).as_pointer(), ir.IntType(32)
            reflect = cgutils.get_or_insert_function(builder.module, ir.FunctionType(word, [text]), "__nvvm_reflect")
            name = builder.addrspacecast(context.insert_const_string(builder.module, "__CUDA_ARCH"), text)
            needed = ir.Constant(word, 100 * OVERLAP_CAPABILITY[0] + 10 * OVERLAP_CAPABILITY[1])
            has_it = builder.icmp_signed(">=", builder.call(reflect, [name]), needed)
            with builder.if_then(has_it):  # known to the compiler, which leaves the other branch out
                nothing = ir.FunctionType(ir.VoidType(), [])
                builder.asm(nothing, f"griddepcontrol.{instruction};", "~{memory}", [], side_effect=True)
            return context.get_dummy_value()

        return types.void(), codegen

    return control


wait_for_predecessor = _grid_control("wait")
"""Until the kernel before has ended and its writes are to be seen: first of all in one launched with `overlap`."""
let_successor_start = _grid_control("launch_dependents")
"""Once all blocks have said so, a next kernel with `overlap` may come in; by itself a block says so at its end."""
