"""Signatures of compiled functions, read from the sources: order and number of arguments, at most ten.

Order: index, arguments that are read, settings, scratch, arguments that are written. The latter end in `_out`.
"""

import ast
from pathlib import Path

import pytest

import batchnav

ROOT = Path(batchnav.__file__).parent
DECORATORS = {
    "device_function", "lean_function", "inline_function", "cpu_kernel", "cpu_function",
    "cuda_kernel", "exact_cuda_kernel", "kernel",
}  # fmt: skip
SCRATCH = {"scratch", "stack", "queue", "rays", "hits"}
"""Scratch memory, undefined between calls. Its place is after the settings; `row`, its row in use, is next."""
SETTINGS = {
    "settings", "parameters", "body", "limits", "sliding", "max_distance", "success_distance", "slack_reward",
    "success_reward",
    "max_steps", "min_ratio", "far", "backface_culling", "leaf_at_once", "mount", "num_bins",
    "max_error", "max_length", "max_edges", "min_area", "merge_area", "merge_threshold", "walkable_height",
    "walkable_climb", "chunks", "threads", "radius", "trilinear",
}  # fmt: skip
"""Arguments that are equal in all calls. Their place is after the arguments that are read."""
STORES = dict.fromkeys(("store4", "store2", "store1", "cuda.atomic.add", "atomic_min", "atomic_add", "atomic_or"), 0)
"""Functions that write an argument whose name does not end in `_out`: index of that argument."""
MAX_ARGUMENTS = 10
FROM_LOOP = ("lane", "lanes", "i", "row")
"""Arguments that a kernel's loop provides; they do not count."""


def compiled_functions() -> dict[str, tuple[ast.FunctionDef, dict]]:
    """Functions by qualified name, each with the compiled functions that its module can call, by local name."""
    modules = {}
    for path in sorted(ROOT.rglob("*.py")):
        parts = ("batchnav", *path.relative_to(ROOT).with_suffix("").parts)
        modules[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = ast.parse(path.read_text())
    own = {
        module: {n.name: n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and _is_compiled(n)}
        for module, tree in modules.items()
    }
    found = {}
    for module, tree in modules.items():
        known = {
            alias.asname or alias.name: own[node.module][alias.name]
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module in own
            for alias in node.names
            if alias.name in own[node.module]
        } | own[module]
        found |= {f"{module}.{name}": (function, known) for name, function in own[module].items()}
    return found


def _is_compiled(function: ast.FunctionDef) -> bool:
    named = [
        (d.args[0] if d.args else d.func) if isinstance(d, ast.Call) else d for d in function.decorator_list
    ]  # a partial's first argument
    return any(isinstance(d, ast.Name) and d.id in DECORATORS for d in named)


def _is_kernel(function: ast.FunctionDef) -> bool:
    return any(isinstance(d, ast.Call) and ast.unparse(d.func) == "kernel" for d in function.decorator_list)


def arguments(function: ast.FunctionDef) -> list[str]:
    """Names of a function's arguments, in order."""
    given = function.args
    return [a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)]


def written(function: ast.FunctionDef, known: dict[str, ast.FunctionDef]) -> set[str]:
    """Arguments whose elements are assigned, in this function or in one that takes them as an `_out` argument."""
    names, found = set(arguments(function)), set()
    rebound = {n.id for n in ast.walk(function) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    for node in ast.walk(function):
        if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Store):
            found.add(_root(node))
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in STORES:
                found.add(_root(node.args[STORES[called]]))
            elif called in known:
                given = zip(arguments(known[called]), node.args, strict=False)
                found |= {_root(value) for name, value in given if name.endswith("_out")} - rebound
    return found & names


def _root(node: ast.expr) -> str | None:
    """Name of the variable that an expression accesses: `state` for `state.position[i, 0]`."""
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def findings(qualified: str, function: ast.FunctionDef, known: dict[str, ast.FunctionDef]) -> list[str]:
    """Errors of a signature, as texts."""
    names, wrong = arguments(function), []
    hidden = [n for n in written(function, known) if not n.endswith("_out") and n not in SCRATCH]
    if hidden:
        wrong.append(f"{qualified} writes {sorted(hidden)}, expected names that end in _out")
    pairs = zip(names, ["", *names], strict=False)
    rank = [
        3 if n.endswith("_out") else 2 if n in SCRATCH or (n == "row" and last in SCRATCH) else n in SETTINGS
        for n, last in pairs
    ]
    if rank != sorted(rank):
        wrong.append(f"{qualified}({', '.join(names)}): expected what is read, settings, scratch, what is written")
    own = [n for n in names if n not in FROM_LOOP] if _is_kernel(function) else names
    if len(own) > MAX_ARGUMENTS:
        wrong.append(f"{qualified} has {len(own)} arguments, expected at most {MAX_ARGUMENTS}")
    return wrong


def test_signatures_of_compiled_functions():
    functions = compiled_functions()
    assert len(functions) > 100, "found too few functions, expected the names of DECORATORS in the sources"
    assert not [w for name, entry in functions.items() for w in findings(name, *entry)]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(i, points, points_out): points_out[i] = points[i]", 0),
        ("def f(i, state): state.x[i] = 0", 1),
        ("def f(i, state): state.x[i], y = 0, 1", 1),
        ("def f(i, state): state[i] += 1", 1),
        ("def f(rows): store4(rows.data, 0, 0, (1, 2, 3, 4))", 1),
        ("def f(flags): cuda.atomic.add(flags, 0, 1)", 1),
        ("def f(i, points): put(i, 0, points)", 1),
        ("def f(i, points):\n points = points + 1\n put(i, 0, points)", 0),
        ("def f(x_out, i): x_out[i] = 0", 1),
        ("def f(i, x_out, scratch, row): x_out[i] = 0", 1),
        ("def f(scratch, row, i, x_out): x_out[i] = 0", 1),
        ("def f(i, scratch, row, x_out): x_out[i], scratch[row] = 0, 1", 0),
        ("def f(i, sliding, points): return points[i]", 1),
        ("def f(i, points, sliding, scratch, row): return points[i]", 0),
        ("def f(a, b, c, d, e, f, g, h, i, j, k): return a", 1),
    ],
)
def test_findings(source, expected):
    function, put = ast.parse(source).body[0], ast.parse("def put(i, value, values_out): pass").body[0]
    assert len(findings("f", function, {"put": put})) == expected
