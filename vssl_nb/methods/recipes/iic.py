"""IIC: settings and recipes, those of CPR on IIC included."""

from collections import Counter
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from ...config import Augment, Learning, Recipe, Sampling, TrainingVideos, find, override, publish
from ...fields import Count, Index, Positive, RecipeError, Settings
from .cpr import cascade_options
from .refusals import refuse_groups


@dataclass(frozen=True, kw_only=True)
class IICSettings(Settings):
    "Two views through one network, memory banks, and broken clips as negatives."

    # beside the recipe's `view`, whose clips are broken; none: each clip against rows of its view
    second_view: str | None = "residual"
    # how a clip is broken (b11; patches, reverse: ours); 'sampled': it is a clip of its own, which
    # `motion` of the sampling disturbs; none: nowhere
    intra: Literal["repeat", "shuffle", "patches", "reverse", "sampled"] | None = "shuffle"
    negatives: Count = 1024  # rows of the banks drawn for each clip (b11)
    temperature: Positive = 0.07  # of the softmax (b11)
    bank_momentum: Annotated[float, "[0, 1)"] = 0.5  # of a row (b11)
    bank_start: Literal["uniform", "sphere"] = "uniform"  # rows before their video came (b11)
    normalise: bool = False  # are features compared at length 1? released: no (b11)
    # do today's broken clips get a gradient? released: only old rows count (b11)
    intra_gradient: bool = False
    mask_own: bool = False  # where the own row is drawn again, is it left out? released: no (b11)
    miner: str | None = None  # none: IIC; a name of `ssl.mining.MINERS`, or 'package.module:name'
    miner_options: tuple[str, ...] = ()  # further arguments of the miner, such as 'stages=7'
    # positives mined; several numbers: in equal parts of the training
    topk: tuple[Index, ...] = (5,)
    # clips of one recording, with a miner
    same_source: Literal["negative", "positive", "ignored"] = "negative"
    # a name of `nets.heads.HEADS`; none: the feature itself is compared (b11)
    head: str | None = None
    dim: Count = 128  # of the head
    dim_hidden: Count | None = None  # of the head
    # whose statistics BatchNorm takes: `batchnorm.group_batchnorm`
    bn: Literal["sync", "split"] = "sync"
    groups: Count | None = None  # BatchNorm groups over all processes; none: one in each process
    name: ClassVar[str] = "iic"
    method: ClassVar[str] = "vssl_nb.methods.iic:IIC"

    @property
    def clips(self) -> tuple[str, ...]:  # 'n': the own negative, where it is sampled
        return ("x", "n") if self.intra == "sampled" else ("x",)

    def views(self, view: str) -> tuple[str, ...]:
        return (view,) if self.second_view is None else (view, self.second_view)

    def refuse_fields(
        self,
        view: str,  # of the recipe
    ) -> None:
        "Refuse fields that go together in no way. `RecipeError`."
        if self.second_view == view:
            raise RecipeError(
                f"view and second_view are both {view!r}: IIC compares two views of a clip"
            )
        if "intra" in (view, self.second_view):
            raise RecipeError("'intra' is what the broken clips are called here; rename the view")
        if self.miner is None and self.same_source != "negative":
            raise RecipeError(
                f"same_source={self.same_source!r} needs a miner: without one the own row is the "
                "only positive"
            )
        if not self.topk:
            raise RecipeError("topk is empty; give a number for each part of the training")

    def refuse_sampling(self, recipe: Recipe) -> None:
        "An own negative that is sampled, and no other clip, has another motion. `RecipeError`."
        motion, clips = recipe.sampling.motion, recipe.sampling.motion_clips
        is_disturbed = motion != "none" and clips == (1,)
        if self.intra == "sampled" and not is_disturbed:
            raise RecipeError(
                f"intra='sampled' with motion={motion!r}, motion_clips={clips}: the second clip is "
                "the own negative and must have another motion; use motion='speed' and "
                "motion_clips=(1,)"
            )

    def refuse(self, recipe: Recipe, videos: TrainingVideos) -> None:
        "Two views, frames to break, groups that fit, and enough to mine from. `RecipeError`."
        self.refuse_fields(recipe.view)
        if self.intra == "shuffle" and recipe.sampling.length < 4:
            raise RecipeError(
                f"length={recipe.sampling.length} has no four parts to shuffle; use "
                "intra='repeat', or length=4 or more"
            )
        self.refuse_sampling(recipe)
        refuse_groups(self.groups, recipe)

        siblings = max(Counter(videos.source).values())
        N = len(videos.source)
        if self.miner is not None and max(self.topk) > N - siblings:
            raise RecipeError(
                f"topk={self.topk} is too many: of {N} training videos up to {siblings} share the "
                "source of the query, and these are not searched; lower topk"
            )


IIC_CROP = 112 * 112 / (128 * 171)  # b11: a random square of 112 px from frames of 128 x 171

_ucf101 = Recipe(
    name="iic-ucf101-residual",
    about="IIC on UCF101: frames, their differences, shuffled clips (released code); README: 34.6 "
    "% R@1",
    dataset="UCF101",
    test_clips=10,  # README: 10 clips of a video
    view="rgb",
    residual="wrapped",
    normalisation="none",  # b11
    # b11: nothing is mirrored or coloured
    flow_flip="released",
    flow_colour="none",
    backbone="r3d18_iic",
    size=112,  # b11
    # b11
    sampling=Sampling(clips=1, length=16, stride=1, pad="first", last="released", same=0.0),
    augment=Augment(
        # b11
        area=(IIC_CROP, IIC_CROP),
        aspect=(1.0, 1.0),
        crop="torchvision",
        # no colour
        flip=0.0,
        jitter=0.0,
        brightness=0.0,
        contrast=0.0,
        saturation=0.0,
        hue=0.0,
        grey=0.0,
        blur=0.0,
    ),
    method=IICSettings(),  # b11, as each of its fields
    # b11
    learning=Learning(
        optimizer="sgd",
        lr=1e-2,
        weight_decay=1e-4,
        sgd_momentum=0.9,
        batch=16,
        epochs=240,
        schedule="steps",
        drops=(45.0, 90.0, 125.0, 160.0),
        gamma=0.2,
    ),
)

_toy = override(
    find("infonce-toy-rgb"),
    name="iic-toy",
    about="IIC on the frames and the frame differences of the toy videos; about a minute on one "
    "core",
    clips=1,
    # not as released: length 1, a gradient to broken clips, the own row left out
    method=IICSettings(
        negatives=256, temperature=0.1, normalise=True, intra_gradient=True, mask_own=True
    ),
)

# CPR, table 3: 5 cycles; their length is ours: that of IIC's training
_CYCLES: dict[str, Any] = dict(epochs=5 * 240, cycles=5)

# CPR, section 4.2: 7 stages, ratio 0.5
_CASCADE: dict[str, Any] = cascade_options(7, 0.5)

publish(
    IICSettings,
    _ucf101,
    override(
        _ucf101,
        name="iic-ucf101-residual-repeat",
        about="IIC on UCF101: frames, their differences, frozen clips (released code); the "
        "released weights",
        intra="repeat",
    ),
    override(
        _ucf101,
        name="iic-ucf101-flow-u",
        about="IIC on UCF101: frames, horizontal flow, frozen clips (released code); README: 41.8 "
        "% R@1",
        second_view="flow_u",
        intra="repeat",
    ),
    override(
        _ucf101,
        name="iic-ucf101-flow",
        about="IIC on UCF101: frames, vertical flow, shuffled clips (released code); README: 42.4 "
        "% R@1",
        second_view="flow_v",
    ),
    override(
        _ucf101,
        name="iic-cpr-ucf101-residual",
        about="CPR on IIC: 5 cycles, in which 1 to 5 positives are mined; paper: 46.2 % R@1",
        topk=(1, 2, 3, 4, 5),
        **_CYCLES,
        **_CASCADE,
    ),
    override(
        _ucf101,
        name="iic-cpr-ucf101-residual-fixed",
        about="CPR on IIC: as long, 5 positives throughout; paper: 36.2 % R@1",
        topk=(5,),
        **_CYCLES,
        **_CASCADE,
    ),
    _toy,
    override(
        _toy,
        name="iic-cpr-toy",
        about="CPR on IIC on the toy videos: 1 to 5 positives",
        topk=(1, 2, 3, 4, 5),
        **cascade_options(3, 0.5),
    ),
)
