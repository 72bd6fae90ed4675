"""Encoders of other libraries by name: `hf:NAME` (transformers), `timm:NAME`, `torchvision:NAME`;
or a folder.
"""

import contextlib, importlib, inspect, warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn

from ..names import did_you_mean
from ..training.checkpoints import CheckpointError
from .released import fetch_folder


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
        made = (
            self.processor(x, return_tensors="pt", do_sample_frames=False)
            if self.kind == "video"
            else self.processor(list(x), return_tensors="pt", input_data_format="channels_first")
        )
        y = next(v for k, v in made.items() if k.startswith("pixel_values"))
        return y if y.ndim == 4 else y[0]


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
    ):
        super().__init__()
        self.model, self.prepare, self.takes = model.eval().requires_grad_(False), prepare, takes
        self.frames, self.fixed, self.tubelet = frames, fixed, tubelet
        self._name, self._build = name, build  # no part of a fingerprint: a folder may be moved
        # the predictor of V-JEPA 2 is of no use here
        self._more = (
            {"skip_predictor": True}
            if "skip_predictor" in inspect.signature(model.forward).parameters
            else {}
        )

    # so that another processor makes other features
    def extra_repr(self) -> str:
        return str(self.prepare)

    def _read(
        self,
        x: Tensor,  # as of `forward`
    ) -> tuple[Tensor, Tensor | None]:  # (B, D); tokens, see below
        B, T = len(x), x.shape[2]
        if self.fixed and T != self.frames:
            raise CheckpointError(
                f"{self._name}: takes clips of {self.frames} "
                f"frames, not of {T}; leave length out, or make it {self.frames}"
            )
        if T % self.tubelet:
            raise CheckpointError(
                f"{self._name}: has {self.tubelet} frames in a token, and "
                f"length={T} is no multiple of that; use length={T + -T % self.tubelet}"
            )
        if self.frames is None:
            x = x.transpose(1, 2).flatten(0, 1)
        elif self.takes:
            x = x.transpose(1, 2)
        y: Any = self.model(**{self.takes: x}, **self._more) if self.takes else self.model(x)
        tokens: Any = getattr(y, "last_hidden_state", None)
        pooled = y if isinstance(y, Tensor) else getattr(y, "pooler_output", None)
        # convolutional
        if tokens is not None and tokens.ndim == 4:
            tokens = tokens.flatten(2).transpose(1, 2)
        pooled = tokens.mean(1) if pooled is None else pooled.flatten(1)
        if self.frames is not None:
            return pooled, tokens
        return pooled.unflatten(0, (B, T)).mean(1), None if tokens is None else tokens.unflatten(
            0, (B, T)
        ).flatten(1, 2)

    def forward(
        self,
        x: Tensor,  # (B, 3, T, H, W) as `prepare` makes frames
    ) -> Tensor:  # (B, D)
        """The model's pooled output, else the mean of its tokens; of an image model, the mean over
        frames.
        """
        return self._read(x)[0]

    def tokens(
        self,
        x: Tensor,  # (B, 3, T, H, W)
    ) -> Tensor:  # (B, N, D)
        "All tokens of the last layer; of an image model, those of all frames."
        y = self._read(x)[1]
        if y is None:
            raise CheckpointError(f"{self._name}: gives no tokens; take a model of transformers")
        return y

    def untrained(self, seed: int) -> "HubEncoder":
        "The same network with random weights."
        with torch.random.fork_rng():  # these libraries draw from the global generator
            torch.manual_seed(seed)
            return HubEncoder(
                self._name,
                self._build(),
                self.prepare,
                self._build,
                self.takes,
                self.frames,
                self.fixed,
                self.tubelet,
            )

    def about(self) -> dict[str, Any]:  # as the metadata of an encoder's file
        "The clips that it takes. `CheckpointError` where the processor cuts no squares."
        h, w = self.prepare(torch.zeros(2, 60, 80, 3, dtype=torch.uint8)).shape[2:]
        if h != w:
            raise CheckpointError(
                f"{self._name}: its processor makes {w} x {h} of 80 x 60 px, and "
                "clips are squares here; give it a crop_size, or a size with height and width"
            )
        about = {
            "backbone": self._name,
            "view": "rgb",
            "length": self.frames or 16,
            "stride": 1,
            "size": h,
            "crops": "processor",
        }
        p, mean, std = self.prepare.processor, "mean image_mean".split(), "std image_std".split()
        for key, names in (("mean", mean), ("std", std)):  # of protocols that cut otherwise
            about |= {key: list(v) for n in names if (v := getattr(p, n, None)) is not None}
        return about


def _first(e: Exception) -> str:
    return " ".join(str(e).split())[:200] or type(e).__name__


def _library(name: str, library: str, extra: str) -> Any:
    try:
        return importlib.import_module(library)
    except ImportError as e:
        raise CheckpointError(
            f"{name}: {library} is not installed ({e}); run pip install 'vssl_nb[{extra}]'"
        ) from e


@contextlib.contextmanager
def _quiet(
    tf: Any,  # transformers
) -> Iterator[None]:
    "Without its bars and warnings: what matters of them becomes an error here."
    level, bars = tf.logging.get_verbosity(), tf.logging.is_progress_bar_enabled()
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


def _hugging_face(
    name: str,  # as it was given
    source: str,  # without hf:
) -> HubEncoder:
    folder = fetch_folder(source, ["*.json"])
    tf = _library(name, "transformers", "hf")
    # neither code nor pickles of somebody are run
    options: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    with _quiet(tf):
        try:
            config = tf.AutoConfig.from_pretrained(folder, **options)
        except Exception as e:
            raise CheckpointError(
                f"{name}: has no config.json of a model that "
                f"transformers {tf.__version__} knows ({_first(e)}); name what save_pretrained "
                "wrote"
            ) from e
        if config.model_type == "timm_wrapper":
            raise CheckpointError(f"{name}: is of timm; name it as timm:{source}")
        kind = tf.MODEL_MAPPING.get(type(config), None)
        takes = getattr(kind, "main_input_name", "nothing")
        if not takes.startswith("pixel_values"):
            raise CheckpointError(
                f"{name}: {config.model_type} is no "
                f"model of videos or images (it takes {takes}); use one such as V-JEPA 2, "
                "VideoMAE or DINOv2"
            )
        frames = getattr(config, "frames_per_clip", None) or getattr(config, "num_frames", None)
        for k in ["video", "image"] if frames else ["image"]:
            auto = tf.AutoVideoProcessor if k == "video" else tf.AutoImageProcessor
            with contextlib.suppress(Exception):
                prepare = FramesOf(auto.from_pretrained(folder, **options), k)
                break
        else:
            raise CheckpointError(
                f"{name}: has no processor that transformers {tf.__version__} can read; "
                "save it beside the model (processor.save_pretrained)"
            )
        folder, without = fetch_folder(source, ["*.json", "*.safetensors"]), dict[str, Any]()

        def load():
            model, info = tf.AutoModel.from_pretrained(
                folder,
                config=config,
                use_safetensors=True,
                dtype=torch.float32,
                output_loading_info=True,
                **options,
                **without,
            )
            return model, sorted(map(str, [*info["missing_keys"], *info["mismatched_keys"]]))

        try:
            model, lost = load()
            if lost and all(k.startswith("pooler.") for k in lost):  # a classifier has none
                without["add_pooling_layer"] = False
                model, lost = load()
        except Exception as e:
            raise CheckpointError(
                f"{name}: its weights cannot be read ({_first(e)}); "
                "give them whole, as .safetensors"
            ) from e
    # transformers fills these with random numbers, and warns at most
    if lost:
        raise CheckpointError(
            f"{name}: lacks {len(lost)} of {len(model.state_dict())} weights of "
            f"{type(model).__name__}, such as {lost[0]}, which would be random; take a file that "
            "has all of them"
        )
    for m in model.modules():  # no part of a fingerprint, either
        if hasattr(m, "name_or_path"):
            m.name_or_path = ""
    encoder = HubEncoder(
        name,
        model,
        prepare,
        partial(tf.AutoModel.from_config, config, **without),
        takes,
        frames,
        bool(frames) and not hasattr(config, "frames_per_clip"),
        getattr(config, "tubelet_size", 1) if frames else 1,
    )
    side = getattr(config, "crop_size", None) or getattr(config, "image_size", None)
    # other sizes give V-JEPA 2 wrong positions, without an error
    if frames and side and (made := encoder.about()["size"]) != side:
        raise CheckpointError(
            f"{name}: its "
            f"processor makes {made} px, and the model takes {side}; correct crop_size in its "
            "processor"
        )
    return encoder


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
            f"{name}: its weights cannot be had ({type(e).__name__}); "
            f"check the connection, or save {weights.url} in {torch.hub.get_dir()}/checkpoints"
        ) from e

    def featured(net):
        setattr(
            net,
            next(h for h in ("fc", "classifier", "heads", "head") if hasattr(net, h)),
            nn.Identity(),
        )
        return net

    video = ".video." in type(net).__module__
    return HubEncoder(
        name,
        featured(net),
        FramesOf(weights.transforms(), "clip" if video else "frame"),
        lambda: featured(models.get_model(source, weights=None)),
        frames=16 if video else None,
    )


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
    if not ("/" in source or Path(source).is_dir()):
        known = [*timm.list_models(), *timm.list_pretrained()]
        if source not in known:
            raise CheckpointError(
                f"{name}: timm has no such model, and there is no such "
                f"folder; {did_you_mean(source, known)}"
            )
        cfg = timm.get_pretrained_cfg(source)
        if not (cfg and cfg.hf_hub_id):
            raise CheckpointError(
                f"{name}: timm has no weights of it on the Hub; take another model, or a folder"
            )
        source = cfg.hf_hub_id
    folder = fetch_folder(source, ["config.json", "model.safetensors"])
    for file in ("config.json", "model.safetensors"):
        if not (folder / file).is_file():
            raise CheckpointError(
                f"{name}: has no {file}; name a folder that "
                "timm.models.save_for_hf(..., safe_serialization=True) or `hf download` wrote"
            )
    build = partial(timm.create_model, f"local-dir:{folder}")
    try:
        model = build(pretrained=True)  # strict: the classifier is taken off afterwards
    except Exception as e:
        raise CheckpointError(
            f"{name}: cannot be loaded by timm {timm.__version__} "
            f"({_first(e)}); take a folder that timm wrote, with all weights (transformers: hf:)"
        ) from e
    cfg = timm.data.resolve_model_data_config(model)
    picture = timm.data.create_transform(**cfg)
    picture.mean, picture.std = cfg["mean"], cfg["std"]
    return HubEncoder(name, _Tokens(model), FramesOf(picture, "picture"), lambda: _Tokens(build()))


def load_hub(
    name,  # hf: or timm:, each with FOLDER or OWNER/NAME; timm:NAME, torchvision:NAME
) -> HubEncoder:
    "An encoder of another library, with its weights and its processor. `CheckpointError`."
    prefix, _, source = str(name).partition(":")
    if not source.strip():
        raise CheckpointError(f"{name}: names no model; give its name or a folder")
    return {"hf": _hugging_face, "timm": _timm, "torchvision": _torchvision}[prefix](
        str(name), source
    )
