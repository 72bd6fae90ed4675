"""What the parts of a training promise one another, as types: read this first.

Nothing here is a base class. A method, its settings, an encoder, a view, a miner or a protocol of
your own has the members below, lies in your package and is named `package.module:name`.

The way of a batch: a loader gives a `TrainingBatch` of bytes, each `ViewFunction` makes floats of
it, and the `Method` compares them and returns a loss. `MethodSettings` say what the method needs,
and a `Miner` may choose positives for it. An `EvaluationProtocol` then measures its `Encoder`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypedDict, runtime_checkable

if TYPE_CHECKING:
    from torch import Tensor


class TrainingBatch(TypedDict, total=False):
    """A batch: B videos, V clips of each, T frames of a clip, on the device but for `augment`.

    `data.views.Views` takes the bytes out and puts a float entry (B, V, 3, T, H, W) in for each
    view. A view that is none of these three stands under its own name, and the clips of a further
    group under `view_group`: take them with `ssl.memory.named_clips`.
    """

    # bytes, from the loader
    clips: Tensor  # (B, V, T, H, W, 3) uint8
    flow: Tensor  # likewise, pictures of flow; from `Views` float, as the other views
    augment: dict[str, Tensor]  # parameters of each augmentation, (B, V, ...)

    # views, from `Views`
    rgb: Tensor  # (B, V, 3, T, H, W) float
    residual: Tensor  # (B, V, 3, T, H, W) float

    # of each video, (B,) long
    label: Tensor  # class ids; -1 is unlabelled
    source: Tensor  # the recording it was cut from; -1 is unknown
    row: Tensor  # of the manifest
    index: Tensor  # position among the training videos, as a memory bank has it

    # from the loop
    step: int  # optimizer steps before this one
    part: int  # number of the batch within its step, with gradient accumulation
    epoch: int
    progress: float  # share of the training that is over, 0 .. 1


@runtime_checkable
class Encoder(Protocol):
    """A network that makes one feature of a clip: an `nn.Module`.

    Optional:

    - `tokens(x, keep=None)`: (B, N, D) tokens in place of their mean, for masked methods; `keep`,
      (B, n) long, are the indices of the visible ones. Position embeddings are those of the visible
      places. `vit_*` have it.
    - `tubelets`: the layer that makes the tokens, with `tubelet`, `places`, `shape(x)`,
      `coordinates(shape)` and `positions(shape, dim)` as `nets.backbones.Tubelets`; for masked
      methods.
    - `activation_checkpointing`: bool; True keeps the input of each block alone while training.
    """

    dim: int  # D, length of a feature

    def __call__(
        self,
        x: Tensor,  # (B, 3, T, H, W) float
    ) -> Tensor:  # (B, D)
        ...


@runtime_checkable
class Method(Protocol):
    """A paper: an `nn.Module`, made with `encoder=`, `view=`, `seed=` and its settings' fields.

    `state_dict()` holds all that changes. Chance comes from the seed and `batch['step']`.

    Optional:

    - `after_step(batch)`: follows each optimizer step, moves a momentum encoder, fills a queue.
    - `copies() -> Mapping[str, Sequence[nn.Module]]`: network -> modules that begin with the same
      weights, such as a momentum encoder. The parameters of each line up with those of the network,
      or with those of `nn.Sequential(encoder, projection)`. Training that starts from a run fills
      them, too; a copy that is not named here would keep its random weights.
    - `exported: str`: name of the submodule that is exported and measured; without it 'encoder'.
    - `heads() -> Mapping[str, nn.Module]`: further networks that evaluation needs.
    - `class_logs() -> Mapping[str, Tensor]`: numbers of an epoch for each class, for `mining.csv`.
    - `parameter_groups() -> list[dict]`: parameters with a rate of their own, as PyTorch's.
    """

    encoder: Any  # an `Encoder`

    def forward(
        self,
        batch: Any,  # a `TrainingBatch`
    ) -> tuple[Tensor | None, Mapping[str, Tensor]]:
        """Scalar loss in at least float32, and scalars to log.

        A loss of None takes no optimizer step this time; `after_step` follows all the same.
        """


class MethodSettings(Protocol):
    """What is decided about a method before it exists: a frozen dataclass, with defaults, no torch.

    Optional:

    - `clips: tuple[str, ...]`: what the V clips of a video are called, in their order.
    - `clip_groups: Mapping[str, ClipGroup]`: further clips, of a size of their own.
    - `needs_labels: bool`: must every training video have a label?
    - `views(view) -> tuple[str, ...]`: the views that it needs beside that of the encoder.
    - `networks(view) -> dict[str, str]`: argument of the method -> view, where it is built from
      several encoders; 'encoder' is the one that learns.
    - `refuse(recipe, videos)`: raises RecipeError for what cannot work.
    """

    name: ClassVar[str]  # 'infonce'
    method: ClassVar[str]  # its class: 'vssl_nb.methods.infonce:InfoNCE'


class ViewFunction(Protocol):
    """What an encoder sees of a clip: a function of float clips.

    Arguments after a `*` are its options, with their defaults. Optional: `inputs`, a tuple of what
    the loader must deliver for it, each a positional argument; without it `('clips',)`.
    """

    def __call__(
        self,
        clips: Tensor,  # (B, V, 3, T, H, W) in [0, 1], augmented
    ) -> Tensor:  # the same shape
        ...


@runtime_checkable
class Miner(Protocol):
    """Chooses positives among candidates: a class that takes `k` and `miner_options`.

    Optional: `searches_same_source`, True where candidates of the same recording may be taken.
    """

    def __call__(
        self,
        # view -> (B, N) similarity of each query with each candidate, the mining view first
        sims: Mapping[str, Tensor],
        excluded: Tensor,  # (B, N) bool: may not be taken
    ) -> Tensor:  # (B, N) bool
        ...


class EvaluationProtocol(Protocol):
    """How a video becomes one feature, and how two are compared.

    Its string says all of it, a line for each step; `measure.protocols.Protocol` has more fields.
    """

    name: str  # what tables call it
    clips: int  # windows per video
    length: int  # frames of a clip
    stride: int  # from one frame of a clip to the next
    size: int  # side of the square that the encoder sees, pixels
    centre: str  # which mean is subtracted
    metric: str  # how two videos are compared

    def __str__(self) -> str: ...
