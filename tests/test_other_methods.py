"""Methods from outside, written with the public contract: clips of two sizes, and a masked ViT.

They are trained through `runs.experiment.resolve` and `runs.pretraining` like our methods.
"""

import csv
import math
from dataclasses import dataclass
from typing import ClassVar

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vssl_nb.data import toy
from vssl_nb.rng import generator
from vssl_nb.data.manifest import read
from vssl_nb.fields import RecipeError
from vssl_nb.methods.recipes import find, from_dict, override, settings_class, to_dict
from vssl_nb.nets.heads import Projection
from vssl_nb.runs.trace import dry_run, trace_step
from vssl_nb.runs.evaluation import open_trained, retrieve
from vssl_nb.runs.experiment import BlankVideos, resolve
from vssl_nb.runs.pretraining import pretrain
from vssl_nb.ssl.memory import named_clips
from vssl_nb.training.checkpoints import load
from vssl_nb.config import ClipGroup
from vssl_nb.training.loop import TrainError, TrainingState, fit
from vssl_nb.training.machine import Machine

QUIET = Machine(device="cpu", workers=0, cache=64, progress=False)


# LeJEPA: Balestriero and LeCun 2025, arXiv 2511.08544; loss and regulariser as in its algorithms 1
# and 2.
# The library's is `methods.lejepa`; this one shows that nobody has to change the library for it
@dataclass(frozen=True)
class LeJEPASettings:
    dim_embedding: int = 16  # D of the embeddings
    tradeoff: float = 0.05  # lambda, weight of the regulariser
    directions: int = 64  # random ones on which the embeddings are looked at
    local_clips: int = 3
    name: ClassVar[str] = "two-sizes"
    method: ClassVar[str] = f"{__name__}:LeJEPA"
    clips: ClassVar = ("one", "two")  # the global ones

    @property
    def clip_groups(self):
        return {"local": ClipGroup(clips=self.local_clips, length=4, size=16, area=(0.1, 0.4))}


class LeJEPA(nn.Module):
    def __init__(self, encoder, view, seed, dim_embedding, tradeoff, directions, local_clips):
        super().__init__()
        self.encoder = encoder
        self.projection = Projection(encoder.dim, 64, dim_embedding, seed + 1, batchnorm=True)
        self.view, self.seed, self.tradeoff, self.directions = view, seed, tradeoff, directions

    def parameter_groups(self):
        "The head learns at twice the rate."
        return [{"params": self.projection.parameters(), "lr_factor": 2.0}]

    def sigreg(
        self,
        z,  # (V, B, D)
        step,
    ):  # how far the B embeddings of each clip are from N(0, I)
        "Epps and Pulley's distance of characteristic functions, on random directions."
        drawn = generator("noise", self.seed, step).standard_normal((z.shape[2], self.directions))
        t = torch.linspace(-5, 5, 17, device=z.device)
        directions = F.normalize(torch.from_numpy(drawn).float(), dim=0).to(
            z.device, non_blocking=True
        )
        seen = (z @ directions)[..., None] * t  # (V, B, directions, 17)
        target = (-t * t / 2).exp()  # of the Gaussian, and the weight of t
        error = (seen.cos().mean(1) - target) ** 2 + seen.sin().mean(1) ** 2
        return torch.trapezoid(error * target, t).mean() * z.shape[1]

    def forward(self, batch):
        clips = [batch[self.view], batch[f"{self.view}_local"]]
        z = [
            self.projection(self.encoder(x.flatten(0, 1))).float().unflatten(0, x.shape[:2])
            for x in clips
        ]
        # of the global clips; of all
        centre, every = z[0].mean(1, keepdim=True), torch.cat(z, 1)
        predict = (every - centre).square().mean()
        spread = self.sigreg(every.transpose(0, 1), batch["step"])
        return (1 - self.tradeoff) * predict + self.tradeoff * spread, {
            "predict": predict,
            "spread": spread,
        }


# a masked ViT of two blocks: SimMIM's pixels (Xie et al. 2022) behind VideoMAE's tubes (Tong et al.
# 2022)
class TinyViT(nn.Module):
    "Tokens of 2 x 8 x 8 pixels; the mean of them is the feature that is measured."

    def __init__(self, seed=0, frames=8, size=32, dim=32):
        super().__init__()
        self.dim, self.patch, self.grid = dim, (2, 8, 8), (frames // 2, size // 8, size // 8)
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            self.embed = nn.Conv3d(3, dim, self.patch, self.patch)
            self.place = nn.Parameter(torch.randn(math.prod(self.grid), dim) * 0.02)
            self.hidden = nn.Parameter(torch.zeros(dim))
            layers = [
                nn.TransformerEncoderLayer(dim, 4, 2 * dim, 0.0, batch_first=True, norm_first=True)
                for _ in range(2)
            ]
            self.blocks, self.norm = nn.Sequential(*layers), nn.LayerNorm(dim)

    def tokens(
        self,
        x,  # (B, 3, T, H, W)
        mask=None,  # (B, N) bool of the hidden ones
    ):  # (B, N, dim)
        z = self.embed(x).flatten(2).mT
        if mask is not None:
            z = torch.where(mask[..., None], self.hidden, z)
        return self.norm(self.blocks(z + self.place))

    def forward(self, x):
        return self.tokens(x).mean(1)


@dataclass(frozen=True)
class MaskedSettings:
    hidden_share: float = 0.75  # of the tubes
    name: ClassVar[str] = "masked_tubes"
    method: ClassVar[str] = f"{__name__}:Masked"
    clips: ClassVar = ("x",)


class Masked(nn.Module):
    def __init__(self, encoder, view, seed, hidden_share):
        super().__init__()
        self.encoder, self.view, self.seed, self.share = encoder, view, seed, hidden_share
        self.decoder = nn.Linear(encoder.dim, 3 * math.prod(encoder.patch))
        nn.init.zeros_(self.decoder.weight), nn.init.zeros_(self.decoder.bias)

    def parameter_groups(self):
        return [{"params": [self.encoder.place, self.encoder.hidden], "weight_decay": 0.0}]

    def mask(
        self,
        B,
        step,
    ):  # (B, N) bool: a tube hides one place in all frames
        t, h, w = self.encoder.grid
        drawn = torch.from_numpy(generator("mask", self.seed, step).random((B, h * w)))
        return (drawn.argsort(1).argsort(1) < round(self.share * h * w)).repeat(1, t)

    def pixels(
        self,
        x,  # (B, 3, T, H, W)
    ):  # (B, N, pixels of a token)
        t, h, w = self.encoder.patch
        # (B, 3, times, rows, columns, t, h, w)
        patches = x.unfold(2, t, t).unfold(3, h, h).unfold(4, w, w)
        return patches.permute(0, 2, 3, 4, 1, 5, 6, 7).flatten(4).flatten(1, 3)

    def forward(self, batch):
        (x,) = named_clips(batch, self.view, ("x",))
        mask = self.mask(len(x), batch["step"])
        wrong = (self.decoder(self.encoder.tokens(x, mask)).float() - self.pixels(x).float()) ** 2
        return wrong[mask].mean(), {"hidden": mask.float().mean()}


_base = find("infonce-toy-residual")
_short = dict(
    length=8,
    batch=16,
    epochs=10,
    warmup=0.0,
    optimizer="adamw",
    weight_decay=0.05,
    decay_bias=False,
    clip_norm=0.5,
    test_clips=1,
)
lejepa = override(
    _base, name="two-sizes-toy", method=f"{__name__}:LeJEPASettings", lr=5e-3, **_short
)
masked = override(
    _base,
    name="masked-toy",
    method=f"{__name__}:MaskedSettings",
    clips=1,
    lr=3e-3,
    view="rgb",
    backbone=f"{__name__}:TinyViT",
    **_short,
)
# the library's, with its transformer and clips of two sizes, goes the same way
ours = override(find("lejepa-toy-vit"), name="ours-toy", local_length=4, **_short | dict(epochs=7))
RECIPES = [pytest.param(r, id=r.name) for r in (lejepa, masked, ours)]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory):
    return read(toy.make(tmp_path_factory.mktemp("toy") / "videos", size="tiny", progress=False))


def one_batch(parts):
    return parts.views(next(iter(parts.batches))) | {"step": 0, "progress": 0.0}


def losses(run):
    with (run / "steps.csv").open() as f:
        return [float(row["loss"]) for row in csv.DictReader(f)]


def test_clips_of_two_sizes_arrive(manifest):
    parts = resolve(lejepa, manifest)
    batch = one_batch(parts)
    assert batch["residual"].shape == (16, 2, 3, 8, 32, 32)
    assert batch["residual_local"].shape == (16, 3, 3, 4, 16, 16)
    whole, local = (
        parts.clips[0, 5][k]["box"].double()[:, 2:].prod(1) for k in ("augment", "augment_local")
    )
    assert whole.min() > 0.6 * 32 * 32 and local.max() < 0.45 * 32 * 32, "shares of the frame"
    assert parts.clips.item_bytes() == sum(
        parts.clips[0, 5][k].nbytes for k in ("clips", "clips_local")
    )
    alone = resolve(override(lejepa, method=_base.method), manifest)
    assert torch.equal(one_batch(alone)["residual"], batch["residual"]), (
        "local clips change the global ones"
    )
    more = resolve(override(lejepa, local_clips=5), manifest)
    assert one_batch(more)["residual_local"].shape[1] == 5, (
        "a field of the method, hence of the command line"
    )
    kept = from_dict(to_dict(lejepa))
    assert (
        kept == lejepa
        and kept.clip_sets["local"].size == 16
        and "local" not in alone.recipe.clip_sets
    )


def test_blank_clips_of_two_sizes_arrive():
    "A budget and a dry run see every group, as the loader gives them."
    parts = resolve(override(lejepa, backbone="tiny"), BlankVideos(32))
    raw = next(iter(parts.batches))
    assert raw["clips"].shape == (16, 2, 8, 32, 32, 3) and raw["clips_local"].shape == (
        16,
        3,
        4,
        16,
        16,
        3,
    )
    assert {"augment", "augment_local"} < raw.keys()
    assert dry_run(resolve(lejepa)).learned == (True, True)
    memory = [
        trace_step(resolve(override(lejepa, local_clips=n), BlankVideos(64))).total.max()
        for n in (2, 6)
    ]
    assert memory[0] < memory[1], "the local clips take memory"


@dataclass(frozen=True)
class WrongGroups(LeJEPASettings):
    name: ClassVar[str] = "wrong"
    method: ClassVar[str] = LeJEPASettings.method
    clip_groups: ClassVar = {"local": (3, 16)}


def test_groups_that_are_none_are_refused():
    with pytest.raises(RecipeError, match="not a dict of name -> ClipGroup"):
        settings_class(f"{__name__}:WrongGroups")


def test_what_lejepa_computes(manifest):
    method = resolve(lejepa, manifest).method
    z = torch.from_numpy(generator("noise", 1).standard_normal((1, 512, 16))).float()
    samples = dict(gauss=z, narrow=z * 0.1, point=z * 0, line=z[..., :1] * torch.ones(16))
    far = {name: method.sigreg(x.float(), 0).item() for name, x in samples.items()}
    assert far["gauss"] < 3 < min(v for k, v in far.items() if k != "gauss"), far
    t = torch.linspace(-5, 5, 17)  # of a point: characteristic function 1 everywhere
    assert (
        abs(
            far["point"]
            - 512 * torch.trapezoid((1 - (-t * t / 2).exp()) ** 2 * (-t * t / 2).exp(), t).item()
        )
        < 1e-2
    )


def test_masks_hide_tubes(manifest):
    parts = resolve(masked, manifest)
    mask = parts.method.mask(6, 3).unflatten(1, (4, 4, 4))  # of 8 frames, 32 x 32 pixels
    assert (mask == mask[:, :1]).all() and (mask.flatten(1).float().mean(1) == 0.75).all()
    assert torch.equal(mask, parts.method.mask(6, 3).view_as(mask)), (
        "drawn from seed and step alone"
    )
    assert not torch.equal(mask[0], mask[1]) and not torch.equal(
        mask, parts.method.mask(6, 4).view_as(mask)
    )
    x = one_batch(parts)["rgb"][:, 0]
    encoder = parts.method.encoder.eval()
    hidden = parts.method.mask(len(x), 0)
    other = torch.where(
        hidden.unflatten(1, encoder.grid)
        .repeat_interleave(2, 1)
        .repeat_interleave(8, 2)
        .repeat_interleave(8, 3)[:, None],
        x + 1,
        x,
    )  # only what is hidden is changed
    seen = encoder.tokens(x, hidden)
    assert seen.shape == (16, 64, 32) and torch.allclose(
        seen, encoder.tokens(other, hidden), atol=1e-5
    )
    assert not torch.allclose(encoder.tokens(x), encoder.tokens(other), atol=1e-2)
    # third row, second column
    tube = parts.method.pixels(x)[3, 1 * 16 + 2 * 4 + 1].view(3, 2, 8, 8)
    assert torch.equal(tube, x[3, :, 2:4, 16:24, 8:16])


def test_groups_of_parameters_and_clipping_are_applied(manifest):
    for recipe, rates in ((lejepa, {5e-3, 1e-2}), (masked, {3e-3})):
        parts = resolve(recipe, manifest)
        groups = {id(p): g for g in parts.optimizer.param_groups for p in g["params"]}
        assert {g["lr"] for g in groups.values()} == rates
        for name, p in parts.method.named_parameters():
            plain = p.ndim <= 1 or name in ("encoder.place", "encoder.hidden")
            assert groups[id(p)]["weight_decay"] == (0.0 if plain else 0.05), name
            fast = name.startswith("projection")
            assert groups[id(p)]["lr"] == (1e-2 if fast else recipe.learning.lr), name
        longest, learning = [], [p for g in parts.optimizer.param_groups for p in g["params"]]
        step = parts.optimizer.step

        def watched():
            longest.append(torch.nn.utils.get_total_norm([p.grad for p in learning]).item())
            step()

        parts.optimizer.step = watched
        run = TrainingState(parts.method, parts.optimizer)
        results = fit(run, parts.batches, parts.views, parts.schedules, clip_norm=0.01)
        norms = [r.read()["grad_norm"] for _, r in zip(range(3), results)]
        assert min(norms) > 0.011, "the gradients were long enough to be clipped"
        assert all(abs(x - 0.01) < 1e-4 for x in longest), longest
        assert parts.clip_norm == 0.5


@pytest.mark.parametrize("recipe", RECIPES)
def test_trained_resumed_and_measured(recipe, manifest, tmp_path):
    whole = pretrain(recipe, manifest.path, tmp_path / "whole", machine=QUIET)
    curve = losses(whole)
    parts, a = resolve(recipe, manifest), load(whole / "last.pt")
    batch = one_batch(parts)
    before = parts.method(batch)[0].item()
    parts.method.load_state_dict(a["method"])
    after = parts.method(batch)[0].item()
    assert len(curve) == a["step"] >= 20 and after < 0.85 * before, (before, after, curve)
    half = pretrain(recipe, manifest.path, tmp_path / "half", machine=QUIET, max_steps=7)
    assert load(half / "last.pt")["step"] == 7
    pretrain(recipe, manifest.path, half, machine=QUIET, resume=True)
    b = load(half / "last.pt")
    assert a["step"] == b["step"] and losses(half) == curve
    assert all(torch.equal(v, b["method"][k]) for k, v in a["method"].items())
    row = retrieve(whole, machine=QUIET)[0]
    assert row["method"] == recipe.method.name and 0 <= row["r1"] <= 1
    encoder = open_trained(whole).encoder
    assert encoder(torch.zeros(2, 3, 8, 32, 32)).shape == (2, encoder.dim)
    learned = {
        k.removeprefix("encoder."): v for k, v in a["method"].items() if k.startswith("encoder.")
    }
    assert all(torch.equal(v, learned[k]) for k, v in encoder.state_dict().items())


def test_clips_that_do_not_fit_are_refused(manifest, tmp_path):
    with pytest.raises(TrainError, match="LeJEPA"):
        # which takes clips of one size
        wrong = override(lejepa, backbone=f"{__name__}:TinyViT")
        pretrain(wrong, manifest.path, tmp_path / "run", machine=QUIET)
