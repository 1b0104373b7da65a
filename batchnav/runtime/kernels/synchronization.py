"""Atomic operations and synchronisation, as functions that CPU and CUDA kernels call."""

from __future__ import annotations

import threading

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.cpu import CPUContext
from numba.extending import intrinsic

from batchnav.runtime.kernels.intrinsics import instruction

OVERLAP_CAPABILITY = (9, 0)
"""Lowest compute capability (Hopper) at which a kernel's blocks can be set up while its predecessor ends."""


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


_one_at_a_time = threading.Lock()


def _plain_enqueue(i, due, agents_out, count_out):
    if not hasattr(threading.current_thread(), "syncthreads"):
        agents_out[i], count_out[0] = i if due else -1, len(agents_out)
    elif due:  # a thread of numba's CUDA simulator
        with _one_at_a_time:
            agents_out[count_out[0]] = i
            count_out[0] += 1


@instruction(_plain_enqueue)
def enqueue(typingctx, i, due, agents_out, count_out):
    """Put item i into a queue if it is due: `agents_out`, i32 [N], has `count_out[0]` entries in use.

    On CUDA the queue must be empty before the kernel, and its order is any. On the CPU entry i is item i, or -1.
    """
    if not (isinstance(agents_out, types.Array) and agents_out.dtype == types.int32):
        return None

    def codegen(context, builder, signature, args):
        word = ir.IntType(32)
        agents, count = (context.make_array(signature.args[k])(context, builder, args[k]) for k in (2, 3))
        i, due = builder.trunc(args[0], word), builder.trunc(args[1], ir.IntType(1))
        if isinstance(context, CPUContext):
            entry = builder.select(due, i, ir.Constant(word, -1))
            builder.store(entry, builder.gep(agents.data, [args[0]]))
            with builder.if_then(builder.icmp_signed("==", i, ir.Constant(word, 0))):  # one thread writes the number
                builder.store(builder.trunc(cgutils.unpack_tuple(builder, agents.shape, 1)[0], word), count.data)
        else:
            with builder.if_then(due):
                place = builder.atomic_rmw("add", count.data, ir.Constant(word, 1), "monotonic")
                builder.store(i, builder.gep(agents.data, [place]))
        return context.get_dummy_value()

    return types.void(types.int64, types.boolean, agents_out, count_out), codegen


def _lesser(builder, a, b):
    """LLVM IR of the minimum of two signed integers."""
    return builder.select(builder.icmp_signed("<", a, b), a, b)


def _plain_sync_lanes():
    thread = threading.current_thread()
    if hasattr(thread, "syncthreads"):  # a thread of numba's CUDA simulator
        thread.syncthreads()


@instruction(_plain_sync_lanes)
def sync_lanes(typingctx):
    """Barrier of the threads of a block, which makes their writes visible to each other. No operation on the CPU."""

    def codegen(context, builder, signature, args):
        if not isinstance(context, CPUContext):
            nothing = ir.FunctionType(ir.VoidType(), [])
            builder.call(cgutils.get_or_insert_function(builder.module, nothing, "llvm.nvvm.barrier0"), ())
        return context.get_dummy_value()

    return types.void(), codegen


def _team(builder, lane, lanes):
    """LLVM IR of a warp's mask of the threads of a team, and the number of the team's first thread in the warp."""
    word, long = ir.IntType(32), ir.IntType(64)
    own = cgutils.get_or_insert_function(builder.module, ir.FunctionType(word, []), "llvm.nvvm.read.ptx.sreg.laneid")
    first = builder.sub(builder.call(own, ()), builder.trunc(lane, word))
    ones = builder.sub(builder.shl(ir.Constant(long, 1), lanes), ir.Constant(long, 1))
    return builder.shl(builder.trunc(ones, word), first), first


def _plain_first_lane(found, lane, lanes):
    return 0 if found else -1


@instruction(_plain_first_lane)
def first_lane(typingctx, found, lane, lanes):
    """The first lane of a team for which `found` is true, -1 for none. All lanes call it together. CPU: one lane."""

    def codegen(context, builder, signature, args):
        word, long = ir.IntType(32), ir.IntType(64)
        found = builder.trunc(args[0], ir.IntType(1))
        if isinstance(context, CPUContext):
            return builder.select(found, ir.Constant(long, 0), ir.Constant(long, -1))
        mask, first = _team(builder, args[1], args[2])
        kind = ir.FunctionType(word, [word, ir.IntType(1)])
        vote = cgutils.get_or_insert_function(builder.module, kind, "llvm.nvvm.vote.ballot.sync")
        votes = builder.lshr(builder.and_(builder.call(vote, [mask, found]), mask), first)
        lowest = builder.zext(builder.cttz(votes, ir.Constant(ir.IntType(1), 0)), long)
        return builder.select(builder.icmp_unsigned("==", votes, ir.Constant(word, 0)), ir.Constant(long, -1), lowest)

    return types.int64(types.boolean, types.int64, types.int64), codegen


def _plain_sync_team(lane, lanes):
    pass


@instruction(_plain_sync_team)
def sync_team(typingctx, lane, lanes):
    """Barrier of a team's lanes, which makes their writes visible to each other. No operation on the CPU."""

    def codegen(context, builder, signature, args):
        if not isinstance(context, CPUContext):
            kind = ir.FunctionType(ir.VoidType(), [ir.IntType(32)])
            barrier = cgutils.get_or_insert_function(builder.module, kind, "llvm.nvvm.bar.warp.sync")
            builder.call(barrier, [_team(builder, args[0], args[1])[0]])
        return context.get_dummy_value()

    return types.void(types.int64, types.int64), codegen


_CHANGES = {"min": _lesser, "add": ir.IRBuilder.add, "or": ir.IRBuilder.or_}
"""Builders of the operations' results in LLVM IR, by LLVM's name of the operation."""


def _atomic(operation):
    """Intrinsic that updates `array[row, column]` of a C-ordered 2-D int32 array and returns the previous value.

    Atomic on CUDA. A plain load and store on the CPU, where one thread owns the array.
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


atomic_min = instruction(_plain_atomic_min)(_atomic("min"))
"""Replace an element by the minimum of it and a value; returns the previous element."""
atomic_add = instruction(_plain_atomic_add)(_atomic("add"))
"""Add a value to an element; returns the previous element."""
atomic_or = instruction(_plain_atomic_or)(_atomic("or"))
"""Bitwise or of an element and a value; returns the previous element."""


def _grid_control(instruction):
    """Device function that is one PTX instruction, or no operation on GPUs older than OVERLAP_CAPABILITY."""

    @intrinsic
    def control(typingctx):
        def codegen(context, builder, signature, args):
            text, word = ir.IntType(8).as_pointer(), ir.IntType(32)
            reflect = cgutils.get_or_insert_function(builder.module, ir.FunctionType(word, [text]), "__nvvm_reflect")
            name = builder.addrspacecast(context.insert_const_string(builder.module, "__CUDA_ARCH"), text)
            needed = ir.Constant(word, 100 * OVERLAP_CAPABILITY[0] + 10 * OVERLAP_CAPABILITY[1])
            has_it = builder.icmp_signed(">=", builder.call(reflect, [name]), needed)
            with builder.if_then(has_it):  # constant for the compiler, which removes the other branch
                nothing = ir.FunctionType(ir.VoidType(), [])
                builder.asm(nothing, f"griddepcontrol.{instruction};", "~{memory}", [], side_effect=True)
            return context.get_dummy_value()

        return types.void(), codegen

    return control


wait_for_predecessor = _grid_control("wait")
"""Wait until the preceding kernel has ended and its writes are visible. First call in a kernel launched with
`overlap`."""
let_successor_start = _grid_control("launch_dependents")
"""Allow a following kernel with `overlap` to start, once all blocks have called this; implied at a block's end."""
