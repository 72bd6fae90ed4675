"""ProViCo: settings and recipes."""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

from ...fields import Count, NonNegative, Positive, Settings, Share
from ...config import Recipe, TrainingVideos, find, override, publish
from .iic import IIC_CROP
from .refusals import refuse_batches


@dataclass(frozen=True, kw_only=True)
class ProViCoSettings(Settings):
    "Videos are mixtures of Gaussians; those that overlap are positives, unsure pairs count less."

    mixture: Count = 2  # clips of a video (section 4.2)
    samples: Annotated[int, "[2, inf)"] = 10  # of each distribution (section 4.2)
    # of one Gaussian (Eq. 4), or of the mixture (Eq. 3)
    sample_from: Literal["moments", "mixture"] = "moments"
    # compare a sample with itself, too: all K^2 pairs, as printed (Eqs. 6 and 9); False: ours
    self_pairs: bool = True
    # between videos (Eq. 6; appendix B)
    distance: Literal["bhattacharyya", "euclidean", "jensen_shannon", "wasserstein"] = (
        "bhattacharyya"
    )
    # nearer than this is a positive (section 4.2); none: than the mean video from itself
    # (appendix Eq. 9)
    threshold: Positive | None = 0.15
    # share of the training without mining, at the beginning (appendix C.1: 30 of 200 epochs)
    instance_stage: Share = 0.15
    beta: NonNegative = 1e-4  # weight of the KL divergence (Eq. 12; section 4.2)
    # sigma^2 of Eq. 10; mean: geometric mean over the D directions (appendix A); total: D times
    # that, which fits table 4 and appendix table 2 better; none: no Eq. 10, so all pairs weigh the
    # same (ours)
    doubt: Literal["mean", "total", "none"] = "total"
    # D sigma^2 at the beginning; none: as the head has it, 0.2; open in the paper
    variance: Positive | None = None
    balanced: bool = False  # positives and negatives weigh the same; open in the paper
    clamp: Positive | None = 15.0  # log-variances stay within plus and minus this; ours
    dim: Count = 512  # of the distributions; open in the paper
    dim_hidden: Count | None = None  # the Gaussian head has none
    head: str = "gaussian"  # a name of `nets.heads.HEADS`, or 'package.module:name'
    name: ClassVar[str] = "provico"
    method: ClassVar[str] = "vssl_nb.methods.provico:ProViCo"

    @property
    def clips(self) -> tuple[str, ...]:
        return tuple(str(n + 1) for n in range(self.mixture))

    def refuse(self, recipe: Recipe, videos: TrainingVideos) -> None:
        "A video is compared with others, of the same batch. `RecipeError`."
        refuse_batches(recipe)


_PAPER = override(
    find("infonce-ucf101-rgb"),
    method=ProViCoSettings(),
    # tables 1 to 3: 20.2 M parameters, which this network has with 400 classes
    backbone="r3d18_slow",
    # section 4.2
    size=112,
    length=16,
    stride=1,
    last="all",
    same=0.0,
    # section 4.2: random cropping and nothing else; as IIC crops, from frames of 128 x 171
    area=(IIC_CROP, IIC_CROP),
    aspect=(1.0, 1.0),
    colour="all",
    crop="torchvision",
    flip=0.0,
    jitter=0.0,
    grey=0.0,
    grey_mode="clip",
    blur=0.0,
    # section 4.2
    lr=1e-4,
    batch=96,
    epochs=200,
    schedule="cosine",
    drops=(),
    warmup=20.0,
    weight_decay=0.0,  # none is said
)

publish(
    ProViCoSettings,
    replace(
        _PAPER,
        name="provico-ucf101-r3d18",
        about="ProViCo on UCF101 with R3D-18 (paper, tables 2 to 4)",
    ),
    replace(
        _PAPER,
        name="provico-ucf101-r2plus1d18",
        about="ProViCo on UCF101 with R(2+1)D-18 (paper, table 2, appendix tables 1 to 3)",
        backbone="r2plus1d18",
    ),
    replace(
        _PAPER,
        name="provico-k400-r3d18",
        about="ProViCo on Kinetics-400 with R3D-18 (paper, tables 1 to 3)",
        dataset="Kinetics-400",
    ),
    replace(
        _PAPER,
        name="provico-k400-r2plus1d18",
        about="ProViCo on Kinetics-400 with R(2+1)D-18 (paper, tables 1 and 2)",
        dataset="Kinetics-400",
        backbone="r2plus1d18",
    ),
    override(
        _PAPER,
        name="provico-ucf101-r3d50",
        about="ProViCo on UCF101 with R3D-50 (paper, table 2)",
        # table 2
        backbone="r3d50_cvrl",
        size=224,
        batch=512,
        area=(224 * 224 / (256 * 342),) * 2,  # the same share; open
    ),
    override(
        find("infonce-toy-residual"),
        name="provico-toy",
        about="ProViCo on the frame differences of the toy videos; two minutes on one core",
        # numbers: ours
        epochs=12,
        weight_decay=0.0,
        method=ProViCoSettings(
            dim=64,
            instance_stage=0.25,
            threshold=None,
            doubt="total",
            variance=1.0,
            self_pairs=False,
        ),
    ),
)
