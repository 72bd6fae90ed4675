"""Settings and recipes as plain data: overridden by name, kept as JSON, published for others.

A recipe is everything that decides a training, except the files. Only `runs.experiment` turns one
into objects. This module imports neither torch nor any method: `methods.recipes` publishes the
settings and recipes.
"""

import ast
import csv
import json
import re
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, fields, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_type_hints

from .fields import (
    Count,
    Index,
    NonNegative,
    Part,
    Positive,
    RecipeError,
    Seed,
    Settings,
    Share,
    checked,
)
from .names import PluginError, did_you_mean, full_name, look_up


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
    named = {}
    for field in text.split():
        name, _, value = field.partition("=")
        try:
            named[name] = ast.literal_eval(value)
        except (ValueError, SyntaxError):
            named[name] = value
    return named


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
        fastest = max(self.speeds) if self.motion == "speed" else 1
        return (self.length - 1) * self.stride * fastest + 1


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
    # what the weight decay becomes, along half a cosine; none: it stays as it is
    weight_decay_end: NonNegative | None = None
    sgd_momentum: Annotated[float, "[0, 1)"] = 0.9  # used by sgd and lars
    # used by adam and adamw: how slowly both averages follow the gradient
    betas: tuple[Annotated[float, "[0, 1)"], Annotated[float, "[0, 1)"]] = (0.9, 0.999)
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
    # 'cosine': epochs of linear climb; half of a cycle where it would fill the whole of it
    warmup: NonNegative = 0.0
    lr_floor: Share = 0.0  # 'cosine': the factor at its end
    # 'plateau': epochs without a lower loss before the rate falls to a tenth
    patience: Index = 50
    floor: Share = 0.01  # 'plateau': the factor never falls below this

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.weight_decay_end and not self.weight_decay:
            raise RecipeError(
                f"weight_decay_end={self.weight_decay_end} is reached from weight_decay=0.0 by no "
                "factor; give a weight_decay above 0, or leave weight_decay_end out"
            )

    @property
    def cycle(self) -> float:
        "Epochs of one cycle of the schedule."
        return self.epochs / self.cycles

    @property
    def shortened_warmup(self) -> float:
        """Epochs of linear climb as they are: a warm-up that would fill a cycle takes half of it,
        so that a recipe whose epochs were cut down for a trial still learns.
        """
        return self.warmup if self.warmup < self.cycle else self.cycle / 2


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
    # whose statistics: `batchnorm.group_batchnorm`
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
    def clip_sets(self) -> dict[str, "Recipe"]:
        "The recipe of each set of clips; `Views` makes `rgb_local` of the set 'local'."
        further: Mapping[str, ClipGroup] = getattr(self.method, "clip_groups", {})
        return {"": self} | {name: self._with_clips(group) for name, group in further.items()}

    def _with_clips(self, group: ClipGroup) -> "Recipe":
        "This recipe for further clips: of their own size, undisturbed."
        sampling = replace(
            self.sampling,
            clips=group.clips,
            length=group.length,
            stride=group.stride,
            same=0.0,
            motion="none",
            motion_clips=(),
        )
        augment = replace(self.augment, area=group.area, appearance="none", appearance_clips=())
        return replace(self, size=group.size, sampling=sampling, augment=augment)

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
            further = self.method.views(self.view)
            if not isinstance(further, (tuple, list)) or not all(
                isinstance(name, str) for name in further
            ):
                raise RecipeError(
                    f"{self.method.name}: views(view) gave {further!r}, not a tuple of names"
                )
            names += further
        return tuple(dict.fromkeys(names))

    @property
    def encoder_views(self) -> tuple[str, ...]:  # that of the recipe first
        "The views that the encoder looks at: all that no further network has to itself."
        others = {view for name, view in self.networks.items() if name != "encoder"}
        return tuple(view for view in self.views if view == self.view or view not in others)


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
    method = recipe.method
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

    unlabelled = [name for name, label in zip(videos.video, videos.label) if label < 0]
    if getattr(method, "needs_labels", False) and unlabelled:
        raise RecipeError(
            f"{videos.manifest}: {len(unlabelled)} of {len(videos.video)} training videos have no "
            f"label, such as {unlabelled[0]}; {method.name} needs them all: fill in the column "
            "label, or use another method"
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


def _known(
    name: str,  # a key of `known`, or 'package.module:name'
    known: Mapping[str, Any],
    kind: str,  # 'a method', for messages
) -> Any:
    "As `names.look_up`, with a RecipeError."
    try:
        return look_up(name, known, kind)
    except PluginError as e:
        raise RecipeError(str(e)) from None


def settings_class(
    name: str,  # a key of METHODS, or 'package.module:Class'
) -> type:  # a frozen dataclass
    "The settings of a method by name; RecipeError if they lack what a run needs of them."
    cls = _known(name, METHODS, "a method")
    if name in METHODS:
        return cls

    wrong = _unlike_settings(cls) or _unlike_fields(cls) or _unlike_clips(cls())
    if wrong:
        raise RecipeError(f"{name}: {wrong}")

    if not _read_back_alike(cls, name):
        raise RecipeError(
            f"{name}: its defaults are not the same when they are read back from recipe.json; "
            "use numbers, words, None and tuples of them"
        )
    return cls


def _unlike_settings(
    cls: Any,  # what another package names as its settings
) -> str:  # '' for none
    "Why a class cannot be the settings of a method."
    frozen = (
        isinstance(cls, type) and is_dataclass(cls) and cls.__dataclass_params__.frozen  # type: ignore[attr-defined]
    )
    if not frozen:
        return "is not a frozen dataclass; settings are plain data, `@dataclass(frozen=True)`"

    for word, meaning in (
        ("name", "what tables call it: name:ClassVar[str] = 'mine'"),
        ("method", "where its class is: method:ClassVar[str] = 'package.module:Class'"),
    ):
        if not isinstance(vars(cls).get(word), str):
            return f"does not say itself {meaning} (what it inherits would train another method)"

    name = getattr(cls, "name")
    if METHODS.get(name, cls) is not cls:
        return f"calls itself {name!r}, as a method of this library does; give it a name of its own"
    return ""


def _unlike_fields(
    cls: Any,  # a frozen dataclass
) -> str:  # '' for none
    "Why its fields cannot be told from those of a recipe, or overridden by name."
    taken = {f.name for part in (Recipe, Sampling, Augment, Learning) for f in fields(part)}
    for f in fields(cls):
        if f.name in ("name", "method"):
            return (
                f"{f.name} is a field, and every run could change it; write "
                f"{f.name}:ClassVar[str] = …"
            )
        if f.name in taken:
            return f"its field {f.name!r} is called like one of a recipe; call it otherwise"
        if f.default is MISSING and f.default_factory is MISSING:
            return f"its field {f.name!r} has no default; give it one"
    return ""


def _unlike_clips(
    settings: Any,  # with default values: what they say of clips may follow from their fields
) -> str:  # '' for none
    "Why the clips that settings name are none."
    groups = getattr(settings, "clip_groups", {})
    named_groups = isinstance(groups, Mapping) and all(
        str(name).isidentifier() and isinstance(group, ClipGroup) for name, group in groups.items()
    )
    if not named_groups:
        return f"clip_groups={groups!r} is not a dict of name -> ClipGroup"

    clips = getattr(settings, "clips", None)
    named_clips = isinstance(clips, tuple) and all(isinstance(clip, str) for clip in clips)
    if clips is not None and not named_clips:
        return f"clips={clips!r} is not a tuple of names, such as clips:ClassVar = ('one', 'two')"
    return ""


def _read_back_alike(cls: Any, name: str) -> bool:
    "Are the defaults of some settings the same when they come back from JSON?"
    written = json.dumps(asdict(checked(cls())))
    try:
        return _part_from_dict(cls, json.loads(written), "method", name) == cls()
    except (TypeError, NameError):
        return False


def find(
    name: str,  # of a published experiment: 'infonce-toy-rgb'; or 'package.module:name'
) -> Recipe:
    "The recipe of that name; RecipeError naming the nearest."
    recipe = _known(name, RECIPES, "a recipe")
    if not isinstance(recipe, Recipe):
        raise RecipeError(f"{name}: is a {type(recipe).__name__}, not a Recipe")
    if not re.fullmatch(r"\w[\w.+-]*", recipe.name):
        raise RecipeError(
            f"{name}: calls itself {recipe.name!r}, which is no name for a folder; use letters, "
            "digits, - and _"
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
        if _opened(part, f.name):
            flat |= vars(value)
        else:
            flat[f.name] = value
    return flat


def _opened(
    part: Any,  # a dataclass of dataclasses
    name: str,  # of a field
) -> bool:
    "Is the field a part whose own fields count? Those that a class lists in `whole` do not."
    return is_dataclass(getattr(part, name)) and name not in getattr(part, "whole", ())


def difference(
    a: Recipe,
    b: Recipe,
) -> dict[str, tuple[Any, Any]]:  # field -> (value in a, value in b)
    "The fields in which two recipes differ; `about` and `reasons`, for people, are none of them."
    x, y = ({"method": r.method.name} | flat_fields(r) for r in (a, b))
    differing = {}
    for name in {**x, **y}:
        if x.get(name) != y.get(name) and name not in ("about", "reasons"):
            differing[name] = (x.get(name), y.get(name))
    return differing


def override(
    recipe: Part,
    # field -> value, a list for a tuple; method='package.module:Settings' exchanges the method
    **changes,
) -> Part:  # another recipe
    "The recipe with some fields changed; RecipeError for an unknown field or a wrong value."
    new: Any = recipe
    changes = {k: tuple(v) if isinstance(v, list) else v for k, v in changes.items()}
    if isinstance(changes.get("method"), str):
        changes["method"] = _exchanged(new.method, changes["method"])
    if "method" in changes:
        new = replace(new, method=changes.pop("method"))

    known = flat_fields(new)
    for name in changes:
        if name not in known:
            raise RecipeError(f"a recipe has no field {name!r}; {did_you_mean(name, known)}")
    return checked(_with_fields(new, changes))


def _exchanged(
    settings: Any,  # of a method
    name: str,  # of other settings
) -> Any:
    "Other settings, with the values of the fields that both have from one base."
    cls = settings_class(name)
    bases = [b for b in cls.__mro__ if is_dataclass(b) and isinstance(settings, b)]
    shared = {f.name for base in bases for f in fields(base)}
    return cls(**{name: getattr(settings, name) for name in shared})


def _with_fields(
    part: Any,  # a recipe, or a part of one
    changes: Mapping[str, Any],  # field -> value, of this part or of others
) -> Any:
    "The part with those of the changes that are its own, or of its parts."
    values = {}
    for f in fields(part):
        value = getattr(part, f.name)
        if _opened(part, f.name):
            values[f.name] = _with_fields(value, changes)
        else:
            values[f.name] = changes.get(f.name, value)
    return replace(part, **values)


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


def _part_from_dict(
    cls: Any,  # of the part; None: the settings of a method, which the data name
    data: Any,
    name: str,  # of the part, for messages
    where: str,  # of the file, for messages
) -> Any:
    """A part of a recipe from plain data; a field that the file lacks takes its default.

    `RecipeError`.
    """
    if not isinstance(data, dict):
        raise RecipeError(f"{where}: {name} is not a set of fields; take a whole copy")
    if cls is None:
        if "name" not in data:
            raise RecipeError(f'{where}: {name} lacks the field "name"; take a whole copy')
        cls = settings_class(data["name"])
        data = {k: v for k, v in data.items() if k != "name"}

    kinds = get_type_hints(cls)
    known = {f.name: f for f in fields(cls)}
    for k in data:
        if k not in known:
            raise RecipeError(f"{where}: {name} has no field {k!r}; {did_you_mean(k, known)}")
    for k, f in known.items():
        if k not in data and f.default is MISSING and f.default_factory is MISSING:
            raise RecipeError(f"{where}: {name} lacks the field {k!r}; take a whole copy")

    values = {}
    for k, v in data.items():
        if is_dataclass(kinds[k]):
            v = _part_from_dict(kinds[k], v, k, where)
        elif k == "method" and "learning" in known:
            v = _part_from_dict(None, v, k, where)
        elif isinstance(v, list):
            v = tuple(v)
        values[k] = v
    return cls(**values)


def from_dict(
    data: Any,  # from `to_dict`, e.g. read from recipe.json
    where: str = "recipe",  # the file, for messages
) -> Recipe:
    "A recipe from plain data; RecipeError for missing, unknown or wrong fields."
    try:
        return checked(_part_from_dict(Recipe, data, "the recipe", where))
    except RecipeError as e:
        raise RecipeError(str(e) if str(e).startswith(where) else f"{where}: {e}") from None
