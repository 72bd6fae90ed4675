"Typed settings and recipes: values, ranges, names, files, and settings from other packages."

import dataclasses
import json
import math
import subprocess
import sys
from dataclasses import fields, replace

import pytest
from fastcore.test import expect_fail, test_eq as eq

from vssl_nb.methods.recipes import COTRAININGS, RECIPES
from vssl_nb.config import Phase, TrainingVideos
from vssl_nb.fields import RecipeError
from vssl_nb.methods.recipes import checked, difference, find, flat_fields, from_dict, override
from vssl_nb.methods.recipes import refuse_unfit, settings_class, to_dict
from vssl_nb.fields import Settings, in_words, out_of_range

recipe = find("infonce-toy-residual")
short = override(recipe, epochs=3, temperature=0.2, area=[0.5, 1.0])
text = json.dumps(to_dict(short))
alone = override(recipe, batch=1, groups=None)
one = TrainingVideos("m.csv", ("a", "b"), (0, 1), (0, 1))


def test_published_recipes_agree_with_themselves():
    for phases in COTRAININGS.values():
        for i, p in enumerate(phases):
            r = RECIPES[p.recipe]
            # only what is there already
            assert {p.start, p.sampler} <= {"", *(q.recipe for q in phases[:i])}
            if p.sampler:
                eq(
                    {"encoder": RECIPES[p.start].view, "sampler": RECIPES[p.sampler].view},
                    r.networks,
                )
    ucf, k400 = RECIPES["infonce-ucf101-rgb"], RECIPES["infonce-k400-rgb"]
    # what must agree does, and nothing else
    for r in (x for x in RECIPES.values() if x.method.name == "moquad"):
        refuse_unfit(r, TrainingVideos("m.csv", ("a", "b"), (0, 1), (0, 1)))
    eq(
        [
            p.recipe.removeprefix("coclr-").removeprefix("infonce-")
            for p in COTRAININGS["coclr-ucf101"]
        ],
        [
            "ucf101-rgb",
            "ucf101-flow",
            "ucf101-rgb-cycle1",
            "ucf101-flow-cycle1",
            "ucf101-rgb-cycle2",
            "ucf101-flow-cycle2",
        ],
    )
    # mined by RGB of cycle 1
    third = Phase("coclr-ucf101-flow-cycle1", "infonce-ucf101-flow", "coclr-ucf101-rgb-cycle1")
    eq(COTRAININGS["coclr-ucf101"][3], third)
    for name, epochs, drops in (
        ("coclr-ucf101-rgb-cycle1", 100, (80.0,)),
        ("coclr-k400-flow-cycle2", 50, (40.0,)),
    ):
        eq((RECIPES[name].learning.epochs, RECIPES[name].learning.drops), (epochs, drops))
    # b9: 149 steps an epoch; b4: 32 steps fill the queue
    eq((9537 // ucf.learning.batch, ucf.method.queue // ucf.learning.batch), (149, 32))
    differ = {f.name for f in fields(ucf) if getattr(k400, f.name) != getattr(ucf, f.name)}
    eq(differ, {"name", "about", "dataset", "method", "learning"})
    grouped = [r for r in RECIPES.values() if getattr(r.method, "groups", None)]
    eq([r.learning.batch % r.method.groups for r in grouped], [0] * len(grouped))


def test_numbers_of_the_released_commands():
    "CoCLR's README:42-88 and main_coclr.py:448-475, CPR's README:116-120."
    big = [
        r
        for r in RECIPES.values()
        if r.method.name == "coclr" and r.dataset in ("UCF101", "Kinetics-400")
    ]
    eq(len(big), 19)
    for r in big:  # one draw for both views, of which one is flow
        eq((r.name, r.flow_flip, r.flow_colour), (r.name, "released", "released"))
        assert {"rgb", "flow"} == {r.view, r.method.mining_view}
    k400 = [r for r in big if r.dataset == "Kinetics-400"]
    eq({(r.learning.batch, r.method.groups, r.method.queue) for r in k400}, {(64, 2, 16384)})
    for view in ("rgb", "flow"):
        r = RECIPES[f"ubernce-ucf101-{view}"]
        eq(
            (
                r.learning.batch,
                r.method.groups,
                r.learning.epochs,
                r.learning.drops,
                r.method.queue,
            ),
            (32, 2, 300, (240.0,), 2048),
        )


def test_ladder_names_its_clips():
    ladder = [RECIPES[f"moquad-toy-rung{i}"] for i in range(4)]
    eq(
        [r.method.clips for r in ladder],
        [("a", "p")] * 2 + [("a", "p", "n"), ("a", "p", "n", "nn")],
    )
    eq([r.augment.appearance_clips for r in ladder], [(), (1,), (1,), (1, 3)])
    eq((recipe.view, recipe.method.queue), ("residual", 0))


def test_a_recipe_is_looked_up_by_name():
    with expect_fail(RecipeError, contains="did you mean 'infonce-toy-rgb'?"):
        find("infonce-toy-rbg")
    with expect_fail(RecipeError, contains="there are: infonce-toy-rgb,"):
        find("zzz")
    with expect_fail(RecipeError, contains="math:pi: is a float, not a Recipe"):
        find("math:pi")
    parts = (recipe.sampling, recipe.augment, recipe.method, recipe.learning)
    eq(
        len(flat_fields(recipe)),
        sum(len(fields(x)) for x in parts) + len(fields(recipe)) - len(parts),
    )
    eq(flat_fields(recipe)["temperature"], recipe.method.temperature)


def test_a_slip_in_a_file_is_named():
    data = json.loads(text)
    data["learning"]["lrr"] = data["learning"].pop("lr")
    with expect_fail(RecipeError, contains="no field 'lrr'; did you mean 'lr'?"):
        from_dict(data)
    data["learning"].pop("lrr")
    with expect_fail(RecipeError, contains="learning lacks the field 'lr'"):
        from_dict(data)


def test_ranges():
    for field, value, why in (
        ("temperature", 0.0, "must be above 0"),
        ("momentum", 1.5, "must be 0 or more and 1 or less"),
        ("lr", math.nan, "is not a finite number"),
        ("lr", math.inf, "is not a finite number"),
        ("lr", -1e-3, "must be 0 or more"),
        ("seed", -1, "must be 0 or more"),
        ("queue", -1, "must be 0 or more"),
        ("area", (0.0, 1.0), "must be above 0 and 1 or less"),
        ("sgd_momentum", 1.0, "and below 1"),
        ("drops", (3.0, -1.0), "must be 0 or more"),
        ("flip", 1.01, "1 or less"),
        ("epochs", 0, "1 or more"),
    ):
        with expect_fail(RecipeError, contains=f"{field}={value!r} "):
            override(recipe, **{field: value})
        with expect_fail(RecipeError, contains=why):
            override(recipe, **{field: value})
    for field, value in (
        ("momentum", 1.0),
        ("momentum", None),
        ("queue", 0),
        ("flip", 1),
        ("seed", 0),
    ):
        override(recipe, **{field: value})  # at the edge, and inside
    refuse_unfit(override(alone, queue=8), one)


def test_overrides():
    for r in RECIPES.values():
        checked(r)
    eq(override(recipe, momentum=None, queue=0, drops=[5, 8], lr=1).method.momentum, None)
    eq((short.learning.epochs, short.method.temperature, short.augment.area), (3, 0.2, (0.5, 1.0)))
    eq(recipe.learning.epochs, find(recipe.name).learning.epochs)
    with expect_fail(RecipeError, contains="no field 'epoch'; did you mean 'epochs'?"):
        override(recipe, epoch=3)
    with expect_fail(RecipeError, contains="epochs='many' is not a value of type int"):
        override(recipe, epochs="many")
    with expect_fail(RecipeError, contains="optimizer='lion' is not one of 'adam'"):
        override(recipe, optimizer="lion")
    with expect_fail(RecipeError, contains="batch=1 without a queue"):
        refuse_unfit(alone, one)
    with expect_fail(RecipeError, contains="area="):
        override(recipe, area=(0.5,))
    with expect_fail(RecipeError, contains="batch=True"):
        override(recipe, batch=True)
    with expect_fail(RecipeError, contains="drops="):
        override(recipe, drops=("a",))
    uber = override(find("infonce-ucf101-rgb"), method="ubernce", form="mil_nce")
    eq((uber.method.name, uber.method.groups, uber.method.form), ("ubernce", 2, "mil_nce"))
    with expect_fail(RecipeError, contains="there is no method 'infonc'; did you mean 'infonce'?"):
        override(recipe, method="infonc")


def test_files():
    # frozen means frozen
    with expect_fail(dataclasses.FrozenInstanceError):
        recipe.seed = 5
    eq(hash(recipe), hash(find("infonce-toy-residual")))
    eq(from_dict(json.loads(text)), short)
    eq(json.loads(text)["method"]["name"], "infonce")
    for r in RECIPES.values():
        eq(from_dict(json.loads(json.dumps(to_dict(r)))), r)
    with expect_fail(RecipeError, contains="mine.json: "):
        from_dict([], "mine.json")
    data = json.loads(text) | {"size": "big"}
    with expect_fail(RecipeError, contains="size='big'"):
        from_dict(data)
    with expect_fail(RecipeError, contains="flow='lice' is not one of 'stored', 'live'"):
        from_dict(json.loads(text) | {"flow": "lice"})
    with expect_fail(RecipeError, contains="there is no method 'infonse'; did you mean 'infonce'?"):
        from_dict(json.loads(text) | {"method": {"name": "infonse"}})
    with expect_fail(RecipeError, contains="method has no field 'sibling'"):
        from_dict(json.loads(text) | {"method": {"name": "infonce", "sibling": "positive"}})


def test_differences_between_recipes():
    eq(difference(recipe, recipe), {})
    for dataset, more in (("ucf101", {"flow_flip", "flow_colour"}), ("toy", {"epochs"})):
        rgb, flow = (find(f"infonce-{dataset}-{view}") for view in ("rgb", "flow"))
        eq(set(difference(rgb, flow)), {"name", "view"} | more)
    # plain data: nothing heavy is imported
    heavy = "import sys, vssl_nb.config; print(any(m in sys.modules for m in ('torch', 'numpy')))"
    done = subprocess.run([sys.executable, "-c", heavy], capture_output=True, text=True)
    eq(done.stdout.strip(), "False")


OWN = """
from dataclasses import dataclass
from typing import ClassVar

@dataclass(frozen=True)
class Settings:
    momentum:float = 0.99
    clips:ClassVar = ('one', 'two')
    name:ClassVar[str] = 'mirror'
    method:ClassVar[str] = 'my_mirror:Mirror'

@dataclass(frozen=True)
class Forgetful(Settings): # would have trained the method above
    momentum:float = 0.9
"""
MISTAKES = {
    "Fields": "name is a field, and every run could change it",
    "Clash": "its field 'batch' is called like one of a recipe",
    "Bare": "its field 'dim' has no default",
    "Letters": "clips='two' is not a tuple of names",
    "Follows": "clips=7 is not a tuple of names",
    "Ours": "calls itself 'infonce', as",
    "Mutable": "are not the same when they are read back",
    "Wrong": "dim=1.5 is not a value of type int",
}
LOOSE = """

class Loose:
    name, method = 'loose', 'my_mirror:Loose'
"""
CARELESS = """
from dataclasses import field

def settings(name, kind=None, clips=('one', 'two'), called='mirror', **defaults):
    body = {'name': called, 'method': 'my_mirror:Mirror', 'clips': clips, **defaults}
    body['__annotations__'] = dict.fromkeys(('name', 'method', 'clips'), ClassVar) | (kind or {})
    return dataclass(frozen=True)(type(name, (), body | {'__module__': 'my_mirror'}))

Fields, Clash = settings('Fields', {'name': str}), settings('Clash', {'batch': int}, batch=3)
Bare, Letters = settings('Bare', {'dim': int}), settings('Letters', clips='two')
Follows = settings('Follows', clips=property(lambda self: 7))
Ours, Wrong = settings('Ours', called='infonce'), settings('Wrong', {'dim': int}, dim=1.5)
Mutable = settings('Mutable', {'layers': list}, layers=field(default_factory=lambda: [3]))
@dataclass(frozen=True)
class Several: # clips that follow from a field
    how_many:int = 2
    name:ClassVar[str] = 'several'
    method:ClassVar[str] = 'my_mirror:Several'
    @property
    def clips(self): return tuple(f'c{i}' for i in range(self.how_many))
class Networks(Settings):
    name, method = 'mirror', 'my_mirror:Mirror'
    def networks(self, view): return ['encoder']
Networks = dataclass(frozen=True)(Networks)
def looks(name, at):
    def views(self, view): return at
    body = {'name': 'mirror', 'method': 'my_mirror:Mirror', 'views': views}
    body['__module__'] = 'my_mirror'
    return dataclass(frozen=True)(type(name, (Settings,), body))
Views, Two = looks('Views', ['rgb', 3]), looks('Two', ('rgb', 'flow'))
"""


def test_settings_from_another_package(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_mirror.py").write_text(OWN + LOOSE + CARELESS)
    mine = override(
        find("infonce-toy-rgb"), method="my_mirror:Settings", name="mirror-toy", momentum=0.9
    )
    eq((mine.method.name, mine.views, mine.method.momentum), ("mirror", ("rgb",), 0.9))
    eq(override(mine, method="my_mirror:Several", how_many=3).method.clips, ("c0", "c1", "c2"))
    eq(to_dict(mine)["method"], {"name": "my_mirror:Settings", "momentum": 0.9})
    eq(from_dict(json.loads(json.dumps(to_dict(mine)))), mine)
    with expect_fail(
        RecipeError, contains="my_mirror:Forgetful: does not say itself what tables call it"
    ):
        override(mine, method="my_mirror:Forgetful")
    with expect_fail(RecipeError, contains="my_mirror:Loose: is not a frozen dataclass"):
        override(mine, method="my_mirror:Loose")
    for wrong, words in MISTAKES.items():
        with expect_fail(RecipeError, contains=words):
            settings_class(f"my_mirror:{wrong}")
    own = sys.modules["my_mirror"]
    nine = override(find("infonce-toy-rgb"), name="infonce-toy-rgb-9", epochs=9)
    own.recipe, own.borrowed = nine, replace(nine, name="infonce-toy-rgb")
    own.outside = replace(nine, name="../mine")
    eq(find("my_mirror:recipe"), nine)
    with expect_fail(RecipeError, contains="calls itself 'infonce-toy-rgb' and differs"):
        find("my_mirror:borrowed")
    with expect_fail(RecipeError, contains="calls itself '../mine', which is no name for a folder"):
        find("my_mirror:outside")
    for what, says in (
        ("Networks", "mirror: networks(view) gave ['encoder'], not a dict"),
        ("Views", "mirror: views(view) gave ['rgb', 3], not a tuple of names"),
    ):
        with expect_fail(RecipeError, contains=says):
            override(mine, method=f"my_mirror:{what}").views
    eq(override(mine, method="my_mirror:Two").views, ("rgb", "flow"))
    with expect_fail(RecipeError, contains="has no 'Setings'; did you mean 'Settings'?"):
        override(mine, method="my_mirror:Setings")
    three, videos = override(mine, clips=3), TrainingVideos("m.csv", ("a", "b"), (0, -1), (0, 1))
    with expect_fail(
        RecipeError,
        contains="mirror takes 2 clips of each video (one, two), "
        "and clips=3 were asked for; use clips=2",
    ):
        refuse_unfit(three, videos)
    refuse_unfit(mine, videos)


def test_a_recipe_that_cannot_work_is_refused():
    videos = TrainingVideos("m.csv", ("a", "b"), (0, -1), (0, 1))
    with expect_fail(
        RecipeError,
        contains="1 of 2 training videos have no label, such as b; ubernce needs them all",
    ):
        refuse_unfit(find("ubernce-toy-rgb"), videos)
    with expect_fail(RecipeError, contains="queue=8 is smaller than batch=32"):
        refuse_unfit(override(find("ubernce-toy-rgb"), queue=8), replace(videos, label=(0, 1)))
    with expect_fail(
        RecipeError,
        contains="topk=20 is too many: of the 512 keys of the queue up to 512 share the source",
    ):
        refuse_unfit(find("coclr-toy-rgb-cycle1"), replace(videos, source=(3, 3)))
    quad, videos = find("moquad-toy"), replace(videos, label=(0, 1))
    for changes, why in (
        (dict(clips=2), "moquad takes 4 clips of each video (a, p, n, nn)"),
        (dict(intra_negatives=("n",), clips=3), "use motion='speed' and motion_clips=(2,)"),
        (dict(motion="none"), "motion='none', motion_clips=(2, 3): the own negatives"),
        (dict(motion_clips=(2,)), "motion_clips=(2, 3)"),
        (dict(motion_clips=(1, 2, 3)), "no other clips"),
        (dict(appearance_clips=(1,)), "use (1, 3) or (3,)"),
        (dict(appearance_clips=(0, 1, 3)), "a and n never"),
        (dict(appearance="none"), "say what is mixed in"),
        (dict(same=0.5), "use same=0"),
        (dict(motion="reverse"), "appearance_task=0.2 needs clips at two speeds"),
        (dict(batch=1), "batch=1"),
        (dict(accumulate=2), "--activation-checkpointing"),
        (dict(view="flow"), "has no appearance"),
        (dict(intra_negatives=("nn", "n")), "in this order"),
        (
            dict(
                intra_negatives=(), clips=2, motion="none", motion_clips=(), appearance_clips=(1,)
            ),
            "use appearance_task=0",
        ),
    ):
        with expect_fail(RecipeError, contains=why):
            refuse_unfit(override(quad, **changes), videos)
    for changes in (
        dict(appearance_clips=(3,)),
        dict(motion="shuffle", appearance_task=0.0),
        dict(
            intra_negatives=("nn",),
            clips=3,
            motion_clips=(2,),
            appearance_clips=(2,),
            appearance_task=0.0,
        ),
    ):
        refuse_unfit(override(quad, **changes), videos)
    for field, value in (
        ("alpha", 0.5),
        ("beta", 1.1),
        ("speeds", (1, 0)),
        ("strength", (0.0, 2.0)),
        ("windows", 0),
    ):
        with expect_fail(RecipeError, contains="must be"):
            override(quad, **{field: value})


def test_field_types_are_checked_when_an_object_is_made():
    with pytest.raises(RecipeError, match=r"clips=0 must be 1 or more"):
        replace(recipe.sampling, clips=0)
    with pytest.raises(RecipeError, match=r"momentum=2.0 must be 0 or more and 1 or less"):
        type(recipe.method)(momentum=2.0)
    assert out_of_range(1, "[0, 1)") == "must be 0 or more and below 1"
    assert out_of_range(0, "[0, 1)") == out_of_range(True, "[5, inf)") == ""
    assert out_of_range(math.nan, "") == "is not a finite number"
    assert in_words(int) == "a value of type int" and issubclass(type(recipe.learning), Settings)
    assert replace(recipe.sampling, length=16, stride=2, motion="speed", speeds=(1, 3)).span == 91
