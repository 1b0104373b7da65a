"""Benchmarks of rendering, simulator and environment run with sensors and without."""

from batchnav.bench.env import main as main_env
from batchnav.bench.options import EnvOptions
from batchnav.bench.render import Options, main
from batchnav.bench.sim import Options as SimOptions
from batchnav.bench.sim import main as main_sim


def test_frames_per_second_of_what_agents_see(capsys):
    main(Options(
        device="cpu", num_agents=(2,), sizes=(8,), scenes=("house:0",), renderers=("raycast",),
        sensors=("depth", "rgb+depth", "semantic+depth"), repeats=1, peers=False,
    ))  # fmt: skip
    printed = capsys.readouterr().out
    assert all(word in printed for word in ("raycast", "rgb+depth", "semantic+depth", "frames/s"))


def test_steps_per_second(capsys):
    main_sim(SimOptions(scenes=("house:0",), device="cpu", num_envs=(4,), tasks=("pointnav", "explore")))
    printed = capsys.readouterr().out
    assert "pointnav" in printed and "explore" in printed


def test_frames_per_second_of_an_environment(capsys):
    options = EnvOptions(("house:0",), "cpu", (1, 3), ("depth", "rgb+gps"), (8,), seconds=0.01, repeats=2)
    main_env(options)
    printed = capsys.readouterr().out
    assert all(f"{n} {kind} 8x8: " in printed for n in options.num_envs for kind in options.sensors)
    assert "frames/s" in printed
