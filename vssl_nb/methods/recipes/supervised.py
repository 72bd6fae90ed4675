"""A classifier as a method: settings."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from ...fields import Count, Index, NonNegative, Settings
from ...config import publish


@dataclass(frozen=True, kw_only=True)
class SupervisedSettings(Settings):
    "A linear classifier on an encoder."

    # 'head': the encoder is frozen; 'all': fine-tuning, or from scratch, as the encoder's weights
    # decide
    learns: Literal["all", "head"] = "all"
    normalise: bool = False  # features to length 1 before the head
    batchnorm: bool = False  # BatchNorm between feature and head
    # first weights of the layer: N(0, 0.01) (released code b10), or PyTorch's default (IIC: b11)
    head_init: Literal["normal", "torch"] = "normal"
    dropout: Annotated[float, "[0, 1)"] = 0.0  # probability that a feature is set to 0 in training
    # clips of one Gaussian, for an encoder with such a head; 0: the classifier sees features
    mixture: Index = 0
    samples: Count = 10  # embeddings that the classifier sees of each Gaussian
    # learning rate of the encoder, if it learns; `lr` is that of the head
    lr_encoder: NonNegative = 1e-4
    # rate of each block of the encoder, in units of that of the next; the head and the last
    # normalisation have the whole rate (VideoMAE)
    layer_decay: Annotated[float, "(0, 1]"] = 1.0
    name: ClassVar[str] = "supervised"
    method: ClassVar[str] = "vssl_nb.methods.supervised:Classifier"
    needs_labels: ClassVar[bool] = True

    def networks(self, view: str) -> dict[str, str]:
        return {"encoder": view} | ({"gaussian": view} if self.mixture else {})

    def make_network(
        self,
        name: str,  # 'gaussian'
        encoder: Any,  # nn.Module with `dim`
    ) -> Any:  # nn.Module
        "A new Gaussian head, where none comes from a run."
        from ...nets.heads import GaussianHead  # PyTorch is needed here alone

        return GaussianHead(encoder.dim)


publish(SupervisedSettings)
