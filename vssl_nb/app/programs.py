"""Encoders and classifiers as files that run without this library: a program of PyTorch (.pt2), or
ONNX; checked after they are written.
"""

import contextlib
import io
import json
import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import __version__
from ..data.manifest import Manifest
from ..data.views import find_view, raw_inputs
from ..extras import require
from ..files import first_line, replacement, write_remedy
from ..measure.classify import VideoClassifier, load_classifier
from ..measure.features import Preprocess, encoder_protocol, encoder_views, open_encoder
from ..measure.protocols import SQUARES, Protocol
from ..names import of_hub
from ..paths import read_card
from ..runs.evaluation import run_manifest
from ..runs.hub import load_hub
from ..training.run_folder import write_json

# by how much numbers of a program may differ from those of this library, as a share of the largest
TOLERANCE = 1e-4
MARK = "vssl_nb.program"  # by which `outputs` recognises the files


class ProgramError(ValueError):
    "What cannot become a program; the message names it and the remedy."


# -- what becomes a program


class EncoderProgram(nn.Module):
    "Clips in [0, 1] become a view, and the view becomes features."

    def __init__(
        self,
        encoder: nn.Module,  # (N, 3, T, S, S) -> (N, D)
        view: str,  # of the encoder
        options: Mapping[str, Any],  # of the view
    ):
        super().__init__()
        self.encoder = encoder
        named = find_view(view)
        self.make = named.make
        self.options = named.choose(options, {})

    def forward(
        self,
        clips: Tensor,  # (N, 3, T, S, S) float32 in [0, 1]
    ) -> Tensor:  # (N, D)
        return self.encoder(self.make(clips[:, None], **self.options)[:, 0])


class ClassifierProgram(nn.Module):
    "All clips of one video become its probabilities."

    mean: Tensor
    shift: Tensor
    scale: Tensor
    weight: Tensor
    bias: Tensor

    def __init__(
        self,
        features: nn.Module,  # (N, 3, T, S, S) in [0, 1] -> (N, D)
        classifier: VideoClassifier,
    ):
        super().__init__()
        linear = classifier.linear
        self.features = features
        self.average = classifier.protocol.average
        self.clip_norm = classifier.protocol.clip_norm
        self.normalise = linear.normalise
        weight = torch.zeros(len(classifier.classes), linear.weight.shape[1])
        # of classes without a training video
        bias = torch.full((len(classifier.classes),), -torch.inf)
        weight[linear.ids] = linear.weight.float()
        bias[linear.ids] = linear.bias.float()
        parts = {"mean": linear.mean, "shift": linear.shift, "scale": linear.scale}
        for name, x in (parts | {"weight": weight, "bias": bias}).items():
            self.register_buffer(name, x.float())

    def scores(
        self,
        x: Tensor,  # (N, D)
    ) -> Tensor:  # (N, C)
        x = x - self.mean
        if self.normalise:
            x = nn.functional.normalize(x, dim=1)
        return (x - self.shift) * self.scale @ self.weight.T + self.bias

    def forward(
        self,
        clips: Tensor,  # (N, 3, T, S, S) float32 in [0, 1], of one video
    ) -> Tensor:  # (C,)
        x = self.features(clips)
        if self.average == "features":
            if self.clip_norm:
                x = nn.functional.normalize(x, dim=1)
            return self.scores(x.mean(0, keepdim=True)).softmax(1)[0]
        if self.average == "logits":
            return self.scores(x).mean(0).softmax(0)
        return self.scores(x).softmax(1).mean(0)


@dataclass
class Source:
    "An encoder or a classifier, what it takes, and how this library would compute the same."

    program: nn.Module  # clips in [0, 1] -> features, or probabilities
    encoder: nn.Module
    about: dict[str, Any]  # of the encoder
    protocol: Protocol  # which clips of a video
    classifier: VideoClassifier | None = None
    manifest: Manifest | None = None  # of its videos, where they are known

    @property
    def output(self) -> str:
        return "feature" if self.classifier is None else "probability"

    def by_library(
        self,
        x: Tensor,  # (N, 3, T, S, S): the view
    ) -> Tensor:  # (N, D), or (C,)
        "The same by the parts of this library."
        with torch.inference_mode():
            features = self.encoder(x)
        return features if self.classifier is None else self.classifier.probabilities(features)


def read_source(
    source: str | Path,  # run folder, its encoder or classifier file, or hf:NAME and the like
) -> Source:
    "What becomes a program. `CheckpointError`, `ProgramError`."
    if of_hub(source):
        network = load_hub(str(source))
        about = network.about()
        if not {"mean", "std"} <= about.keys():
            raise ProgramError(
                f"{source}: its processor does not tell how it normalises; take another encoder"
            )
        program = EncoderProgram(network, "rgb", {k: about[k] for k in ("mean", "std")})
        return Source(program, network, about, encoder_protocol(about))

    path = Path(source)
    folder = path if path.is_dir() else path.parent
    manifest = _manifest_of(folder)
    if not _holds_classifier(path):
        encoder, preprocess = open_encoder(path)
        about = preprocess.about
        program = _encoder_program(encoder, about)
        return Source(program, encoder, about, preprocess.protocol, None, manifest)

    classifier = load_classifier(path)
    if classifier.gaussian is not None:
        raise ProgramError(
            f"{path}: is a classifier that draws samples, which no program can; take an encoder, "
            "or a classifier of `vssl-nb probe`"
        )
    features = _encoder_program(classifier.encoder, classifier.about)
    return Source(
        ClassifierProgram(features, classifier).eval(),
        classifier.encoder,
        classifier.about,
        classifier.protocol,
        classifier,
        manifest,
    )


def _holds_classifier(path: Path) -> bool:
    "A file of a classifier, or a run that has nothing else."
    if path.is_dir():
        file = path / "encoder.safetensors"
        return not file.exists() and (path / "classifier.safetensors").exists()
    return path.name == "classifier.safetensors"


def _encoder_program(encoder: nn.Module, about: Mapping[str, Any]) -> EncoderProgram:
    view = about["view"]
    if len(raw_inputs(view)) != 1 or "pair" in raw_inputs(view):
        raise ProgramError(
            f"the view {view} is made of more than one picture of a moment; take an encoder of "
            "rgb, residual or flow"
        )
    return EncoderProgram(encoder, view, encoder_views(about)).eval()


def _manifest_of(folder: Path) -> Manifest | None:
    "The videos of a run, where they are still there."
    with contextlib.suppress(ValueError, OSError, KeyError):
        return run_manifest(folder, read_card(folder)["manifest"])
    return None


# -- the clips on which it is checked


def example_clips(
    source: Source,
) -> tuple[
    Tensor, Tensor, str
]:  # clips in [0, 1]; the view of them by this library; whose they are
    "Clips of the first video that can be read; of none: noise that moves."
    for row in [] if source.manifest is None else source.manifest.rows[:20]:
        if row.status == "ok" and "flow" not in raw_inputs(source.about["view"]):
            with contextlib.suppress(ValueError, OSError):
                file = source.manifest.path.parent / row.video  # type: ignore[union-attr]
                return *_clips_of(source, file), row.video
    T, S = source.about["length"], source.about["size"]
    rng = torch.Generator().manual_seed(0)
    squares = SQUARES[source.protocol.crops] if source.classifier else 1
    frame = torch.rand(2 * squares, 3, 1, S, S, generator=rng)
    clips = torch.cat([frame.roll(t, -1) for t in range(T)], 2)
    program: Any = getattr(source.program, "features", source.program)
    view = program.make(clips[:, None], **program.options)[:, 0]
    return clips, view, "noise that moves"


def _clips_of(
    source: Source,
    file: Path,
) -> tuple[Tensor, Tensor]:  # clips in [0, 1]; the view of them
    "At most three windows of a video, by the way of this library."
    about = source.about
    windows = min(source.protocol.clips, 3)
    view = Preprocess(about, clips=windows)(file)
    plain = {"view": "rgb", "mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)}
    return Preprocess(about | plain, clips=windows)(file), view


# -- writing


def write_program(
    source: str | Path,  # as of `read_source`
    out: Path,  # .pt2 or .onnx
) -> str:  # what was written, in words
    """Write a program and, beside it, a JSON file that describes its input; both or neither.

    `ProgramError` where it cannot be made, or where its numbers are others than this library's.
    """
    if out.suffix == ".onnx":
        for package in ("onnx", "onnxscript", "onnxruntime"):
            require(package, "onnx")
    origin = read_source(source)
    clips, view, video = example_clips(origin)
    expected = origin.by_library(view).float().numpy()
    exported, free = _exported(origin, clips, source)
    description = describe(origin, free, expected.shape[-1], source)

    out.parent.mkdir(parents=True, exist_ok=True)
    try:
        with replacement(out, out.suffix) as temporary:
            write = _write_onnx if out.suffix == ".onnx" else _write_pt2
            write(exported, temporary, description)
            computed = RUNNERS[out.suffix](temporary, clips)
            checked = _check(out, computed, expected)
            description["checked"] = {"clips": video, "largest_difference": checked}
            os.chmod(temporary, 0o644)
            write_json(out.with_suffix(".json"), description)
    except OSError as e:
        raise ProgramError(
            f"{out}: cannot be written ({first_line(e)}); {write_remedy(e)} or choose another "
            "folder"
        ) from e
    return program_in_words(description)


def _check(
    out: Path,
    computed: np.ndarray,  # by the file
    expected: np.ndarray,  # by this library
) -> float:  # the largest difference
    "Refuse a file whose numbers are others. ProgramError."
    other = ".pt2" if out.suffix == ".onnx" else ".onnx"
    if computed.shape != expected.shape:
        raise ProgramError(
            f"{out}: was not written, because the program makes {computed.shape} where this "
            f"library makes {expected.shape}; take {other}"
        )
    difference = float(np.abs(computed - expected).max())
    if not difference <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
        raise ProgramError(
            f"{out}: was not written, because its numbers differ from those of this library by "
            f"{difference:.2g}; take {other}, or tell the authors which encoder this is"
        )
    return difference


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    "Without the words of exporters."
    level = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        words = io.StringIO()
        with contextlib.redirect_stdout(words), contextlib.redirect_stderr(words):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
    finally:
        logging.disable(level)


def _exported(
    origin: Source,
    clips: Tensor,
    source: str | Path,  # for the message
) -> tuple[Any, bool]:  # a program of torch.export; may the number of clips be any?
    "The program of any number of clips, else of the number of these. ProgramError."
    any_number = {"clips": {0: torch.export.Dim("clips", min=1, max=4096)}}
    errors = []
    with _quiet(), torch.no_grad():
        for shapes in (any_number, None):
            try:
                example = clips if len(clips) > 1 or shapes is None else clips.repeat(2, 1, 1, 1, 1)
                program = torch.export.export(
                    origin.program.eval(), (example,), dynamic_shapes=shapes, strict=False
                )
                return program, shapes is not None
            except Exception as e:  # of any kind: it runs the code of the network
                errors.append(e)
    raise ProgramError(
        f"{source}: cannot become a program ({first_line(errors[-1])}); torch.export takes only "
        "networks whose code does not branch on numbers; take an encoder of another backbone"
    )


def _write_pt2(program: Any, path: Path, description: Mapping[str, Any]) -> None:
    extra = {"vssl_nb.json": json.dumps({MARK: description})}
    with _quiet():
        torch.export.save(program, path, extra_files=extra)


def _write_onnx(program: Any, path: Path, description: Mapping[str, Any]) -> None:
    with _quiet():
        exported: Any = torch.onnx.export(
            program,
            dynamo=True,
            input_names=["clips"],
            output_names=[description["output"]["name"]],
            verbose=False,
        )
        exported.model.metadata_props[MARK] = json.dumps(description)
        exported.save(path, external_data=False)


def _run_pt2(path: Path, clips: Tensor) -> np.ndarray:
    with torch.inference_mode():
        return torch.export.load(path).module()(clips).float().numpy()


def _run_onnx(path: Path, clips: Tensor) -> np.ndarray:
    runtime = require("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.log_severity_level = 3
    session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"clips": clips.numpy()})[0]


# how a file is run that was written
RUNNERS = {".pt2": _run_pt2, ".onnx": _run_onnx}


# -- its description


def describe(
    origin: Source,
    free: bool,  # may the number of clips be any?
    dim: int,  # of a feature
    source: str | Path,  # as it was named
) -> dict[str, Any]:
    "All that somebody needs who has the file and not this library."
    about = origin.about
    p = origin.protocol
    T, S = about["length"], about["size"]
    flow = "flow" in raw_inputs(about["view"])
    crops = "centre" if p.crops == "processor" else p.crops
    squares = SQUARES[crops] if origin.classifier else 1
    number: Any = "any number" if free else p.clips * squares
    description: dict[str, Any] = {
        "program": origin.output,
        "of": str(source),
        "vssl_nb": __version__,
        "backbone": about["backbone"],
        "input": {
            "name": "clips",
            "shape": [number, 3, T, S, S],
            "axes": ["clip", "channel", "frame", "row", "column"],
            "dtype": "float32",
            "range": [0, 1],
            "channels": ["128", "v", "u"] if flow else ["red", "green", "blue"],
            "normalisation": "inside the program: give values divided by 255, nothing else",
        },
        "inside": {"view": about["view"], **_plain(encoder_views(about))},
        "clip": {
            "frames": T,
            "stride": about["stride"],
            "clips_of_a_video": p.clips,
            "which": "spread evenly from the first frame to the last; their mean is the video's",
            "square": f"{crops} of the frame, scaled to {S} px as bytes (bilinear, "
            "antialiased: what torchvision's resize makes of a uint8 tensor)",
        },
        "output": {"name": origin.output, "shape": [number, dim]},
    }
    if origin.classifier is not None:
        classes = origin.classifier.classes
        description["input"]["clips"] = "all clips of one video together"
        description["output"] = {"name": origin.output, "shape": [len(classes)], "classes": classes}
        description["protocol"] = _plain(asdict(p))
    return description


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    "What JSON can hold of some settings."
    kinds = (str, int, float, bool, list, tuple)
    return {k: v for k, v in values.items() if isinstance(v, kinds)}


def program_in_words(
    description: Mapping[str, Any],  # of `describe`, checked
) -> str:
    "What was written, for a terminal."
    given = description["input"]
    checked = description["checked"]
    output = description["output"]

    axes = ", ".join(given["axes"])

    def in_brackets(shape):
        return "(" + ", ".join(str(n) for n in shape) + ")"

    return "\n".join(
        [
            f"input   clips {in_brackets(given['shape'])} float32 in [0, 1]: {axes}",
            f"output  {output['name']} {in_brackets(output['shape'])}",
            f"checked on {checked['clips']}: differs from this library by at most "
            f"{checked['largest_difference']:.1g}",
        ]
    )
