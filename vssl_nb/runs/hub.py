"""Encoders of other libraries by name: `hf:NAME` (transformers), `timm:NAME`, `torchvision:NAME`;
or a folder; `published:NAME` with weights from the Python index.

A model of pictures is applied to each frame; `NAME@spread` and `NAME@both` choose what becomes of
the frames in time.
"""

import contextlib
import importlib
import inspect
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from ..extras import MissingPackage
from ..names import did_you_mean
from .published_weights import ARCHITECTURES, published_network
from ..training.checkpoints import CheckpointError


def _mean(
    x: Tensor,  # (B, T, D)
) -> Tensor:  # (B, D)
    return x.mean(1)


def _spread(
    x: Tensor,  # (B, T, D)
) -> Tensor:  # (B, D)
    return x.std(1, correction=0)


def _mean_and_spread(
    x: Tensor,  # (B, T, D)
) -> Tensor:  # (B, 2D)
    return torch.cat([_mean(x), _spread(x)], 1)


# what a model of pictures makes of the features of a clip's frames: their mean, which holds what is
# seen, their standard deviation over time, which holds what changes, or one beside the other
TIME: Mapping[str, Callable[[Tensor], Tensor]] = {
    "mean": _mean,
    "spread": _spread,
    "both": _mean_and_spread,
}
# the clip of a model of pictures: eight frames of the whole video, as it was measured on JHMDB
# (benchmarks/published.py); where windows slide over a video, every second frame of 16
PICTURES_OF_A_VIDEO: Mapping[str, Any] = {
    "length": 8,
    "stride": 2,
    "clips": 1,
    "windows": "sparse",
}


@dataclass
class FramesOf:
    "The processor of a model, as it makes the frames of one video."

    processor: Callable  # of transformers, torchvision or timm
    # 'video' and 'image': of transformers; 'clip' and 'frame': of torchvision; 'picture': of timm
    kind: str

    def __call__(
        self,
        frames: Tensor,  # (F, H, W, 3) uint8
    ) -> Tensor:  # (F, 3, h, w) float32
        "Scaled, cut and normalised by the processor."
        if self.kind == "picture":
            return torch.stack([self.processor(Image.fromarray(x)) for x in frames.numpy()])
        x = frames.permute(0, 3, 1, 2)
        if self.kind == "clip":
            return self.processor(x).transpose(0, 1)
        if self.kind == "frame":
            return self.processor(x)
        if self.kind == "video":
            made = self.processor(x, return_tensors="pt", do_sample_frames=False)
        else:
            made = self.processor(list(x), return_tensors="pt", input_data_format="channels_first")
        pixels = next(v for k, v in made.items() if k.startswith("pixel_values"))
        return pixels if pixels.ndim == 4 else pixels[0]


class HubEncoder(nn.Module):
    "A model of another library as an encoder of the clips that its own processor makes."

    def __init__(
        self,
        name: str,  # by which it was loaded
        model: nn.Module,
        prepare: FramesOf,
        build: Callable[[], nn.Module],  # makes such a model with random weights
        # argument of a model of transformers; '': the model takes (B, 3, T, H, W)
        takes: str = "",
        frames: int | None = None,  # of a clip; None: an image model, applied to each frame
        fixed: bool = False,  # no other number of frames
        tubelet: int = 1,  # frames of a token
        time: str = "mean",  # of an image model: of `TIME`
    ):
        super().__init__()
        self.model = model.eval().requires_grad_(False)
        self.prepare = prepare
        self.takes = takes
        self.frames = frames
        self.fixed = fixed
        self.tubelet = tubelet
        self.time = time
        # no part of a fingerprint: a folder may be moved
        self._name = name
        self._build = build
        # the predictor of V-JEPA 2 is of no use here
        self._options: dict[str, Any] = {}
        if "skip_predictor" in inspect.signature(model.forward).parameters:
            self._options["skip_predictor"] = True

    def rename(self, name: str) -> None:
        "Another name, for tables and messages; the features stay what they are."
        self._name = name

    def extra_repr(self) -> str:
        "The processor, so that another one makes other features."
        processor = str(self.prepare)
        # features that were kept before there was a choice are means
        return processor if self.time == "mean" else f"{processor}, {self.time} over time"

    def _check_length(
        self,
        length: int,  # frames of a clip
    ) -> None:
        if self.fixed and length != self.frames:
            raise CheckpointError(
                f"{self._name}: takes clips of {self.frames} frames, not of {length}; leave length "
                f"out, or make it {self.frames}"
            )
        if length % self.tubelet:
            longer = length + -length % self.tubelet
            raise CheckpointError(
                f"{self._name}: has {self.tubelet} frames in a token, and length={length} is no "
                f"multiple of that; use length={longer}"
            )

    def _read(
        self,
        x: Tensor,  # as of `forward`
    ) -> tuple[Tensor, Tensor | None]:  # (B, D); tokens, see below
        B, T = len(x), x.shape[2]
        self._check_length(T)
        if self.frames is None:
            x = x.transpose(1, 2).flatten(0, 1)
        elif self.takes:
            x = x.transpose(1, 2)
        if self.takes:
            y = self.model(**{self.takes: x}, **self._options)
        else:
            y = self.model(x, **self._options)

        tokens: Any = getattr(y, "last_hidden_state", None)
        pooled: Any = y if isinstance(y, Tensor) else getattr(y, "pooler_output", None)
        # convolutional
        if tokens is not None and tokens.ndim == 4:
            tokens = tokens.flatten(2).transpose(1, 2)
        pooled = tokens.mean(1) if pooled is None else pooled.flatten(1)
        if self.frames is not None:
            return pooled, tokens
        pooled = TIME[self.time](pooled.unflatten(0, (B, T)))
        if tokens is not None:
            tokens = tokens.unflatten(0, (B, T)).flatten(1, 2)
        return pooled, tokens

    def forward(
        self,
        x: Tensor,  # (B, 3, T, H, W) as `prepare` makes frames
    ) -> Tensor:  # (B, D)
        """The model's pooled output, else the mean of its tokens; of an image model, their mean or
        spread over the frames, or both.
        """
        pooled, _ = self._read(x)
        return pooled

    def tokens(
        self,
        x: Tensor,  # (B, 3, T, H, W)
    ) -> Tensor:  # (B, N, D)
        "All tokens of the last layer; of an image model, those of all frames."
        _, tokens = self._read(x)
        if tokens is None:
            raise CheckpointError(f"{self._name}: gives no tokens; take a model of transformers")
        return tokens

    def untrained(self, seed: int) -> "HubEncoder":
        "The same network with random weights."
        with torch.random.fork_rng():  # these libraries draw from the global generator
            torch.manual_seed(seed)
            model = self._build()
        return HubEncoder(
            self._name,
            model,
            self.prepare,
            self._build,
            self.takes,
            self.frames,
            self.fixed,
            self.tubelet,
            self.time,
        )

    def about(self) -> dict[str, Any]:  # as the metadata of an encoder's file
        "The clips that it takes. `CheckpointError` where the processor cuts no squares."
        height, width = self.prepare(torch.zeros(2, 60, 80, 3, dtype=torch.uint8)).shape[2:]
        if height != width:
            raise CheckpointError(
                f"{self._name}: its processor makes {width} x {height} of 80 x 60 px, and clips "
                "are squares here; give it a crop_size, or a size with height and width"
            )
        about = {
            "backbone": self._name,
            "view": "rgb",
            "length": self.frames or 16,
            "stride": 1,
            "size": height,
            "crops": "processor",
        }
        if self.frames is None:
            about |= PICTURES_OF_A_VIDEO
        # of protocols that cut otherwise
        for key, attributes in (("mean", ("mean", "image_mean")), ("std", ("std", "image_std"))):
            for attribute in attributes:
                value = getattr(self.prepare.processor, attribute, None)
                if value is not None:
                    about[key] = list(value)
        return about


# --- what the loaders share


def fetch_folder(
    name,  # a folder, or 'owner/name' on the Hub
    files: list[str],  # patterns of the files to fetch
) -> Path:
    "A folder as it is, or what the Hub has under that name. `CheckpointError`."
    if Path(name).is_dir():
        return Path(name)
    if Path(name).is_file() or str(name).count("/") != 1 or str(name)[0] in "./~":
        raise CheckpointError(
            f"{name}: is neither a folder nor a name on the Hub, owner/name; give one"
        )
    # optional: all but the Hub works without it
    try:
        hub = importlib.import_module("huggingface_hub")
    except ImportError as e:
        raise CheckpointError(
            f"{name}: huggingface_hub is not installed; run pip install huggingface_hub, or give "
            "the folder of an encoder"
        ) from e
    try:
        return Path(hub.snapshot_download(str(name), allow_patterns=files))
    except Exception as e:  # its own errors: no such name, no network, not allowed
        raise CheckpointError(
            f"{name}: there is no such folder here, and it cannot be had from the Hub "
            f"({type(e).__name__}); check the name and the connection"
        ) from e


def _reason(e: Exception) -> str:  # one line of at most 200 letters
    return " ".join(str(e).split())[:200] or type(e).__name__


def _library(
    name: str,  # of an encoder, for the message
    library: str,
    extra: str,  # of this package, which brings the library
) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as e:
        raise CheckpointError(
            f"{name}: {library} is not installed ({e}); run pip install 'vssl_nb[{extra}]'"
        ) from e


# --- transformers


@contextlib.contextmanager
def _quiet(
    tf: Any,  # transformers
) -> Iterator[None]:
    "Without its bars and warnings: what matters of them becomes an error here."
    level = tf.logging.get_verbosity()
    bars = tf.logging.is_progress_bar_enabled()
    tf.logging.set_verbosity(50)
    tf.logging.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        tf.logging.set_verbosity(level)
        if bars:
            tf.logging.enable_progress_bar()


# of every `from_pretrained`: neither code nor pickles of somebody are run
_LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}


def _hugging_face(
    name: str,  # as it was given
    source: str,  # without hf:
) -> HubEncoder:
    folder = fetch_folder(source, ["*.json"])
    tf = _library(name, "transformers", "hf")
    with _quiet(tf):
        config = _hf_config(tf, name, source, folder)
        takes = _hf_input(tf, name, config)
        frames = getattr(config, "frames_per_clip", None) or getattr(config, "num_frames", None)
        prepare = _hf_processor(tf, name, folder, of_clips=bool(frames))
        folder = fetch_folder(source, ["*.json", "*.safetensors"])
        model, options = _hf_model(tf, name, folder, config)
    for m in model.modules():  # no part of a fingerprint, either
        if hasattr(m, "name_or_path"):
            m.name_or_path = ""
    encoder = HubEncoder(
        name,
        model,
        prepare,
        build=partial(tf.AutoModel.from_config, config, **options),
        takes=takes,
        frames=frames,
        fixed=bool(frames) and not hasattr(config, "frames_per_clip"),
        tubelet=getattr(config, "tubelet_size", 1) if frames else 1,
    )
    if frames:
        _check_side(name, config, encoder)
    return encoder


def _hf_config(
    tf: Any,  # transformers
    name: str,
    source: str,
    folder: Path,
) -> Any:
    try:
        config = tf.AutoConfig.from_pretrained(folder, **_LOCAL)
    except Exception as e:
        raise CheckpointError(
            f"{name}: has no config.json of a model that transformers {tf.__version__} knows "
            f"({_reason(e)}); name what save_pretrained wrote"
        ) from e
    if config.model_type == "timm_wrapper":
        raise CheckpointError(f"{name}: is of timm; name it as timm:{source}")
    return config


def _hf_input(
    tf: Any,  # transformers
    name: str,
    config: Any,
) -> str:  # the argument that takes videos or images
    kind = tf.MODEL_MAPPING.get(type(config), None)
    takes = getattr(kind, "main_input_name", "nothing")
    if not takes.startswith("pixel_values"):
        raise CheckpointError(
            f"{name}: {config.model_type} is no model of videos or images (it takes {takes}); use "
            "one such as V-JEPA 2, VideoMAE or DINOv2"
        )
    return takes


def _hf_processor(
    tf: Any,  # transformers
    name: str,
    folder: Path,
    of_clips: bool,  # else of images
) -> FramesOf:
    processors = [("image", tf.AutoImageProcessor)]
    if of_clips:
        processors.insert(0, ("video", tf.AutoVideoProcessor))
    for kind, auto in processors:
        with contextlib.suppress(Exception):
            return FramesOf(auto.from_pretrained(folder, **_LOCAL), kind)
    raise CheckpointError(
        f"{name}: has no processor that transformers {tf.__version__} can read; save it beside the "
        "model (processor.save_pretrained)"
    )


def _hf_model(
    tf: Any,  # transformers
    name: str,
    folder: Path,
    config: Any,
) -> tuple[Any, dict[str, Any]]:  # the model; what it was built with besides the config
    def load(**options):
        model, info = tf.AutoModel.from_pretrained(
            folder,
            config=config,
            use_safetensors=True,
            dtype=torch.float32,
            output_loading_info=True,
            **_LOCAL,
            **options,
        )
        missing = sorted(map(str, [*info["missing_keys"], *info["mismatched_keys"]]))
        return model, missing

    options: dict[str, Any] = {}
    try:
        model, missing = load()
        if missing and all(k.startswith("pooler.") for k in missing):  # a classifier has none
            options["add_pooling_layer"] = False
            model, missing = load(**options)
    except Exception as e:
        raise CheckpointError(
            f"{name}: its weights cannot be read ({_reason(e)}); give them whole, as .safetensors"
        ) from e
    # transformers fills these with random numbers, and warns at most
    if missing:
        raise CheckpointError(
            f"{name}: lacks {len(missing)} of {len(model.state_dict())} weights of "
            f"{type(model).__name__}, such as {missing[0]}, which would be random; take a file "
            "that has all of them"
        )
    return model, options


def _check_side(name: str, config: Any, encoder: HubEncoder) -> None:
    "Other sizes give V-JEPA 2 wrong positions, without an error."
    side = getattr(config, "crop_size", None) or getattr(config, "image_size", None)
    if not side:
        return
    size = encoder.about()["size"]
    if size != side:
        raise CheckpointError(
            f"{name}: its processor makes {size} px, and the model takes {side}; correct crop_size "
            "in its processor"
        )


# --- torchvision


def _torchvision(name: str, source: str) -> HubEncoder:
    from torchvision import models

    known = [*models.list_models(models), *models.list_models(models.video)]
    if source not in known:
        raise CheckpointError(
            f"{name}: torchvision classifies with no such model; {did_you_mean(source, known)}"
        )
    weights = models.get_model_weights(source).DEFAULT
    try:
        net = models.get_model(source, weights=weights, progress=False)
    except Exception as e:
        raise CheckpointError(
            f"{name}: its weights cannot be had ({type(e).__name__}); check the connection, or "
            f"save {weights.url} in {torch.hub.get_dir()}/checkpoints"
        ) from e
    video = ".video." in type(net).__module__
    return HubEncoder(
        name,
        _without_classifier(net),
        FramesOf(weights.transforms(), "clip" if video else "frame"),
        build=lambda: _without_classifier(models.get_model(source, weights=None)),
        frames=16 if video else None,
    )


def _without_classifier(net: nn.Module) -> nn.Module:
    layers = ("fc", "classifier", "heads", "head")
    setattr(net, next(layer for layer in layers if hasattr(net, layer)), nn.Identity())
    return net


# --- timm


class _Tokens(nn.Module):
    "A model of timm, whose outputs have the names of transformers."

    def __init__(self, model: Any):
        super().__init__()
        model.reset_classifier(0)
        self.model = model

    def forward(self, x: Tensor) -> SimpleNamespace:
        y = self.model.forward_features(x)
        pooled = self.model.forward_head(y)
        if getattr(self.model, "output_fmt", "") == "NHWC":
            y = y.movedim(-1, 1)
        return SimpleNamespace(last_hidden_state=y, pooler_output=pooled)


def _timm(name: str, source: str) -> HubEncoder:
    timm = _library(name, "timm", "timm")
    if "/" not in source and not Path(source).is_dir():
        source = _timm_weights(timm, name, source)
    files = ["config.json", "model.safetensors"]
    folder = fetch_folder(source, files)
    for file in files:
        if not (folder / file).is_file():
            raise CheckpointError(
                f"{name}: has no {file}; name a folder that timm.models.save_for_hf(..., "
                "safe_serialization=True) or `hf download` wrote"
            )
    build = partial(timm.create_model, f"local-dir:{folder}")
    try:
        model = build(pretrained=True)  # strict: the classifier is taken off afterwards
    except Exception as e:
        raise CheckpointError(
            f"{name}: cannot be loaded by timm {timm.__version__} ({_reason(e)}); take a folder "
            "that timm wrote, with all weights (transformers: hf:)"
        ) from e
    return HubEncoder(
        name, _Tokens(model), _timm_pictures(timm, model), build=lambda: _Tokens(build())
    )


def _timm_pictures(
    timm: Any,
    model: nn.Module,  # of timm
) -> FramesOf:
    "The pictures that a model of timm was trained on."
    cfg = timm.data.resolve_model_data_config(model)
    picture = timm.data.create_transform(**cfg)
    picture.mean = cfg["mean"]
    picture.std = cfg["std"]
    return FramesOf(picture, "picture")


def _timm_weights(
    timm: Any,
    name: str,
    source: str,  # a model of timm
) -> str:  # 'owner/name' on the Hub
    known = [*timm.list_models(), *timm.list_pretrained()]
    if source not in known:
        raise CheckpointError(
            f"{name}: timm has no such model, and there is no such folder; "
            f"{did_you_mean(source, known)}"
        )
    cfg = timm.get_pretrained_cfg(source)
    if not cfg or not cfg.hf_hub_id:
        raise CheckpointError(
            f"{name}: timm has no weights of it on the Hub; take another model, or a folder"
        )
    return cfg.hf_hub_id


# --- the Python index


def _published(name: str, source: str) -> HubEncoder:
    if source not in ARCHITECTURES:
        raise CheckpointError(
            f"{name}: no package has weights of it; {did_you_mean(source, ARCHITECTURES)}"
        )
    try:
        model = published_network(source)
    except MissingPackage as e:
        raise CheckpointError(f"{name}: {e}") from e
    return HubEncoder(
        name,
        _Tokens(model),
        _timm_pictures(importlib.import_module("timm"), model),
        build=lambda: _Tokens(published_network(source, with_weights=False)),
    )


LOADERS: Mapping[str, Callable[[str, str], HubEncoder]] = {
    "hf": _hugging_face,
    "timm": _timm,
    "torchvision": _torchvision,
    "published": _published,
}


def _split_time(
    name: str,  # such as timm:NAME@spread
) -> tuple[str, str]:  # the name without it; a word of `TIME`, '' where there is none
    base, at, time = name.rpartition("@")
    if not at or "/" in time or Path(name.partition(":")[2]).is_dir():
        return name, ""
    if time not in TIME:
        raise CheckpointError(
            f"{name}: what becomes of the frames is mean, spread or both, not {time!r}"
        )
    return base, time


def load_hub(
    # hf: or timm:, each with FOLDER or OWNER/NAME; timm:NAME, torchvision:NAME, published:NAME; of
    # a model of pictures also NAME@spread, NAME@both, NAME@mean
    name,
) -> HubEncoder:
    "An encoder of another library, with its weights and its processor. `CheckpointError`."
    whole, time = _split_time(str(name))
    prefix, _, source = whole.partition(":")
    if not source.strip():
        raise CheckpointError(f"{name}: names no model; give its name or a folder")
    encoder = LOADERS[prefix](whole, source)
    if not time:
        return encoder
    if encoder.frames is not None:
        raise CheckpointError(
            f"{name}: is a model of clips, which makes one feature of all frames; leave @{time} out"
        )
    encoder.time = time
    encoder.rename(str(name))
    return encoder
