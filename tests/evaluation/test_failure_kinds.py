"""Kinds of ObjectNav failures: one hand-made trajectory for each kind, and tables by category and distance."""

import base64
import json
import math
import re
from dataclasses import replace

import numpy as np
import pytest
import torch
from labelled import labelled_scene, write_named

from batchnav.config import to_dict
from batchnav.data.episodes import Episode, Goal, rotation_of
from batchnav.data.formats.instance_imagenav import InstanceEpisode
from batchnav.data.formats.objectnav import ObjectNavEpisode
from batchnav.data.goals.category import (
    EARLY,
    NEVER_SAW,
    OUT_OF_STEPS,
    PASSED,
    WRONG_OBJECT,
    CategoryGoals,
    generate_objectnav,
)
from batchnav.data.goals.point import PASSED_BY, WRONG_HEADING
from batchnav.data.goals.view_points import with_goals
from batchnav.data.scenes.load import load_all
from batchnav.envs.config import NavConfig, with_options
from batchnav.envs.observations import needed_appearance, space_of, specs_of
from batchnav.evaluation.players import PolicyPlayer, ReferencePlayer
from batchnav.evaluation.predicted_masks import predicted_masks
from batchnav.evaluation.run import Evaluation, failure_table, predicted_mask_table, straight_line, write_results
from batchnav.evaluation.trajectories import GoalMasks, Trajectory, failure_kinds, meanings_of
from batchnav.policy.actor_critic import ActorCritic
from batchnav.policy.config import PolicyConfig
from batchnav.policy.weights import save_policy
from batchnav.report.evaluation import PLAN_SIZE, write_report
from batchnav.report.results import print_masks
from batchnav.scene.bank import SceneBank
from batchnav.scene.goals import ObjectGoal, SceneGoals
from batchnav.sensors.goal_mask import DETECTORS
from batchnav.sim.bodies import FORWARD, STOP
from batchnav.tasks.imagenav import ImageNavConfig
from batchnav.tasks.instance_imagenav import InstanceImageNavConfig
from batchnav.tasks.objectnav import ObjectNavConfig
from batchnav.view.topdown import AMBER, BLUE, TopDownMap, map_picture, packed_map, unpacked_map
from batchnav.view.viewer.session import YOU, Session

CATEGORIES = CHAIR, BED = "chair", "bed"
NORTH, SOUTH = 0.0, math.pi
BY_CHAIR, BY_BED, MIDDLE = (-1.75, -1.0), (1.25, -1.0), (0.0, 1.5)
START = (0.0, 0.0, 0.0), rotation_of(0.0)
RESULTS = {"success": np.array([0.0, 1.0]), "scene": np.zeros(2, np.int32)}
CONFIG = with_options(NavConfig(sensors=(), task=ObjectNavConfig()), {"categories": CATEGORIES})


def furnished():
    """A floor with a chair and a bed, one view point each, to the south of them."""
    scene = labelled_scene([(CHAIR, [-2.0, 0.0, -2.0], [-1.5, 1.0, -1.5]), (BED, [1.0, 0.0, -2.0], [1.5, 1.0, -1.5])])
    goals = []
    for number, (category, (x, z)) in enumerate(((CHAIR, BY_CHAIR), (BED, BY_BED)), 2):
        place, one = scene.navmesh.snap(np.array([[x, 0.0, z]], np.float32)), np.ones(1, np.float32)
        goals.append(ObjectGoal(category, number, f"{category}_{number}", (x, 0.5, -1.75), place, 0.0 * one, one))
    return scene._replace(goals=SceneGoals("test", tuple(goals)))


def trajectory(scene, poses, last_action):
    """A trajectory through poses of (x, z), heading; its last action is `last_action`."""
    points = scene.navmesh.snap(np.array([(x, 0.0, z) for (x, z), _ in poses], np.float32))
    actions = np.full(len(poses), FORWARD)
    actions[-1] = last_action
    headings = np.array([heading for _, heading in poses], np.float32)
    return Trajectory(points, headings, np.zeros(len(poses), np.float32), actions)


@pytest.mark.parametrize(
    ("category", "poses", "last_action", "kind"),
    [
        (CHAIR, [(MIDDLE, NORTH), (BY_BED, NORTH)], STOP, WRONG_OBJECT),
        (CHAIR, [(BY_BED, SOUTH)], STOP, WRONG_OBJECT),
        (CHAIR, [(BY_BED, SOUTH)], FORWARD, NEVER_SAW),
        (CHAIR, [(MIDDLE, SOUTH)], STOP, NEVER_SAW),
        (CHAIR, [(BY_CHAIR, SOUTH), (MIDDLE, SOUTH)], FORWARD, NEVER_SAW),
        (CHAIR, [(BY_CHAIR, NORTH), (MIDDLE, SOUTH)], FORWARD, PASSED),
        (BED, [(MIDDLE, NORTH), (BY_BED, SOUTH), (MIDDLE, SOUTH)], STOP, PASSED),
        (BED, [(MIDDLE, SOUTH), (MIDDLE, NORTH)], STOP, EARLY),
        (BED, [(MIDDLE, NORTH)] * 40, FORWARD, OUT_OF_STEPS),
    ],
)
def test_each_failure_has_one_kind(category, poses, last_action, kind):
    scene = furnished()
    bank = SceneBank.pack([scene], "cpu", frozenset({"goal"}), goal_categories=CATEGORIES)
    walked = [trajectory(scene, poses, last_action)] * 2
    episodes = [ObjectNavEpisode("0", scene.name, *START, object_category=category)] * 2
    assert failure_kinds(bank, CONFIG, episodes, RESULTS, walked).tolist() == [kind, ""]
    assert failure_kinds(bank, NavConfig(), episodes, RESULTS, walked) is None
    without = SceneBank.pack([scene], "cpu", goal_categories=CATEGORIES)
    assert failure_kinds(without, CONFIG, episodes, RESULTS, walked) is None


@pytest.mark.parametrize(
    ("poses", "last_action", "kind"),
    [
        ([(MIDDLE, NORTH), (BY_BED, NORTH)], STOP, WRONG_OBJECT),
        ([(BY_BED, SOUTH)], FORWARD, NEVER_SAW),
        ([(BY_CHAIR, NORTH), (MIDDLE, SOUTH)], FORWARD, PASSED),
        ([(MIDDLE, NORTH)] * 40, FORWARD, OUT_OF_STEPS),
    ],
)
def test_failures_of_instance_imagenav_are_about_the_object_of_the_image(poses, last_action, kind):
    scene, camera = furnished(), np.array([(0.0, 1.0, 0.0, 0.0, 0.0, 1.0)], np.float32)
    goals = scene.goals._replace(objects=tuple(goal._replace(images=camera) for goal in scene.goals.objects))
    scene = scene._replace(goals=goals.instances)
    bank = SceneBank.pack([scene], "cpu", frozenset({"goal"}), goal_categories=())
    walked = [trajectory(scene, poses, last_action)] * 2
    chair = str(next(g.object_id for g in scene.goals.objects if g.name.startswith(CHAIR)))
    episodes = [InstanceEpisode("0", scene.name, *START, goal_object_id=chair)] * 2
    config = NavConfig(sensors=("rgb",), task=InstanceImageNavConfig())
    assert failure_kinds(bank, config, episodes, RESULTS, walked).tolist() == [kind, ""] and kind in meanings_of(config)


@pytest.mark.parametrize(
    ("poses", "last_action", "kind"),
    [
        ([(MIDDLE, NORTH), (BY_BED, NORTH)], STOP, WRONG_HEADING),  # the task asks for another heading there
        ([(MIDDLE, NORTH), (BY_BED, NORTH)], FORWARD, PASSED_BY),
        ([(BY_BED, NORTH), (MIDDLE, NORTH)], STOP, PASSED_BY),
        ([(MIDDLE, NORTH), (BY_CHAIR, NORTH)], STOP, EARLY),
        ([(MIDDLE, NORTH)] * 40, FORWARD, OUT_OF_STEPS),
    ],
)
def test_each_failure_of_imagenav_has_one_kind(poses, last_action, kind):
    scene, (x, z) = furnished(), BY_BED
    bank, walked = SceneBank.pack([scene], "cpu"), [trajectory(scene, poses, last_action)] * 2
    config = NavConfig(sensors=("rgb",), task=ImageNavConfig(success_angle_deg=25.0))
    (goal,) = scene.navmesh.snap(np.array([[x - 0.7, 0.0, z]], np.float32)).tolist()
    episodes = [Episode("0", scene.name, *START, goals=(Goal(tuple(goal)),))] * 2
    assert failure_kinds(bank, config, episodes, RESULTS, walked).tolist() == [kind, ""]
    assert kind in meanings_of(config) and not meanings_of(NavConfig())


@pytest.fixture(scope="module")
def evaluation(tmp_path_factory):
    """Eight episodes in a room with a chair and a bed."""
    folder = tmp_path_factory.mktemp("room")
    things = (CHAIR, [1.0, 0.0, 1.0], [1.5, 1.0, 1.5]), (BED, [-3.0, 0.0, -3.0], [-1.5, 0.6, -2.0])
    (room,) = load_all([str(write_named(folder / "room.glb", things))])
    generate_objectnav(with_goals([room], device="cpu"), 8).save(folder / "val.json.gz", content=False)
    fields, cpu = needed_appearance(CONFIG), torch.device("cpu")
    return Evaluation(folder / "val.json.gz", cpu, CONFIG, appearance=fields)


@pytest.fixture(scope="module")
def agents(evaluation):
    small = with_options(CONFIG, {"height": 24, "width": 32, "max_steps": 60})
    return {name: evaluation.play(ReferencePlayer(name, small)) for name in ("random", "shortest_path", "map_searcher")}


def test_results_and_report_have_the_table(evaluation, agents, tmp_path):
    random, best, _ = agents.values()
    for episode, distance in zip(evaluation.episodes, best.episodes["start_distance"], strict=True):
        assert 0.0 < straight_line(episode) <= distance + 1e-4
    assert (best.failures == "").all() and (random.failures[random.episodes["success"] == 0] != "").all()
    table = failure_table(evaluation, random)
    assert [row.label for row in table[:3]] == ["all episodes", "chair", "bed"]
    assert [row.group for row in table] == ["all", "category", "category", *["distance"] * 4]
    assert all(row.successes + sum(row.failures.values()) == row.episodes for row in table)
    for group in ("category", "distance"):
        assert sum(row.episodes for row in table if row.group == group) == 8
    write_results(tmp_path / "results.json", evaluation, random)
    stored = json.loads((tmp_path / "results.json").read_text())
    assert [row["failures"] for row in stored["failures"]] == [row.failures for row in table]
    assert [row["failure"] or "" for row in stored["episodes"]] == random.failures.tolist()
    text = write_report(tmp_path, evaluation, agents, films=0).read_text()
    assert "<h2>Failures</h2>" in text and all(f"<th>{kind}</th>" in text for kind in CategoryGoals.failures)
    assert all(f"{kind.capitalize()}: {meaning}." in text for kind, meaning in CategoryGoals.failures.items())


def predicting(path, logit):
    """A policy that predicts the goal in all pixels (a positive logit) or in none."""
    env = replace(with_options(CONFIG, {"height": 24, "width": 32, "max_steps": 20}), sensors=("depth",))
    small = {"encoder": "simple_cnn", "visual_size": 4, "hidden_size": 4, "memory": "none", "mask_width": 4}
    chosen = PolicyConfig(predicted_mask="goal_mask", **small)
    network = ActorCritic(space_of(specs_of(env)), env.body.action_space, chosen)
    torch.nn.init.constant_(network.mask_head.logits.bias, logit)
    save_policy(network, path, {"env": to_dict(env)})
    return PolicyPlayer(path, torch.device("cpu"))


def test_predicted_masks_are_compared_with_true_ones(evaluation, agents, tmp_path, capsys):
    player = predicting(tmp_path / "all.safetensors", 20.0)
    played = evaluation.play(player)
    everywhere, steps = played.masks, np.array([len(walk.headings) for walk in played.trajectories])
    assert (everywhere.predicted == steps).all() and (everywhere.hits == everywhere.in_view).all()
    assert (everywhere.pixels == everywhere.in_view * 24 * 32).all() and 0 < everywhere.in_view.sum() < steps.sum()
    whole, *kinds = predicted_mask_table(played)
    assert whole.recall == 1.0 and whole.precision == pytest.approx(everywhere.in_view.sum() / steps.sum())
    assert sum(row.episodes for row in kinds) == (played.failures != "").sum()
    nowhere = evaluation.play(predicting(tmp_path / "none.safetensors", -20.0))
    row = predicted_mask_table(nowhere)[0]
    assert row.predicted == row.hits == row.pixels == 0 and row.recall == 0.0 and math.isnan(row.precision)
    write_results(tmp_path / "results.json", evaluation, nowhere)
    stored = json.loads((tmp_path / "results.json").read_text())
    assert stored["predicted_mask"][0]["precision"] is None and stored["predicted_mask"][0]["in_view"] == row.in_view
    assert [each["predicted_mask"]["in_view"] for each in stored["episodes"]] == nowhere.masks.in_view.tolist()
    print_masks(predicted_mask_table(played))
    assert "predicted mask of the goal" in capsys.readouterr().out
    text = write_report(tmp_path, evaluation, {"all": played, **agents}, films=0).read_text()
    assert "<h2>Predicted masks of the goal</h2>" in text and "; goal in 0 views, its mask predicted in" in text
    assert agents["random"].masks is None and not predicted_mask_table(agents["random"])


def test_the_report_has_goals_and_maps(evaluation, agents, tmp_path):
    text = write_report(tmp_path, evaluation, agents, films=3).read_text()
    data = json.loads(re.search(r'id="data">(.*?)</script>', text)[1])
    (plan,), goals = data["plans"], evaluation.bank.scenes[0].goals
    assert set(plan["goals"]) == {CHAIR, BED}
    drawn = TopDownMap(evaluation.bank.scenes[0].navmesh, None, 0.0, PLAN_SIZE)
    for category, found in plan["goals"].items():
        pixels = np.frombuffer(base64.b64decode(found["view_points"]), "<i2").reshape(-1, 2)
        expected = np.unique(drawn.to_pixels(goals.view_points(category)).round(), axis=0)
        np.testing.assert_allclose(pixels, expected, atol=1)
        assert len(found["objects"]) == 1
    for episode in data["episodes"]:
        assert episode["category"] in CATEGORIES and len(episode["shortest"]) >= 2
        x, y, _ = episode["goal"]
        points = drawn.to_pixels(goals.view_points(episode["category"]))
        assert np.abs(points - [x, y]).max(1).min() < 1.0
    maps = [episode["map"] for episode in data["episodes"] if episode["map"]]
    assert len(maps) == 3 and all(built["source"].startswith("data:image/png") for built in maps)
    assert 'id="own"' in text and "map of map_searcher" in text


def test_the_report_names_goals_and_shows_where_they_are(evaluation, agents, tmp_path):
    config = replace(with_options(CONFIG, {"height": 24, "width": 32, "max_steps": 60}), sensors=("depth",))

    class Seeing(ReferencePlayer):
        env_config = property(lambda self: self.config)

    played = evaluation.play(Seeing("shortest_path", config))
    text = write_report(tmp_path, evaluation, {"mine": played, **agents}, films=8).read_text()
    names = re.findall(r'<td class="category">(.*?)</td>', text)
    data = json.loads(re.search(r'id="data">(.*?)</script>', text)[1])
    assert names == [episode["category"] for episode in data["episodes"]] and set(names) == set(CATEGORIES)
    for episode in data["episodes"]:
        assert [strip["sensor"] for strip in episode["films"]["0"]["strips"]] == ["depth", "goal_mask (not observed)"]
    masks, seen = GoalMasks(evaluation.bank, config), []
    for number, walk in enumerate(played.trajectories):
        (images,) = masks.images_at(evaluation.episodes[number], np.zeros(len(walk.headings), np.int32), walk).values()
        assert images.values.shape[1:] == (1, 24, 32) and set(np.unique(images.values)) <= {0, 255}
        seen.append(bool(images.values.any()))
    assert sum(seen) >= len(seen) / 2, "the follower looks where it goes, so most walks show the goal"


def test_final_maps_are_those_of_the_played_episodes(evaluation, agents):
    played = agents["map_searcher"]
    numbers = [1, 4, 6]
    recorded = evaluation.record(played.player, np.array(numbers))
    found_goals = 0
    for built, recording in zip(evaluation.final_maps(played, numbers), recorded, strict=True):
        for one, other in zip(built.layers, recording.agent_map.layers, strict=True):
            assert torch.equal(one, other)
        assert torch.equal(built.goal_cells, recording.agent_map.goal_cells)
        found_goals += int(built.goal_cells.any())
        again = unpacked_map(packed_map(built))
        assert torch.equal(again.layers.occupancy, built.layers.occupancy)
        assert torch.equal(again.goal_cells, built.goal_cells)
        picture = np.asarray(map_picture(built)).reshape(-1, 4)
        assert (picture[:, 3] > 0).sum() == int((built.layers.is_known | built.goal_cells).sum())
    assert found_goals


def test_the_viewer_shows_goals_and_the_map(evaluation, agents):
    players = {"map_searcher": agents["map_searcher"].player}
    session = Session(evaluation.bank, evaluation.episodes, players)
    points = evaluation.bank.scenes[0].goals.view_points(evaluation.episodes[0].object_category)
    np.testing.assert_array_equal(session.goals.view_points, points)
    track = session.track("map_searcher")
    assert len(track.maps) == len(track.trajectory.headings)
    assert session.category == evaluation.episodes[0].object_category
    assert list(session.seen(YOU, 0)) == ["depth", "goal_mask (not observed)"]
    known = [int(session.agent_map("map_searcher", k).layers.is_known.sum()) for k in (0, len(track.maps) - 1)]
    assert 0 < known[0] < known[1]
    with_map, without = (np.asarray(session.plan(60, {"map_searcher": BLUE}, shown)) for shown in (True, False))
    assert (with_map != without).any() and (without == AMBER).all(-1).any()


def test_masks_of_a_detector_are_compared_with_true_ones(monkeypatch):
    """The detector finds beds alone, in the right half of every image."""

    def detect(rgb, category):
        wide = torch.arange(rgb.shape[3]) >= rgb.shape[3] // 2
        return (wide & (category == CATEGORIES.index(BED)).view(-1, 1, 1, 1)).expand(-1, 1, rgb.shape[2], -1)

    monkeypatch.setitem(DETECTORS, "beds", detect)
    scene = furnished()
    options = {"detector": "beds", "height": 32, "width": 32}
    config = replace(with_options(CONFIG, options), sensors=("goal_mask",))
    bank = SceneBank.pack([scene], "cpu", needed_appearance(config), goal_categories=CATEGORIES)
    walks = [[(BY_CHAIR, NORTH)], [(BY_BED, NORTH), (BY_BED, SOUTH)], [(BY_CHAIR, NORTH)]]
    walked = [trajectory(scene, poses, STOP) for poses in walks]
    episodes = [ObjectNavEpisode("0", scene.name, *START, object_category=category) for category in (CHAIR, BED, BED)]
    masks = predicted_masks(bank, config, None, episodes, np.zeros(3, np.int32), walked)
    assert masks.in_view.tolist() == [1, 1, 0] and masks.predicted.tolist() == [0, 2, 1]
    assert masks.hits.tolist() == [0, 1, 0] and masks.pixels.tolist() == [0, 32 * 16, 0]
    for other in (CONFIG, replace(config, sensors=())):
        assert predicted_masks(bank, other, None, episodes, np.zeros(3, np.int32), walked) is None
