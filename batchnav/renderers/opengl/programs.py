"""Compilation of the shaders (shaders/*.glsl) with the constants of a renderer."""

from __future__ import annotations

from pathlib import Path

from batchnav.renderers.opengl import gl

SHADERS = Path(__file__).parent / "shaders"


class Compiler:
    """Compiles programs in a context, which must be current. `constants` by type and name, `switches` for #if."""

    def __init__(self, context: gl.GLContext, constants: dict[str, tuple], switches: dict[str, bool]):
        self._mgl = context.mgl
        self._head = [
            f"#version {gl.VERSION} core",
            f"#extension {gl.LAYERED} : enable",
            *(f"#define {name} {int(on)}" for name, on in switches.items()),
            *(f"const {name} = {name.split()[0]}({', '.join(map(repr, v))});" for name, v in constants.items()),
        ]

    def compute(self, *names: str, visibility: bool = False):
        """A compute shader from the concatenation of these files."""
        return self._mgl.compute_shader(self._source(*names, visibility=visibility))

    def triangles(self, visibility: bool):
        """Vertex array without attributes that draws the selected triangles, which the shaders look up."""
        vertex, fragment = (self._source(f"depth_{kind}", visibility=visibility) for kind in ("vertex", "fragment"))
        return self._mgl.vertex_array(self._mgl.program(vertex_shader=vertex, fragment_shader=fragment), [])

    def _source(self, *names: str, visibility: bool) -> str:
        files = [(SHADERS / f"{name}.glsl").read_text(encoding="utf-8") for name in ("common", *names)]
        return "\n".join([*self._head, f"#define VISIBILITY {int(visibility)}", *files])
