"Places, groups and what to label next, against slow loops and clouds that are known."

import itertools

import numpy as np
import pytest

from vssl_nb.measure import landscape

pytest.importorskip("sklearn", reason="pip install 'vssl_nb[explore]'")


def clouds(sizes=(12, 8, 5), dim=6, seed=0):
    "Well separated clouds, shuffled, and the cloud of each row."
    rng = np.random.default_rng(seed)
    of = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    centres = 10 * np.eye(len(sizes), dim)
    return centres[of] + 0.1 * rng.standard_normal((len(of), dim)), of


def test_directions_are_centred_and_have_length_one():
    x, _ = clouds()
    d = landscape.directions(x)
    expected = x - x.mean(0)
    cosines = (d * expected).sum(1) / np.linalg.norm(expected, axis=1)
    assert cosines == pytest.approx(np.ones(len(x)), abs=1e-5)
    assert (landscape.directions(np.full((4, 3), 0.1)) == 0).all()


def test_groups_are_the_clouds_the_largest_first():
    x, of = clouds()
    groups = landscape.group(landscape.directions(x), 3)
    assert [len(g) for g in groups.typical] == [12, 8, 5]
    for g, members in enumerate(groups.typical):
        assert len({*of[list(members)]}) == 1 and (groups.of[list(members)] == g).all()
    assert groups.silhouette > 0.3 and "well apart" in groups.in_words


def test_the_most_typical_video_is_the_nearest_to_the_centre():
    x = landscape.directions(clouds()[0])
    for members in landscape.group(x, 3).typical:
        centre = x[list(members)].mean(0)
        distances = [np.linalg.norm(x[i] - centre) for i in members]
        assert distances == sorted(distances)


def test_a_cloud_without_groups_has_no_borders():
    x = np.random.default_rng(0).standard_normal((200, 64))
    groups = landscape.group(landscape.directions(x))
    assert len(groups) == 10 == landscape.usual_number(200)
    assert "run into each other" in groups.in_words


@pytest.mark.parametrize("number", [None, 2, 30])
def test_equal_features_are_one_group(number):
    groups = landscape.group(landscape.directions(np.ones((5, 3))), number)
    assert len(groups) == 1 and groups.in_words == "all features are alike"
    # no more groups than different features
    x = landscape.directions(np.array([[0.0, 1.0], [0.0, 1.0], [1.0, 0.0], [1.0, 0.0]]))
    assert len(landscape.group(x, number)) == 2


def test_neighbours_in_the_features_are_neighbours_on_the_plane():
    x, of = clouds((30, 30, 30))
    plane = landscape.on_plane(landscape.directions(x))
    assert plane.min() == 0 and plane.max() == 1
    distance = np.linalg.norm(plane[:, None] - plane, axis=2) + 9 * np.eye(len(x))
    assert (of[distance.argmin(1)] == of).all()
    again = landscape.on_plane(landscape.directions(x))
    assert (plane == again).all()


@pytest.mark.parametrize(
    "x", [np.ones((3, 4)), np.arange(9.0)[:, None], np.eye(3), np.ones((9, 1))]
)
def test_few_equal_and_single_numbers_have_a_place(x):
    plane = landscape.on_plane(landscape.directions(x))
    assert plane.shape == (len(x), 2) and np.isfinite(plane).all()
    cells = landscape.on_grid(plane, 2)
    assert len({*map(tuple, cells.tolist())}) == len(x)


def test_the_grid_is_the_best_of_all():
    "Of five points on six cells, against every assignment."
    plane = np.random.default_rng(0).random((5, 2))
    chosen = landscape.on_grid(plane, 3, spare=1.2)
    places = [((c + 0.5) / 3, (r + 0.5) / 2) for r in range(2) for c in range(3)]

    def cost(cells):
        return sum((p[0] - c[0]) ** 2 + (p[1] - c[1]) ** 2 for p, c in zip(plane, cells))

    best = min(cost(cells) for cells in itertools.permutations(places, 5))
    assert cost([((c + 0.5) / 3, (r + 0.5) / 2) for c, r in chosen]) == pytest.approx(best)


def by_hand(x, labelled, number):
    "Facility location, one video after another, by loops."
    free = [i for i in range(len(x)) if not labelled[i]]
    taken = [i for i in range(len(x)) if labelled[i]]
    out = []
    for _ in range(min(number, len(free))):

        def worth(j):
            return sum(max([(1 + x[i] @ x[k]) / 2 for k in [*taken, j]]) for i in range(len(x)))

        best = max(free, key=lambda j: (round(worth(j), 5), -j))
        free.remove(best)
        taken.append(best)
        out.append(best)
    return out


@pytest.mark.parametrize("known", [0, 3])
def test_what_to_label_next_is_that_of_a_slow_loop(known):
    x = landscape.directions(np.random.default_rng(1).standard_normal((14, 5))).astype(float)
    labelled = np.arange(14) < known
    assert landscape.to_label_next(x, labelled, 5) == by_hand(x, labelled, 5)


def test_each_cloud_is_labelled_once_before_one_is_labelled_twice():
    x, of = clouds()
    d = landscape.directions(x)
    assert {*of[landscape.to_label_next(d, np.zeros(len(x), bool), 3)]} == {0, 1, 2}
    labelled = of == 0
    assert of[landscape.to_label_next(d, labelled, 2)].tolist() == [1, 2]


def test_no_more_than_there_are():
    x = landscape.directions(clouds()[0])
    labelled = np.arange(len(x)) >= 4
    assert sorted(landscape.to_label_next(x, labelled, 20)) == [0, 1, 2, 3]
    assert len(landscape.to_label_next(x, np.ones(len(x), bool), 20)) == 20


def test_many_are_compared_with_some(monkeypatch):
    monkeypatch.setattr(landscape, "COMPARED", 10)
    x, of = clouds((40, 30, 20))
    chosen = landscape.to_label_next(landscape.directions(x), np.zeros(90, bool), 3)
    assert {*of[chosen]} == {0, 1, 2}
