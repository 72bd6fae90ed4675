"""Settings and recipes as plain data: typed fields with ranges, checked, overridden by name, kept as JSON.

A recipe is everything that decides a training, except the files. Only `runs.parts` turns one into objects.
This module imports neither torch nor any method: `methods.recipes` publishes the settings and recipes.
"""

import ast, csv, json, math, re, types
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from .names import PluginError, did_you_mean, full_name, resolve


class RecipeError(ValueError):
    "A recipe or a field that does not exist, or a value of a wrong type or range."


def read_lines(
    name: str,  # 'papers/published.csv'
) -> list[dict[str, str]]:  # column -> text
    "The lines of a table of this library; those that begin with # are comments."
    with (Path(__file__).parent / name).open(newline="", encoding="utf-8") as f:
        return [*csv.DictReader(text for text in f if not text.startswith("#"))]


def read_fields(
    text: str,  # 'epochs=5 by=loss'
) -> dict[str, Any]:  # name -> value
    "Fields as a table has them; what is no number, tuple, True, False or None is a word."

    def value(word):
        try:
            return ast.literal_eval(word)
        except (ValueError, SyntaxError):
            return word

    return {k: value(v) for k, _, v in (word.partition("=") for word in text.split())}


# Types of fields: a plain type and the interval of its values. '[0, 1)' is 0 or more, and below 1.
Count = Annotated[int, "[1, inf)"]
Index = Annotated[int, "[0, inf)"]
Seed = Annotated[int, "[0, 9223372036854775808)"]  # of 63 bits
Share = Annotated[float, "[0, 1]"]  # also a probability
Positive = Annotated[float, "(0, inf)"]
NonNegative = Annotated[float, "[0, inf)"]


def in_words(kind: Any) -> str:
    "A type annotation for people: 'one of 1, 2', 'a value of type int'."
    if get_origin(kind) is Literal:
        return "one of " + ", ".join(map(repr, get_args(kind)))
    plain = isinstance(kind, type) and not get_args(kind)
    return f"a value of type {kind.__name__ if plain else kind}"


def fits(
    value: Any,
    kind: Any,  # a type annotation
) -> bool:
    "Is the value of that type? An int is a float, a bool is not a number."
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return True
    if origin is Annotated:
        return fits(value, inner[0])
    if origin in (Union, types.UnionType):
        return any(fits(value, k) for k in inner)
    if origin is Literal:
        return value in inner
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        if inner[-1] is ...:
            return all(fits(v, inner[0]) for v in value)
        return len(value) == len(inner) and all(map(fits, value, inner))
    if kind in (int, float):
        return isinstance(value, (int, kind)) and not isinstance(value, bool)
    return isinstance(value, kind)


def interval(
    kind: Any,
) -> str:  # '[0, 1)'; '' where the type has none
    "The range that an annotation gives its numbers, those inside a union or tuple included."
    if get_origin(kind) is Annotated:
        return next((m for m in kind.__metadata__ if isinstance(m, str)), "")
    return next((x for x in map(interval, get_args(kind)) if x), "")


def out_of_range(
    value: Any,
    limits: str,  # '[0, 1)'
) -> str:  # 'must be 0 or more and below 1'
    """The range that a number misses, in words; '' if it is inside, or no number.

    Without limits: any finite.
    """
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return ""
    finite = math.isfinite(value)
    if not limits:
        return "" if finite else "is not a finite number"
    low, high = (float(x) for x in limits[1:-1].split(","))
    above = value > low or limits[0] == "[" and value == low
    below = value < high or limits[-1] == "]" and value == high
    words = [f"{low:g} or more" if limits[0] == "[" else f"above {low:g}"]
    if high < math.inf:
        words.append(f"{high:g} or less" if limits[-1] == "]" else f"below {high:g}")
    if above and below and finite:
        return ""
    return f"{'' if finite else 'is not a finite number; it '}must be {' and '.join(words)}"


@lru_cache(None)
# field -> type without its range, and the range
def _field_types(cls: type) -> dict[str, tuple[Any, str]]:
    plain, ranged = get_type_hints(cls), get_type_hints(cls, include_extras=True)
    return {name: (kind, interval(ranged[name])) for name, kind in plain.items()}


Part = TypeVar("Part")


def checked(
    part: Part,  # a frozen dataclass: a recipe, or a part of one
) -> Part:  # the same
    "Refuse a value that is not of the type of its field, or outside its range. `RecipeError`."
    types_ = _field_types(type(part))  # type: ignore[arg-type]
    for f in fields(part):  # type: ignore[arg-type]
        value, (kind, limits) = getattr(part, f.name), types_[f.name]
        if not fits(value, kind):
            raise RecipeError(f"{f.name}={value!r} is not {in_words(kind)}; give one")
        for number in value if isinstance(value, tuple) else (value,):
            if wrong := out_of_range(number, limits):
                raise RecipeError(f"{f.name}={value!r} {wrong}")
        if is_dataclass(value):
            checked(value)
    return part


class Settings:
    """What settings and recipes derive from: frozen dataclasses that check their values when they
    are made.
    """

    def __post_init__(self) -> None:
        checked(self)


@dataclass(frozen=True, kw_only=True)
class Sampling(Settings):
    "Which frames of a video a training sample is made of: `data.sampling.random_clips`."

    clips: Count  # V, clips per video
    length: Count  # T, frames per clip
    stride: Count  # frames of the video from one frame of a clip to the next
    pad: Literal["first", "loop"]  # how a video shorter than a clip is filled
    # may the last legal start be drawn? the released code never does
    last: Literal["all", "released"]
    # probability that all clips of a sample are one window: `data.dataset.TrainClips`
    same: Share
    # how the motion of some clips is disturbed, and of which, counted from 0
    motion: Literal["none", "speed", "reverse", "shuffle"] = "none"
    motion_clips: tuple[Index, ...] = ()
    speeds: tuple[Count, Count] = (1, 2)  # motion='speed': two factors of the stride

    @property
    def span(self) -> int:  # frames of the video
        "From the first frame of a clip to its last, of the fast clip where there are two speeds."
        return (self.length - 1) * self.stride * (
            max(self.speeds) if self.motion == "speed" else 1
        ) + 1


@dataclass(frozen=True, kw_only=True)
class Augment(Settings):
    "What happens to the pixels of a clip: `data.augmentation.draw`."

    # of `data.augmentation.AUGMENTATIONS`, or 'package.module:name'; the rest: options
    augmentation: str = "standard"
    # which clips change it: each, or as the released controller does
    colour: Literal["all", "released"] = "all"
    # share of the frame that a crop keeps
    area: tuple[Annotated[float, "(0, 1]"], Annotated[float, "(0, 1]"]]
    aspect: tuple[Positive, Positive]  # width / height of a crop
    crop: Literal["torchvision", "released"]  # how a crop that does not fit is handled
    flip: Share  # probability of left-right; 0 where the direction is the label
    jitter: Share  # probability of the four colour changes
    brightness: NonNegative  # factors from 1-this to 1+this
    contrast: NonNegative  # factors from 1-this to 1+this
    saturation: NonNegative  # factors from 1-this to 1+this
    hue: Annotated[float, "[0, .5]"]  # shift, in turns of the colour circle
    grey: Share  # probability of grey
    # grey for the whole clip, or the released channel per frame
    grey_mode: Literal["clip", "flicker"] = "clip"
    permute: Share = 0.0  # probability of shuffled colour channels
    blur: Share  # probability of Gaussian blur
    sigma: tuple[Positive, Positive] = (0.1, 2.0)  # of the blur, pixels
    # whose still image is mixed into some clips, and into which, counted from 0
    appearance: Literal["none", "rad_inter", "rad_intra", "be"] = "none"
    appearance_clips: tuple[Index, ...] = ()
    windows: Count = 5  # a RAD image has as many in each direction
    strength: tuple[Share, Share] = (0.1, 0.5)  # share of the image in the mixture
    # of RAD: one frame in all windows, or a frame for each
    window_frames: Literal["one", "each"] = "one"


@dataclass(frozen=True, kw_only=True)
class Learning(Settings):
    "Optimizer, schedule and length: `training.loop`."

    optimizer: Literal["adam", "adamw", "sgd", "lars"]
    lr: NonNegative  # base learning rate
    weight_decay: NonNegative  # L2 for adam, sgd and lars, decoupled for adamw
    sgd_momentum: Annotated[float, "[0, 1)"] = 0.9  # used by sgd and lars
    clip_norm: NonNegative = 0.0  # longest gradient (L2 norm over all parameters); 0: any
    decay_bias: bool = True  # weight decay for biases and norms, too; lars never has it
    batch: Count  # videos of one batch, over all processes
    accumulate: Count = 1  # batches of one optimizer step
    epochs: Count  # passes over the training videos
    # times the schedule of the learning rate is gone through, in equal parts of the epochs
    cycles: Count = 1
    # 'plateau': of a validation loss, which only fine-tuning has
    schedule: Literal["steps", "cosine", "plateau"]
    drops: tuple[NonNegative, ...] = ()  # 'steps': epochs at which the rate is multiplied by gamma
    gamma: Annotated[float, "(0, 1]"] = 0.1  # 'steps': the factor of each drop
    warmup: NonNegative = 0.0  # 'cosine': epochs of linear climb
    # 'plateau': epochs without a lower loss before the rate falls to a tenth
    patience: Index = 50
    floor: Share = 0.01  # 'plateau': the factor never falls below this


@dataclass(frozen=True, kw_only=True)
class ClipGroup(Settings):
    """Further clips of each video, of a size of their own; otherwise sampled and augmented as the
    recipe says.
    """

    clips: Count  # V of this group
    length: Count  # T, frames per clip
    stride: Count = 1  # frames of the video from one frame of a clip to the next
    size: Count  # side of the clips, pixels
    # share of the frame that a crop keeps
    area: tuple[Annotated[float, "(0, 1]"], Annotated[float, "(0, 1]"]]


@dataclass(frozen=True, kw_only=True)
class PairSettings(Settings):
    "Two encoders of a method, of which one follows the other: `ssl.memory.EncoderPair`."

    dim_hidden: Count | None = None  # of the projection; none: as wide as the feature
    dim: Count = 128  # of the space the loss compares in (CoCLR: 128)
    # that makes the projection: a name of `nets.heads.HEADS`, or 'package.module:name'
    head: str = "projection"
    momentum: Share | None = 0.999  # of the key encoder (CoCLR: 0.999); none: one network for both
    # 'cosine', 'linear': up to momentum_end, `ssl.memory.momentum_at`
    momentum_schedule: Literal["fixed", "cosine", "linear"] = "fixed"
    momentum_end: Share = 1.0  # after the last step, of 'cosine' and 'linear'
    # whose statistics: `distributed.group_batchnorm`
    bn: Literal["shuffle", "sync", "split"] = "sync"
    groups: Count | None = None  # BatchNorm groups over all processes; none: one in each process


@dataclass(frozen=True, kw_only=True)
class Recipe(Settings):
    "Everything that decides a training, except the files."

    name: str  # of the experiment
    about: str  # one sentence
    dataset: str  # that it is meant for, such as 'UCF101'; `--data` binds a manifest
    split: Literal[1, 2, 3] = 1  # which split of the manifest to train on
    view: str  # of the encoder: a name of `data.views.VIEWS`, or 'package.module:name'
    # which residual, where that is the view
    residual: Literal["plain", "rescaled", "wrapped", "rolled"] = "plain"
    residual_scale: Positive = 0.1  # a plain residual is divided by this
    # where that is the view: of the manifest, or solved on the GPU
    flow: Literal["stored", "live"] = "stored"
    # mirrored flow: does u change sign? `data.views.Views`
    flow_flip: Literal["negate", "released"] = "negate"
    # are colours of flow pictures changed as those of a clip?
    flow_colour: Literal["released", "none"] = "none"
    # ImageNet's mean and spread, or 0 .. 1; rgb and flow
    normalisation: Literal["imagenet", "none"] = "imagenet"
    backbone: str  # a name that `nets.backbones.create` knows, or 'package.module:name'
    size: Count  # side of the clips, pixels
    sampling: Sampling
    augment: Augment
    method: Any  # the settings of a method: of METHODS, or one's own
    learning: Learning
    test_clips: Count  # evenly spread clips per video when the encoder is measured
    seed: Seed = 0  # of weights, order, clips and pixels
    # of numbers that were chosen for one folder and machine: why each is what it is
    reasons: tuple[str, ...] = ()

    @property
    # length, stride, size and pad: frames, frames, pixels, 'first' or 'loop'
    def clip(self) -> dict[str, Any]:
        "The clip that an encoder of this recipe is trained and measured on."
        s = self.sampling
        return dict(length=s.length, stride=s.stride, size=self.size, pad=s.pad)

    @property
    # '' -> itself; further ones by the names that the method gives them
    def groups(self) -> dict[str, "Recipe"]:
        "The recipe of each group of clips; `Views` makes `rgb_local` of the group 'local'."
        further: Mapping[str, ClipGroup] = getattr(self.method, "clip_groups", {})
        return {"": self} | {
            name: replace(
                self,
                size=g.size,
                sampling=replace(
                    self.sampling,
                    clips=g.clips,
                    length=g.length,
                    stride=g.stride,
                    same=0.0,
                    motion="none",
                    motion_clips=(),
                ),
                augment=replace(self.augment, area=g.area, appearance="none", appearance_clips=()),
            )
            for name, g in further.items()
        }

    @property
    # argument of the method -> view; 'encoder' is the one that learns
    def networks(self) -> dict[str, str]:
        "The networks that the method is built from."
        if not hasattr(self.method, "networks"):
            return {"encoder": self.view}
        networks = self.method.networks(self.view)
        if not isinstance(networks, dict) or "encoder" not in networks:
            raise RecipeError(
                f"{self.method.name}: networks(view) gave {networks!r}, "
                "not a dict of argument -> view with 'encoder' in it"
            )
        return networks

    @property
    def views(self) -> tuple[str, ...]:  # names for `data.views.Views`, that of the encoder first
        "The views that a training needs."
        names = list(self.networks.values())
        if hasattr(self.method, "views"):
            more = self.method.views(self.view)
            if not isinstance(more, (tuple, list)) or not all(isinstance(v, str) for v in more):
                raise RecipeError(
                    f"{self.method.name}: views(view) gave {more!r}, not a tuple of names"
                )
            names += more
        return tuple(dict.fromkeys(names))


@dataclass(frozen=True)
class TrainingVideos:
    "What is known of the training videos before one of them is opened."

    manifest: str  # path, for messages
    video: tuple[str, ...]  # names
    label: tuple[int, ...]  # class ids, -1 for unlabelled
    source: tuple[int, ...]  # ids of the recordings


def refuse_unfit(
    recipe: Recipe,
    videos: TrainingVideos,  # that the method would be trained on
) -> None:
    "Refuse, before anything is computed, what cannot work. `RecipeError`."
    method, unlabelled = (
        recipe.method,
        [v for v, label in zip(videos.video, videos.label) if label < 0],
    )
    clips = getattr(method, "clips", None)
    if clips and len(clips) != recipe.sampling.clips:
        raise RecipeError(
            f"{method.name} takes {len(clips)} clips of each video ({', '.join(clips)}), "
            f"and clips={recipe.sampling.clips} were asked for; use clips={len(clips)}"
        )
    if recipe.augment.appearance != "none" and recipe.augment.windows > recipe.size:
        raise RecipeError(
            f"windows={recipe.augment.windows} do not fit side by side into {recipe.size} pixels; "
            "use windows=5"
        )
    if getattr(method, "needs_labels", False) and unlabelled:
        raise RecipeError(
            f"{videos.manifest}: "
            f"{len(unlabelled)} of {len(videos.video)} training videos have no label, such as "
            f"{unlabelled[0]}; "
            f"{method.name} needs them all: fill in the column label, or use another method"
        )
    if hasattr(method, "refuse"):
        method.refuse(recipe, videos)


@dataclass(frozen=True)
class Phase:
    "One run of a co-training."

    recipe: str  # name
    start: str = ""  # name of the recipe whose run gives the first weights; '': random
    sampler: str = ""  # name of the recipe whose run mines; '': none


METHODS: dict[str, type] = {}  # settings of our methods by name
RECIPES: dict[str, Recipe] = {}  # published experiments by name
COTRAININGS: dict[str, tuple[Phase, ...]] = {}


def publish(
    method: type | None,  # the settings of a method; None: recipes alone
    *recipes: Recipe,
    cotrainings: Mapping[str, tuple[Phase, ...]] = {},
) -> None:
    "Make a method of ours and its recipes known by name."
    if method:
        METHODS[method.name] = method  # type: ignore[attr-defined]
    RECIPES.update({r.name: r for r in recipes})
    COTRAININGS.update(cotrainings)


def _resolved(
    name: str,  # as of `resolve`
    known: Mapping[str, Any],  # as of `resolve`
    kind: str,  # as of `resolve`
) -> Any:  # as of `resolve`
    try:
        return resolve(name, known, kind)
    except PluginError as e:
        raise RecipeError(str(e)) from None


def settings_class(
    name: str,  # a key of METHODS, or 'package.module:Class'
) -> type:  # a frozen dataclass
    "The settings of a method by name; RecipeError if they lack what a run needs of them."
    cls = _resolved(name, METHODS, "a method")
    if name in METHODS:
        return cls

    # refused: what could not be told from others, overridden by name, or read back
    def refuse(why: str) -> None:
        raise RecipeError(f"{name}: {why}")

    if not (isinstance(cls, type) and is_dataclass(cls) and cls.__dataclass_params__.frozen):  # type: ignore[attr-defined]
        refuse("is not a frozen dataclass; settings are plain data, `@dataclass(frozen=True)`")
    for word, meaning in (
        ("name", "what tables call it: name:ClassVar[str] = 'mine'"),
        ("method", "where its class is: method:ClassVar[str] = 'package.module:Class'"),
    ):
        if not isinstance(vars(cls).get(word), str):
            refuse(f"does not say itself {meaning} (what it inherits would train another method)")
    if METHODS.get(cls.name, cls) is not cls:
        refuse(
            f"calls itself {cls.name!r}, as a method of this library does; give it a name of its "
            "own"
        )
    taken = {f.name for part in (Recipe, Sampling, Augment, Learning) for f in fields(part)}
    for f in fields(cls):
        if f.name in ("name", "method"):
            refuse(
                f"{f.name} is a field, and every run could change it; write "
                f"{f.name}:ClassVar[str] = …"
            )
        if f.name in taken:
            refuse(f"its field {f.name!r} is called like one of a recipe; call it otherwise")
        if f.default is MISSING and f.default_factory is MISSING:
            refuse(f"its field {f.name!r} has no default; give it one")
    groups = getattr(cls(), "clip_groups", {})
    if not (
        isinstance(groups, Mapping)
        and all(str(k).isidentifier() and isinstance(g, ClipGroup) for k, g in groups.items())
    ):
        refuse(f"clip_groups={groups!r} is not a dict of name -> ClipGroup")
    clips = getattr(cls(), "clips", None)  # of an object: they may follow from its fields
    if clips is not None and not (
        isinstance(clips, tuple) and all(isinstance(c, str) for c in clips)
    ):
        refuse(f"clips={clips!r} is not a tuple of names, such as clips:ClassVar = ('one', 'two')")
    try:
        kept = _part_from_dict(cls, json.loads(json.dumps(asdict(checked(cls())))), "method", name)
    except (TypeError, NameError):
        kept = None
    if kept != cls():
        refuse(
            "its defaults are not the same when they are read back from recipe.json; "
            "use numbers, words, None and tuples of them"
        )
    return cls


def find(
    name: str,  # of a published experiment: 'infonce-toy-rgb'; or 'package.module:name'
) -> Recipe:
    "The recipe of that name; RecipeError naming the nearest."
    recipe = _resolved(name, RECIPES, "a recipe")
    if not isinstance(recipe, Recipe):
        raise RecipeError(f"{name}: is a {type(recipe).__name__}, not a Recipe")
    if not re.fullmatch(r"\w[\w.+-]*", recipe.name):
        raise RecipeError(
            f"{name}: calls itself "
            f"{recipe.name!r}, which is no name for a folder; use letters, digits, - and _"
        )
    if RECIPES.get(recipe.name, recipe) != recipe:
        raise RecipeError(
            f"{name}: calls itself {recipe.name!r} and differs from the recipe of that name; "
            "give it one of its own, override(…, name='mine')"
        )
    return checked(recipe)


def flat_fields(
    part: Any,  # a recipe, or another dataclass of dataclasses
) -> dict[str, Any]:  # field -> value
    "All fields, those of its parts included, by their own names."
    flat: dict[str, Any] = {}
    for f in fields(part):
        value = getattr(part, f.name)
        # those are exchanged whole
        parts = is_dataclass(value) and f.name not in getattr(part, "whole", ())
        flat |= vars(value) if parts else {f.name: value}
    return flat


def difference(
    a: Recipe,
    b: Recipe,
) -> dict[str, tuple[Any, Any]]:  # field -> (value in a, value in b)
    "The fields in which two recipes differ; `about` and `reasons`, for people, are none of them."
    x, y = ({"method": r.method.name} | flat_fields(r) for r in (a, b))
    return {
        k: (x.get(k), y.get(k))
        for k in {**x, **y}
        if x.get(k) != y.get(k) and k not in ("about", "reasons")
    }


def override(
    recipe: Part,
    # field -> value, a list for a tuple; method='package.module:Settings' exchanges the method
    **changes,
) -> Part:  # another recipe
    "The recipe with some fields changed; RecipeError for an unknown field or a wrong value."
    new: Any = recipe
    changes = {k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()}
    # with the old values of what both have from one base
    if isinstance(name := changes.get("method"), str):
        cls, old = settings_class(name), new.method
        shared = {
            f.name
            for base in cls.__mro__
            if is_dataclass(base) and isinstance(old, base)
            for f in fields(base)
        }
        changes["method"] = cls(**{name: getattr(old, name) for name in shared})
    if "method" in changes:
        new = replace(new, method=changes.pop("method"))
    known = flat_fields(new)
    for name in changes:
        if name not in known:
            raise RecipeError(f"a recipe has no field {name!r}; {did_you_mean(name, known)}")

    def changed(part):
        inside, whole = (
            {f.name: getattr(part, f.name) for f in fields(part)},
            getattr(part, "whole", ()),
        )
        return replace(
            part,
            **{
                k: changed(v) if is_dataclass(v) and k not in whole else changes.get(k, v)
                for k, v in inside.items()
            },
        )

    return checked(changed(new))


def override_known(
    recipe: Recipe,
    changes: Mapping[str, Any] | None,  # field -> value; None: no change
) -> Recipe:
    "The recipe with those of the changes whose field it has."
    known = flat_fields(recipe)
    return override(recipe, **{k: v for k, v in (changes or {}).items() if k in known})


def to_dict(
    recipe: Recipe,
) -> dict[str, Any]:  # plain data for recipe.json
    """A recipe as plain data, with its method by name: ours, or 'package.module:Class' of the
    settings.
    """
    cls = type(recipe.method)
    name = cls.name if METHODS.get(cls.name) is cls else full_name(cls)
    return asdict(recipe) | {"method": {"name": name} | asdict(recipe.method)}  # type: ignore[call-overload]


# of UberNCE, in runs that were stored before
FORMER_FORMS = dict(mean_log="supcon", log_sum="mil_nce")


def _part_from_dict(
    cls: Any,
    data: Any,
    name: str,  # of the part, for messages
    where: str,  # of the file, for messages
) -> Any:
    """A part of a recipe from plain data; a field that the file lacks takes its default.

    `RecipeError`.
    """
    if not isinstance(data, dict):
        raise RecipeError(f"{where}: {name} is not a set of fields; take a whole copy")
    if cls is None:  # the settings of a method, which the data name
        if "name" not in data:
            raise RecipeError(f'{where}: {name} lacks the field "name"; take a whole copy')
        cls, data = settings_class(data["name"]), {k: v for k, v in data.items() if k != "name"}
    kinds, known = get_type_hints(cls), {f.name: f for f in fields(cls)}
    for k in data:
        if k not in known:
            raise RecipeError(f"{where}: {name} has no field {k!r}; {did_you_mean(k, known)}")
    for k, f in known.items():
        if k not in data and f.default is MISSING and f.default_factory is MISSING:
            raise RecipeError(f"{where}: {name} lacks the field {k!r}; take a whole copy")

    def value(k, v):
        if is_dataclass(kinds[k]):
            return _part_from_dict(kinds[k], v, k, where)
        if k == "method" and "learning" in known:
            return _part_from_dict(None, v, k, where)
        if k == "form":
            return FORMER_FORMS.get(v, v)
        return tuple(v) if isinstance(v, list) else v

    return cls(**{k: value(k, v) for k, v in data.items()})


def from_dict(
    data: Any,  # from `to_dict`, e.g. read from recipe.json
    where: str = "recipe",  # the file, for messages
) -> Recipe:
    "A recipe from plain data; RecipeError for missing, unknown or wrong fields."
    try:
        return checked(_part_from_dict(Recipe, data, "the recipe", where))
    except RecipeError as e:
        raise RecipeError(str(e) if str(e).startswith(where) else f"{where}: {e}") from None
