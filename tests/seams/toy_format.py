"""A format of episodes from outside the package: lines of text, one registration."""

from batchnav.data.episodes import Episode, Goal, rotation_of
from batchnav.data.formats import FORMATS, EpisodeDataset, Format


def read(file, content_scenes):
    """Episodes of lines "SCENE X Y Z HEADING X Y Z": start, its heading, goal."""
    episodes = []
    for number, line in enumerate(file.path.read_text().splitlines()):
        scene, *numbers = line.split()
        x, y, z, heading, *goal = map(float, numbers)
        episodes.append(Episode(str(number), scene, (x, y, z), rotation_of(heading), (Goal(tuple(goal)),)))
    return EpisodeDataset(episodes)


def write(dataset, path, content):
    """Write the lines."""
    rows = [(e.scene_id, *e.start_position, e.heading, *e.goals[0].position) for e in dataset]
    path.write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))


FORMATS["walks"] = Format(lambda file: True, read, write, suffix=".walks")
