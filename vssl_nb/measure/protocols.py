"What a number was measured on, as an object that prints what it does"

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ..arguments import one_of, positive
from ..names import did_you_mean, error_in_words, look_up

# so that names and words of protocols are read without PyTorch
if TYPE_CHECKING:
    from ..data.manifest import Manifest

# The answers that a field of a protocol may have, and what a protocol prints for each.
WINDOWS = {
    "even": "spread evenly from the first frame to the last",
    "sliding": "as many as fit, the next starting half a clip later",
    "linspace": "around evenly spaced frames, rounded down",
    "middle": "one per video, from its middle",
    "sparse": "each an equal share of the video",
}
GALLERY = {
    "alike": "as in the query",
    "random": "one per video in the gallery, begun anywhere (drawn from the seed and the row)",
}
CROPS = {
    "centre": "the centred square",
    "three": "three squares side by side along the longer side",
    "five": "squares from the centre and the four corners",
    "ten": "squares from the centre and the four corners, each also mirrored",
    "processor": "as the processor of the encoder makes them",
}
CENTRE = {
    "gallery": "the mean of the gallery is subtracted from gallery and query; nothing is measured "
    "on the query set",
    "own": "gallery and query each lose their own mean, so the query set is used as a whole",
    "none": "no mean is subtracted",
}
FEATURE = {
    "pooled": "feature",
    "maps": "last feature maps, pooled by maxima over 2 x 2 pixels and flattened,",
}
SHORT = {
    "pad": "a shorter video is filled",
    "drop": "a video not longer than half a clip is left out, one shorter than a clip is filled",
}
PAD = {
    "first": "on the left with its first frame",
    "loop": "by starting again",
}
PICTURES = {
    "all": "all count",
    "flow": "flow has a picture less",
    "less": "the last frame is left out",
}
AVERAGE = {
    "features": "mean over its clips",
    "softmax": "mean of the probabilities of its clips",
    "logits": "mean of the scores of its clips, then made probabilities",
}
METRIC = {
    "cosine": "cosine",
    "match": "match probability of distributions: two consecutive clips make one (if their number "
    "is odd, all of them), ten points of each",
}
DTYPE = {
    "float32": "under autocast; the mean in float32",
    "bfloat16": "under autocast; the mean in float32",
}
CHOICES = {
    "windows": WINDOWS,
    "gallery": GALLERY,
    "crops": CROPS,
    "centre": CENTRE,
    "feature": FEATURE,
    "short": SHORT,
    "pad": PAD,
    "pictures": PICTURES,
    "average": AVERAGE,
    "metric": METRIC,
    "dtype": DTYPE,
}
# squares of one window
SQUARES = {"centre": 1, "processor": 1, "three": 3, "five": 5, "ten": 10}


@dataclass(frozen=True)
class Protocol:
    """How a video becomes one feature, or one answer of a classifier, and how two features are
    compared.
    """

    name: str = "clean"  # what tables call it; changes nothing
    clips: int = 10  # windows per video; used by windows 'even', 'linspace' and 'sparse'
    windows: str = "even"  # where they lie in time; this and the other words: one of CHOICES
    length: int = 16  # frames of a clip
    stride: int = 1  # frames from one frame of a clip to the next; not used by windows 'sparse'
    size: int = 112  # side of the square that the encoder sees, pixels
    crops: str = "centre"  # which squares of a frame
    # side of a square: pixels or share of the shorter side; None: all, of 'five', 'ten' 14/15 (b10:
    # 224/240)
    crop: int | float | None = None
    pad: str = "first"  # what fills a video shorter than a clip: 'first' or 'loop'
    # which pictures of a video count; 'less': not the last; 'flow': one less of flow
    pictures: str = "all"
    clip_norm: bool = False  # L2-normalise the feature of each clip before the mean over clips
    # what is averaged over clips; 'softmax' and 'logits' are of a classifier
    average: str = "features"
    centre: str = "gallery"  # which mean is subtracted
    metric: str = "cosine"  # how two videos are compared; 'match' needs a Gaussian head
    gallery: str = "alike"  # the clips of a gallery video
    jitter: float = 0.0  # probability, 0 to 1, that the colours of a video are changed
    feature: str = "pooled"  # what is taken from the encoder
    short: str = "pad"  # what becomes of short videos
    # query and gallery are cut to whole batches of so many videos; 1 cuts nothing
    batch_of: int = 1
    seed: int = 0  # of the random clip, the colour changes and the points of a Gaussian
    # of the encoder's forward pass, as published; 'bfloat16' also goes into the name
    dtype: str = "float32"

    def __post_init__(self) -> None:
        for field, answers in CHOICES.items():
            one_of(tuple(answers), **{field: getattr(self, field)})
        positive(
            clips=self.clips,
            length=self.length,
            stride=self.stride,
            size=self.size,
            batch_of=self.batch_of,
        )
        self._check_crop()
        if type(self.jitter) not in (int, float) or not 0 <= self.jitter <= 1:
            raise ValueError(f"jitter must be a probability, 0 to 1, not {self.jitter!r}")
        if type(self.seed) is not int or self.seed < 0:
            raise ValueError(f"seed must be a whole number of at least 0, not {self.seed!r}")

        # in a table another precision must not pass for the protocol itself
        plain = self.name.removesuffix(", bfloat16")
        name = plain if self.dtype == "float32" else f"{plain}, {self.dtype}"
        object.__setattr__(self, "name", name)

    def _check_crop(self) -> None:
        share = type(self.crop) is float and 0 < self.crop <= 1
        pixels = type(self.crop) is int and self.crop >= 1
        if self.crop is not None and not share and not pixels:
            raise ValueError(
                "crop must be a whole number of pixels, a share like 0.875, or None, "
                f"not {self.crop!r}"
            )
        if self.crops == "processor" and (self.crop is not None or self.jitter):
            raise ValueError(
                "crops='processor' leaves no room for crop and jitter; take crops='centre'"
            )

    @property
    def random(self) -> bool:
        return self.gallery == "random" or self.jitter > 0

    @property
    def side(self) -> int | float:  # of a square: pixels, or a share of the shorter side
        if self.crop is not None:
            return self.crop
        if self.crops in ("five", "ten"):
            return 14 / 15
        return 1.0

    def __str__(self) -> str:
        "A line for each step."
        treated = "treated alike" if self.gallery == "alike" else "not treated alike"
        lines = [
            f"protocol {self.name}: gallery and query are {treated}",
            f"  clips     {self._clips_in_words()}",
            f"  frames    {self._frames_in_words()}",
            f"  picture   {self._picture_in_words()}",
            f"  clip      {self._clip_in_words()}",
            f"  video     {self._video_in_words()}",
        ]
        if self.dtype != "float32":
            lines.append(f"  precision {self.dtype}, {DTYPE[self.dtype]}")
        if self.batch_of > 1:
            lines.append(
                f"  counted   whole batches of {self.batch_of} videos, in the order of the "
                "manifest; the rest of query and gallery is dropped"
            )
        if self.average == "features":
            lines.append(f"  centring  {CENTRE[self.centre]}")
            lines.append(f"  metric    {METRIC[self.metric]}")
        return "\n".join(lines)

    @property
    def _several_windows(self) -> bool:
        return self.windows == "sliding" or self.windows != "middle" and self.clips > 1

    def _clips_in_words(self) -> str:
        if self.windows == "sparse" and self.clips == 1:
            text = "one per video, as long as the video"
        elif not self._several_windows:
            text = WINDOWS["middle"]
        elif self.windows == "sliding":
            text = WINDOWS["sliding"]
        else:
            text = f"{self.clips} per video, {WINDOWS[self.windows]}"
        if self.gallery != "alike":
            text += f"; {GALLERY[self.gallery]}, seed {self.seed}"
        return text

    def _frames_in_words(self) -> str:
        if self.windows == "sparse":
            text = f"{self.length} per clip, spread evenly; a shorter video repeats frames"
        else:
            stride = "every frame" if self.stride == 1 else f"one in {self.stride}"
            text = f"{self.length} per clip, {stride}; {SHORT[self.short]} {PAD[self.pad]}"
        if self.pictures != "all":
            text += f"; {PICTURES[self.pictures]}"
        return text

    def _picture_in_words(self) -> str:
        size = f"{self.size} x {self.size}"
        if self.crops == "processor":
            return f"{CROPS['processor']}, {size}"
        flip = "mirrored as said" if self.crops == "ten" else "no flip"
        return f"{self._squares_in_words()}, scaled to {size}; {flip}, {self._colours_in_words()}"

    def _squares_in_words(self) -> str:
        if self.crops == "centre" and self.crop is None:
            return "the largest centred square"
        side = self.side
        of_side = f"{side} px" if type(side) is int else f"{100 * side:.4g} % of the largest"
        comma = "" if self.crops == "centre" else ","
        return f"{CROPS[self.crops]}{comma} of {of_side}"

    def _colours_in_words(self) -> str:
        if not self.jitter:
            return "no change of colour"
        return (
            f"colours changed with probability {self.jitter:g} (drawn from seed {self.seed}, row "
            "and square; alike in all clips of a video)"
        )

    def _clip_in_words(self) -> str:
        length = "brought to length 1" if self.clip_norm else "of any length"
        return f"{FEATURE[self.feature]} of the encoder in eval mode, {length}"

    def _video_in_words(self) -> str:
        if self._several_windows or SQUARES[self.crops] > 1:
            return AVERAGE[self.average]
        if self.average == "features":
            return "its one clip"
        return AVERAGE[self.average].replace("clips", "one clip")


# `clean` is ours: the defaults. The others are the published measurements; b7 to b11 are the notes
# on the released code in nbs/dossiers/released.ipynb.
PROTOCOLS = {
    p.name: p
    for p in (
        Protocol("clean"),
        Protocol(
            "coclr_official",
            windows="sliding",  # of the query (b7)
            gallery="random",  # one clip (b10: 3)
            length=32,
            size=128,
            crop=224 / 240,  # there bicubic (b10: 2)
            jitter=0.3,  # drawn once per video (b10: 2)
            clip_norm=True,  # b10: 1
            centre="own",  # b10: 4
            short="drop",  # b7; 6: 7 + 7 videos of HMDB51, none of UCF101
            pictures="flow",  # has n-1 pictures (b7)
        ),
        Protocol(
            "iic_official",  # b11
            windows="linspace",  # linspace(8, m-8, 10)
            pictures="less",  # of m = n-1 files
            length=16,
            size=112,
            crop=112 / 128,
            feature="maps",  # conv5 -> MaxPool3d(1,2,2), mean over clips, cosine distance
            centre="none",
            batch_of=8,  # with drop_last
        ),
        Protocol(
            "rspnet",  # b10, last paragraph: the largest centred square, pooled features averaged
            clips=10,
            length=16,
            size=112,
            pad="loop",
            centre="none",
        ),
        Protocol(
            "moquad",  # open: crop, metric, centring
            clips=10,  # uniformly, averaged (4.2)
            length=16,  # 4.1
            size=224,  # 4.1
            pad="loop",  # as RSPNet
            centre="none",
        ),
        Protocol(
            "provico",  # open: the crop
            clips=10,  # appendix C.2 and D.1
            length=16,  # 4.2
            size=112,  # 4.2
            centre="none",
            metric="match",  # appendix C.2 and D.1
        ),
    )
}


def protocol(
    name: str | Protocol = "clean",  # one of PROTOCOLS, or 'package.module:name' of one's own
    **fields: Any,  # what to change: length, stride, size, ...
) -> Protocol:
    "A protocol by name, with some of its fields changed; ValueError names the nearest."
    known = [*Protocol.__dataclass_fields__]
    for field in fields:
        if field not in known:
            raise ValueError(
                f"{field!r} is not a field of a protocol; {did_you_mean(field, known)}"
            )
    if isinstance(name, Protocol):
        return replace(name, **fields)

    p = _resolved(name)
    # one's own that took no name of its own must not pass for one of ours in a table
    if name not in PROTOCOLS and p.name in PROTOCOLS:
        p = replace(p, name=name)
    return replace(p, **fields)


def _resolved(
    name: str,  # as of `protocol`
) -> Protocol:
    p = look_up(name, PROTOCOLS, "a protocol")
    if not isinstance(p, Protocol) and callable(p):
        try:
            p = p()
        except (Exception, SystemExit) as e:
            raise ValueError(
                f"{name}: name a Protocol, or a function that returns one without arguments; this "
                f"one fails: {error_in_words(e)}"
            ) from e
    if not isinstance(p, Protocol):
        raise ValueError(
            f"{name}: is {type(p).__name__}, not a Protocol or a function that returns one"
        )
    return p


def pictures(
    protocol: Protocol,
    frames: int,  # of the video
    flow: bool = False,  # is the video seen as flow?
) -> int:
    "How many pictures of a video count under a protocol."
    last_left_out = protocol.pictures == "less" or flow and protocol.pictures == "flow"
    return max(frames - 1, 1) if last_left_out else max(frames, 1)


def counted(
    manifest: "Manifest",
    part: str = "test",  # 'train', 'test' or 'all'
    split: int = 1,  # 1, 2 or 3
    protocol: Protocol = PROTOCOLS["clean"],
    flow: bool = False,  # are the videos seen as flow?
) -> tuple[list[int], dict[int, str]]:  # rows; row -> why it is not counted
    """The videos of a part of a split that a protocol looks at; ManifestError where the split has
    none.
    """
    rows = manifest.select(part, split)
    left_out: dict[int, str] = {}
    if protocol.short == "drop":  # b7
        half = protocol.length // 2 * protocol.stride + 1
        for r in rows:
            if pictures(protocol, manifest.rows[r].frames, flow) <= half:
                left_out[r] = "not longer than half a clip, which this protocol leaves out"
        rows = [r for r in rows if r not in left_out]

    if part != "all":  # batches are of a part
        whole = len(rows) - len(rows) % protocol.batch_of
        for r in rows[whole:]:
            left_out[r] = (
                f"in the last, incomplete batch of {protocol.batch_of}, which this protocol leaves "
                "out"
            )
        rows = rows[:whole]
    if not rows:
        raise ValueError(
            f"{manifest.path}: no video is left in '{part}' of split {split} under the protocol "
            f"{protocol.name}: {next(iter(left_out.values()))}"
        )
    return rows, left_out
