"""The rows of the one experiment: each changes one thing of its base, or a few, at one setting.

A row is data: its recipe is that of its base with a few fields changed. Most rows that bring
another method are searched on one seed: the rate, and up to two settings of their own; what was
chosen lies in the results. A row that changes anything else keeps all that was chosen for its base,
the rate too. The rows of IIC's family take what was chosen for IIC; the first of them was not
searched."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from measurement import stop

from vssl_nb.config import METHODS, Recipe, settings_class
from vssl_nb.methods.recipes import find, override

FRAMES, DIFFERENCES = "rgb", "residual"
BOTH_VIEWS = (FRAMES, DIFFERENCES)

# ---- the setting of all rows

SEEDS = tuple(range(41, 49))  # of videos, weights and order; no setting is chosen on them
SEARCH_SEED = 30
RATES = (1e-3, 3e-4, 3e-3)  # of Adam, for batches of 8 videos
# the search leaves what it has for a gain of so much R@1 and no less: near chance two runs of one
# setting differ by 2 to 3 points
MARGIN = 0.04
BATCH = 8  # videos
PASSES = 12  # epochs of a row with two clips of each video: 17,280 clips of 720 videos
LONGER = (2, 4)  # times the budget, for the core rows on frames
SETTING: dict[str, Any] = dict(momentum=None, batch=BATCH, test_clips=3)
WORLDS: dict[str, dict[str, Any]] = {"plain": {}, "both": {"classes": "both"}}  # of `toy.make`
# settings of a base's method that another method of a row keeps, where it has them
SHARED = ("temperature", "queue", "momentum", "dim", "dim_hidden", "head", "topk")


@dataclass(frozen=True)
class Helper:
    "A run of the same videos and seed that a row begins with, or that mines for it."

    row: str
    view: str


@dataclass(frozen=True)
class Row:
    "One line of the table."

    name: str
    group: str  # of the table
    changes: str  # the one thing that is changed, a sentence
    base: str = ""  # the row that it changes; '': none
    method: str = ""  # another method than the base's, by name
    # of the recipe and of the settings of its method
    fields: Mapping[str, Any] = field(default_factory=dict)
    own: Mapping[str, tuple] = field(default_factory=dict)  # settings that are searched, first best
    views: tuple[str, ...] = (FRAMES,)  # of its trainings
    also: tuple[str, ...] = ()  # further views on which its encoder is measured
    core: tuple[str, ...] = ()  # views that are trained in the first turn
    both: tuple[str, ...] = ()  # views that are trained in the world `both`, too
    longer: tuple[int, ...] = ()  # further budgets, times the standard one, on frames
    share: float = 1.0  # of the budget
    counted: int = 0  # clips of a video that the budget counts; 0: all that are drawn
    start: Mapping[str, Helper] = field(default_factory=dict)  # view -> first weights
    sampler: Mapping[str, Helper] = field(default_factory=dict)  # view -> what mines
    kind: str = "training"  # or 'chance', 'histogram', 'untrained', 'streams': nothing is trained
    shown: bool = True  # is it a line of the table, or a helper of others?
    searched: bool = False  # is its rate chosen by a search, or is it that of its base?
    like: str = ""  # a searched row whose choices it takes, in place of its base's


# how a name is written where people read it
WRITTEN = {
    "infonce": "InfoNCE",
    "ubernce": "UberNCE",
    "supcon": "UberNCE, mean of logs",
    "coclr": "CoCLR",
    "cascade": "CPR: cascade",
    "byol": "BYOL",
    "lejepa": "LeJEPA",
    "cmc": "CMC",
    "iic": "IIC",
    "moquad": "MoQuad, rung",
    "provico": "ProViCo",
}


def written(name: str) -> str:  # of a row
    "Its name in a table or picture."
    first, comma, rest = name.partition(",")
    words = [WRITTEN.get(word, word) for word in first.split()]
    return " ".join(words) + comma + rest


def _own_clip(view: str) -> Helper:
    return Helper("infonce", view)


_MINED: dict[str, Any] = dict(
    mining_view=DIFFERENCES, topk=20, until_full="infonce", same_source="positive", drop_own=0.9
)
_ROWS = (
    # -- what is there before learning
    Row("chance", "before", "neighbours drawn at random", kind="chance", core=(FRAMES,)),
    Row("histogram", "before", "colours alone", kind="histogram", core=(FRAMES,)),
    Row("untrained", "before", "random weights", kind="untrained", views=BOTH_VIEWS),
    # -- what time buys
    Row(
        "infonce",
        "time",
        "InfoNCE in the batch, one network for both clips",
        own={"temperature": (0.1, 0.05)},
        views=BOTH_VIEWS,
        core=BOTH_VIEWS,
        both=BOTH_VIEWS,
        longer=LONGER,
        searched=True,
    ),
    # -- what the changes of a clip buy
    Row(
        "no augmentation",
        "changes",
        "neither crop nor colour: two clips of a video differ in time alone",
        "infonce",
        fields=dict(area=(1.0, 1.0), aspect=(1.0, 1.0), jitter=0.0, grey=0.0, permute=0.0),
        views=(DIFFERENCES,),
    ),
    Row(
        "same frames",
        "changes",
        "both clips are the same frames, cropped and coloured apart",
        "infonce",
        fields=dict(same=1.0),
        views=(DIFFERENCES,),
    ),
    Row(
        "no crop",
        "changes",
        "the whole frame",
        "infonce",
        fields=dict(area=(1.0, 1.0), aspect=(1.0, 1.0)),
        views=(DIFFERENCES,),
    ),
    Row(
        "no colour",
        "changes",
        "colours as they are",
        "infonce",
        fields=dict(jitter=0.0, grey=0.0, permute=0.0),
        views=(DIFFERENCES,),
    ),
    # -- what memory buys
    Row(
        "slow copy",
        "memory",
        "a momentum copy of the network makes the keys",
        "infonce",
        fields=dict(momentum=0.99),
        views=BOTH_VIEWS,
        core=(FRAMES,),
    ),
    Row(
        "queue",
        "memory",
        "the negatives are the last 512 keys",
        "slow copy",
        fields=dict(queue=512),
        views=BOTH_VIEWS,
        core=(FRAMES,),
        both=(FRAMES,),
        longer=(2,),
    ),
    # -- no negatives
    Row(
        "byol",
        "no negatives",
        "a predictor and a slow copy, no negatives",
        "slow copy",
        method="byol",
        fields=dict(dim=64, dim_hidden=128, head="mlp", momentum=0.9),
        own={"momentum": (0.9, 0.99)},
        views=BOTH_VIEWS,
        both=(FRAMES,),
        searched=True,
    ),
    Row(
        "lejepa",
        "no negatives",
        "a Gaussian cloud in place of negatives",
        "infonce",
        method="lejepa",
        fields=dict(slices=256, local_clips=0, dim=16, dim_hidden=64, head="mlp"),
        own={"tradeoff": (0.05, 0.02)},
        views=BOTH_VIEWS,
        searched=True,
    ),
    # -- labels
    Row(
        "ubernce",
        "labels",
        "all keys of the query's class are positives",
        "queue",
        method="ubernce",
        fields=dict(form="mil_nce"),
        own={"momentum": (0.99, 0.95), "temperature": (0.1, 0.05)},
        core=(FRAMES,),
        both=(FRAMES,),
        longer=LONGER,
        searched=True,
    ),
    Row(
        "ubernce, own key dropped",
        "labels",
        "the own key is no positive in nine of ten steps",
        "ubernce",
        fields=dict(drop_own=0.9),
    ),
    Row(
        "supcon",
        "labels",
        "the mean of logarithms in place of the logarithm of a sum",
        "ubernce",
        fields=dict(form="supcon"),
        longer=(2,),
    ),
    Row(
        "supcon, own key dropped",
        "labels",
        "the own key is no positive in nine of ten steps",
        "supcon",
        fields=dict(drop_own=0.9),
    ),
    # -- who chooses the positives
    Row(
        "coclr",
        "who chooses",
        "also 20 keys that a trained network of differences finds most alike, and the own key "
        "dropped: CoCLR",
        "queue",
        method="coclr",
        fields=_MINED,
        own={"momentum": (0.99, 0.95), "topk": (20, 5)},
        core=(FRAMES,),
        both=(FRAMES,),
        longer=LONGER,
        sampler={FRAMES: _own_clip(DIFFERENCES)},
        searched=True,
    ),
    Row(
        "coclr, own key kept",
        "who chooses",
        "the own key is a positive in every step",
        "coclr",
        fields=dict(drop_own=0.0),
        sampler={FRAMES: _own_clip(DIFFERENCES)},
    ),
    Row(
        "untrained differences",
        "who chooses",
        "a random network of differences chooses",
        "coclr",
        core=(FRAMES,),
        sampler={FRAMES: Helper("untrained", DIFFERENCES)},
        longer=(2,),
    ),
    Row(
        "itself",
        "who chooses",
        "the network that learns chooses for itself",
        "coclr",
        fields=dict(miner_options=(f"view={FRAMES}",)),
        core=(FRAMES,),
        # is asked nothing
        sampler={FRAMES: Helper("untrained", DIFFERENCES)},
        longer=(2,),
    ),
    *(
        Row(
            f"labels at {precision}",
            "who chooses",
            f"keys are drawn by their labels, so that {100 * precision:.0f} % are right",
            "coclr",
            method="ubernce",
            fields=dict(form="mil_nce", drop_own=0.9, precision=precision),
            longer=(2,) if precision == 0.5 else (),
        )
        for precision in (0.2, 0.35, 0.5)
    ),
    Row(
        "begun",
        "who chooses",
        "a third of the budget",
        "queue",
        share=1 / 3,
        shown=False,
    ),
    Row(
        "coclr, begun",
        "who chooses",
        "begins with InfoNCE, a third of the budget, as printed",
        "coclr",
        share=2 / 3,
        start={FRAMES: Helper("begun", FRAMES)},
        sampler={FRAMES: _own_clip(DIFFERENCES)},
    ),
    Row(
        "coclr, again",
        "who chooses",
        "begins with CoCLR, and is mined as before",
        "coclr",
        start={FRAMES: Helper("coclr", FRAMES)},
        sampler={FRAMES: _own_clip(DIFFERENCES)},
    ),
    Row(
        "cascade",
        "who chooses",
        "both views choose in three stages: CPR",
        "coclr, again",
        fields=dict(miner="cascade", miner_options=("stages=3", "ratio=0.6")),
        start={FRAMES: Helper("coclr", FRAMES)},
        sampler={FRAMES: _own_clip(DIFFERENCES)},
    ),
    Row(
        "coclr, second phase",
        "who chooses",
        "differences learn, and the frames that CoCLR taught choose",
        "coclr",
        fields=dict(mining_view=FRAMES),
        views=(DIFFERENCES,),
        both=(DIFFERENCES,),
        sampler={DIFFERENCES: Helper("coclr", FRAMES)},
    ),
    Row(
        "coclr, both streams",
        "who chooses",
        "the sum of the cosines of both phases",
        kind="streams",
        both=(FRAMES,),
        start={FRAMES: Helper("coclr", FRAMES)},
        sampler={FRAMES: Helper("coclr, second phase", DIFFERENCES)},
    ),
    # -- a second view in one network, own negatives, or both
    Row(
        "bank",
        "causes",
        "a clip must match what the network remembers of its video; negatives are rows of others",
        "infonce",
        method="iic",
        fields=dict(
            second_view=None,
            intra=None,
            negatives=256,
            normalise=True,
            intra_gradient=True,
            mask_own=True,
            head="projection",
        ),
        core=(FRAMES,),
        like="iic",
    ),
    Row(
        "bank, shuffled",
        "causes",
        "two quarters of the clip change places: an own negative, broken in time",
        "bank",
        fields=dict(intra="shuffle"),
        core=(FRAMES,),
    ),
    Row(
        "bank, patches",
        "causes",
        "quarters of the picture change places: an own negative, broken in space",
        "bank",
        fields=dict(intra="patches"),
        core=(FRAMES,),
    ),
    Row("bank, repeated", "causes", "one frame all the time", "bank", fields=dict(intra="repeat")),
    Row("bank, reversed", "causes", "played backwards", "bank", fields=dict(intra="reverse")),
    Row(
        "bank, fast",
        "causes",
        "another clip of the video, twice as fast",
        "bank",
        fields=dict(intra="sampled", motion="speed", motion_clips=(1,), speeds=(1, 2)),
        counted=1,
    ),
    Row(
        "cmc",
        "causes",
        "a clip must match its differences, in the same network, without broken clips",
        "bank",
        fields=dict(second_view=DIFFERENCES),
        also=(DIFFERENCES,),
        core=(FRAMES,),
        both=(FRAMES,),
        longer=LONGER,
    ),
    Row(
        "iic",
        "causes",
        "and clips broken in time are negatives, with a gradient",
        "cmc",
        fields=dict(intra="shuffle"),
        own={"temperature": (0.1, 0.05)},
        also=(DIFFERENCES,),
        core=(FRAMES,),
        both=(FRAMES,),
        longer=LONGER,
        searched=True,
    ),
    Row(
        "iic, patches",
        "causes",
        "the broken clips are broken in space",
        "iic",
        fields=dict(intra="patches"),
        core=(FRAMES,),
    ),
    Row(
        "iic, released",
        "causes",
        "as released: features of any length, no head, no gradient to broken clips, the own row "
        "among the negatives",
        "iic",
        fields=dict(normalise=False, intra_gradient=False, mask_own=False, head=None),
        also=(DIFFERENCES,),
    ),
    Row(
        "iic, released, length 1",
        "causes",
        "features of length 1",
        "iic, released",
        fields=dict(normalise=True),
        also=(DIFFERENCES,),
    ),
    Row(
        "iic, released, gradient",
        "causes",
        "a gradient to the broken clips",
        "iic, released",
        fields=dict(intra_gradient=True),
        also=(DIFFERENCES,),
    ),
    Row(
        "cmc, released",
        "causes",
        "as released, without broken clips",
        "iic, released",
        fields=dict(intra=None),
        also=(DIFFERENCES,),
    ),
    # -- the rest
    Row(
        "moquad 0",
        "moquad",
        "SimCLR: the first clip alone asks, all clips of all videos answer",
        "infonce",
        method="moquad",
        fields=dict(intra_negatives=(), beta=0.0, appearance_task=0.0),
        views=BOTH_VIEWS,
        longer=(4,),
        searched=True,
    ),
    Row(
        "moquad 1",
        "moquad",
        "the positive has another appearance",
        "moquad 0",
        fields=dict(appearance="rad_inter", appearance_clips=(1,), strength=(0.3, 0.7)),
        views=BOTH_VIEWS,
    ),
    Row(
        "moquad 2",
        "moquad",
        "and a negative of another speed",
        "moquad 1",
        fields=dict(intra_negatives=("n",), motion="speed", motion_clips=(2,), speeds=(1, 2)),
        views=BOTH_VIEWS,
        longer=(4,),
    ),
    Row(
        "moquad 3",
        "moquad",
        "and one of another speed and appearance",
        "moquad 2",
        fields=dict(intra_negatives=("n", "nn"), motion_clips=(2, 3), appearance_clips=(1, 3)),
        views=BOTH_VIEWS,
        both=(FRAMES,),
        longer=(4,),
    ),
    Row(
        "provico",
        "rest",
        "videos are mixtures of Gaussians, and those that overlap are positives",
        "infonce",
        method="provico",
        fields=dict(
            dim=64,
            head="gaussian",
            instance_stage=0.25,
            threshold=None,
            doubt="total",
            variance=1.0,
            self_pairs=False,
        ),
        own={"threshold": (None, 0.15)},
        views=BOTH_VIEWS,
        searched=True,
    ),
    # -- a transformer, and what is predicted of hidden tubelets
    Row(
        "transformer",
        "masked",
        "a small transformer in place of the convolutions, with AdamW",
        "infonce",
        fields=dict(backbone="vit_toy_fine", optimizer="adamw", weight_decay=0.05, clip_norm=1.0),
        searched=True,
    ),
    Row(
        "untrained transformer",
        "masked",
        "random weights of the same transformer",
        "transformer",
        kind="untrained",
    ),
    Row(
        "masked pixels",
        "masked",
        "nothing is compared: the pixels of hidden tubes are predicted",
        "transformer",
        method="masked",
        fields=dict(
            target="pixels",
            mask="tube",
            mask_ratio=0.75,
            predictor_dim=48,
            predictor_depth=1,
            predictor_heads=2,
        ),
        own={"mask": ("tube", "random")},
        searched=True,
    ),
    Row(
        "masked features",
        "masked",
        "the features of a slow copy are predicted",
        "masked pixels",
        fields=dict(
            target="features",
            prediction_loss="l1",
            momentum=0.99,
            momentum_schedule="linear",
            exported="momentum_encoder",
        ),
        own={"momentum": (0.99, 0.95)},
        both=(FRAMES,),
        searched=True,
    ),
    Row(
        "masked motion",
        "masked",
        "how much each hidden tubelet moves is predicted",
        "masked pixels",
        fields=dict(target="motion"),
        both=(FRAMES,),
        searched=True,
    ),
)
# where a library has no such method, its rows are left out
ROWS = {row.name: row for row in _ROWS if not row.method or row.method in METHODS}
# world -> rows that take no training, in all views that they have
UNTRAINED = ("chance", "histogram", "untrained")


# ---- trainings


@dataclass(frozen=True)
class Training:
    "One run: a row in a world, on a view, with a budget."

    world: str
    row: str
    view: str
    budget: int = 1  # times the standard one

    @property
    def name(self) -> str:
        return f"{self.world}, {self.row}, {self.view}, x{self.budget}"


def trainings_of(
    turn: int,  # 1: core rows; 2: the other rows; 3: longer; 4: the world `both`
) -> list[Training]:  # helpers before those that need them
    "What is trained in a turn, with all that it needs and no earlier turn has."
    wanted: list[Training] = []
    for row in ROWS.values():
        before = row.name in UNTRAINED
        for view in row.views:
            is_core = before or view in row.core
            if turn in (1, 2) and is_core == (turn == 1):
                wanted.append(Training("plain", row.name, view))
            if turn == 3 and view == FRAMES:
                wanted += [Training("plain", row.name, view, times) for times in row.longer]
            if turn == 4 and (before or view in row.both):
                wanted.append(Training("both", row.name, view))

    earlier = {t for n in range(1, turn) for t in trainings_of(n)}
    return [t for t in with_helpers(wanted) if t not in earlier]


def helpers_of(
    training: Training,
) -> dict[str, Training]:  # network -> run, of the standard budget
    "The runs that a training begins with, or that mine for it."
    row = ROWS[training.row]
    networks = {"encoder": row.start, "sampler": row.sampler}
    return {
        network: Training(training.world, of[training.view].row, of[training.view].view)
        for network, of in networks.items()
        if training.view in of
    }


def with_helpers(wanted: list[Training]) -> list[Training]:
    "The same, each after its helpers, none twice."
    ordered: dict[Training, None] = {}

    def add(training: Training) -> None:
        for helper in helpers_of(training).values():
            add(helper)
        ordered.setdefault(training)

    for training in wanted:
        add(training)
    return [*ordered]


def all_helpers(training: Training) -> list[Training]:
    "The helpers of a training, and theirs, each once."
    return [t for t in with_helpers([training]) if t != training]


# ---- recipes


@dataclass(frozen=True)
class Chosen:
    "What the search has chosen for a row and a view."

    lr: float = RATES[0]
    own: Mapping[str, Any] = field(default_factory=dict)


def default_of(row: Row) -> Chosen:
    "What a row has before it is searched."
    return Chosen(own={name: values[0] for name, values in row.own.items()})


def view_of(row: Row, view: str) -> str:
    "The view whose choices a row above takes: its own, or the first of a base that lacks it."
    return view if view in row.views else row.views[0]


def chosen_for(
    row: Row,
    view: str,
    chosen: Mapping[tuple[str, str], Chosen],  # (row, view)
) -> Chosen:
    "What a row was given by its search, or by that of the row that it is like; or its base's rate."
    if row.like:
        return chosen_for(ROWS[row.like], view, chosen)
    if row.searched or not row.base:
        return chosen.get((row.name, view_of(row, view)), default_of(row))
    return replace(chosen_for(ROWS[row.base], view, chosen), own={})


def _searched_for(row: Row, view: str) -> Iterator[tuple[str, str]]:  # (row, view)
    "The searches that decide the recipe of a row: its own, and those of its bases."
    while True:
        source = ROWS[row.like] if row.like else row
        if source.searched:
            yield source.name, view_of(source, view)
        if not row.base:
            return
        row = ROWS[row.base]


def search_needs(
    row: Row,
    view: str,
) -> list[tuple[str, str]]:  # (row, view)
    "What must have been chosen before a row is trained: for it, for its bases and what helps it."
    needs = [*_searched_for(row, view)]
    for helper in all_helpers(Training("plain", row.name, view)):
        needs += _searched_for(ROWS[helper.row], helper.view)
    return [*dict.fromkeys(needs)]


def _base_recipe() -> Recipe:
    return override(find("infonce-toy-rgb"), **SETTING)


def _with_method(
    recipe: Recipe,  # of the base
    row: Row,
) -> tuple[Recipe, dict[str, Any]]:  # and the fields of the row that are left
    "Another method, with those settings of the base's that both share."
    changes = dict(row.fields)
    if row.method:
        cls: Any = settings_class(row.method)
        names = {f.name for f in fields(cls)}
        shared = {k: v for k, v in vars(recipe.method).items() if k in SHARED and k in names}
        kept = {k: v for k, v in shared.items() if fits(row.method, k, v)}
        own = {k: changes.pop(k) for k in [*changes] if k in names}
        recipe = replace(recipe, method=cls(**kept | own))
    return recipe, changes


def fits(
    method: str,
    name: str,  # of a setting
    value: Any,
) -> bool:
    "Can a method take a shared setting of another one? IIC's `topk` is a tuple."
    return not (name == "topk" and method == "iic" and not isinstance(value, tuple))


def _changed(
    recipe: Recipe,
    changes: Mapping[str, Any],
) -> Recipe:
    "Fields changed; as many clips as the method then takes."
    cls = type(recipe.method)
    names = {f.name for f in fields(cls)}
    settings = {k: v for k, v in changes.items() if k in names}
    clips = getattr(replace(recipe.method, **settings), "clips", None)
    counted = {} if clips is None else {"clips": len(clips)}
    return override(recipe, **changes, **counted)


def recipe_of(
    training: Training,
    seed: int,
    chosen: Mapping[tuple[str, str], Chosen],  # (row, view)
    passes: int = PASSES,  # epochs of a row with two clips, at the standard budget
    changes: Mapping[str, Any] = {},  # of all recipes, for a trial
) -> Recipe:
    "The recipe of a training."
    row = ROWS[training.row]
    recipe = _recipe_of_row(row, training.view, chosen)
    rate = chosen_for(row, training.view, chosen).lr
    recipe = override(recipe, seed=seed, lr=rate, view=training.view, **changes)
    epochs = epochs_of(recipe, row, passes, training.budget)
    name = f"{row.name.replace(',', '').replace(' ', '-')}-{training.view}-x{training.budget}"
    return override(recipe, name=name, about=f"{row.name}: {row.changes}", epochs=epochs)


def _recipe_of_row(
    row: Row,
    view: str,
    chosen: Mapping[tuple[str, str], Chosen],
) -> Recipe:
    "The base's recipe with the row's change and its own settings."
    recipe = _base_recipe()
    if row.base:
        recipe = _recipe_of_row(ROWS[row.base], view, chosen)
    recipe, changes = _with_method(recipe, row)
    own = chosen_for(row, view, chosen).own
    return _changed(recipe, changes | dict(own))


def epochs_of(
    recipe: Recipe,
    row: Row,
    passes: int,
    budget: int,
) -> int:
    "The epochs in which a training draws as many clips as all others."
    clips = row.counted or recipe.sampling.clips
    exact = 2 * passes * budget * row.share / clips
    if abs(exact - round(exact)) > 1e-6:
        stop(f"--passes {passes}: {row.name} would take {exact:.2f} epochs; give a multiple of 6")
    return max(round(exact), 1)


def choices(
    row: Row,
    rates: tuple[float, ...] = RATES,
) -> Iterator[tuple[str, tuple]]:  # a name and its values, in the order of the search
    "What is searched for a row: the rate first, then its own settings one by one."
    yield "lr", rates
    yield from row.own.items()


def steps_of(
    recipe: Recipe,
    videos: int,  # to train on
) -> int:
    "Optimizer steps: the last videos of an epoch that fill no batch are left out."
    return recipe.learning.epochs * max(math.floor(videos / recipe.learning.batch), 1)
