"""Released files, built here from the facts of b1 by classes of this test alone: read, written,
read again.
"""

import copy
import functools
import io
import json
import os
import pickle
import resource
import sys
import zipfile
from argparse import Namespace
from collections import OrderedDict
from types import ModuleType

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from vssl_nb.nets.backbones import create, r3d18_iic
from vssl_nb.nets.heads import make_head
from vssl_nb.methods.recipes import find
from vssl_nb.app.convert import save_released
from vssl_nb.app.sharing import from_pretrained, save_pretrained
from vssl_nb.runs.experiment import resolve
from vssl_nb.runs.released import (
    DIFFERING,
    LACKS,
    NOT_FINITE,
    SHAPE,
    continued_state,
    load_released,
)
from vssl_nb.runs.released_names import LAYOUTS
from vssl_nb.runs.torch_files import read_torch_file
from vssl_nb.training.checkpoints import CheckpointError

K, DIM = 32, 128
WIDTHS = {
    "3b": (64, 96, 128, 16, 32, 32),
    "3c": (128, 128, 192, 32, 96, 64),
    "4b": (192, 96, 208, 16, 48, 64),
    "4c": (160, 112, 224, 24, 64, 64),
    "4d": (128, 128, 256, 24, 64, 64),
    "4e": (112, 144, 288, 32, 64, 64),
    "4f": (256, 160, 320, 32, 128, 128),
    "5b": (256, 160, 320, 32, 128, 128),
    "5c": (384, 192, 384, 48, 128, 128),
}


class Point(nn.Module):
    def __init__(self, a, b):
        super().__init__()
        self.conv, self.bn = nn.Conv3d(a, b, 1, bias=False), nn.BatchNorm3d(b)

    def forward(self, x):
        return self.bn(self.conv(x)).relu()


class Twice(nn.Module):
    "Space, then time; both convolutions are registered before both norms."

    def __init__(self, a, b, k=3, s=1):
        super().__init__()
        p = k // 2
        self.conv1 = nn.Conv3d(a, b, (1, k, k), (1, s, s), (0, p, p), bias=False)
        self.conv2 = nn.Conv3d(b, b, (k, 1, 1), (s, 1, 1), (p, 0, 0), bias=False)
        self.bn1, self.bn2 = nn.BatchNorm3d(b), nn.BatchNorm3d(b)

    def forward(self, x):
        return self.bn2(self.conv2(self.bn1(self.conv1(x)).relu())).relu()


class Mixed(nn.Module):
    def __init__(self, i, w):
        super().__init__()
        self.branch0 = nn.Sequential(Point(i, w[0]))
        self.branch1 = nn.Sequential(Point(i, w[1]), Twice(w[1], w[2]))
        self.branch2 = nn.Sequential(Point(i, w[3]), Twice(w[3], w[4]))
        self.branch3 = nn.Sequential(nn.MaxPool3d(3, 1, 1), Point(i, w[5]))

    def forward(self, x):
        return torch.cat([getattr(self, f"branch{i}")(x) for i in range(4)], 1)


class Backbone(nn.Module):
    "Every layer under its own name and inside its block."

    def __init__(self):
        super().__init__()
        self.Conv_1a = Twice(3, 64, 7, 2)
        self.block1 = nn.Sequential(self.Conv_1a)
        self.MaxPool_2a = nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1))
        self.Conv_2b, self.Conv_2c = Point(64, 64), Twice(64, 192)
        self.block2, at = nn.Sequential(self.MaxPool_2a, self.Conv_2b, self.Conv_2c), 192
        first = nn.MaxPool3d((1, 3, 3), (1, 2, 2), (0, 1, 1))
        pools = {3: first, 4: nn.MaxPool3d(3, 2, 1), 5: nn.MaxPool3d(2, 2)}
        for block, pool in pools.items():
            parts = [pool]
            setattr(self, f"MaxPool_{block}a", pool)
            for name, w in WIDTHS.items():
                if name[0] != str(block):
                    continue
                setattr(self, f"Mixed_{name}", Mixed(at, w))
                parts.append(getattr(self, f"Mixed_{name}"))
                at = w[0] + w[2] + w[4] + w[5]
            setattr(self, f"block{block}", nn.Sequential(*parts))

    def forward(self, x):
        for i in range(1, 6):
            x = getattr(self, f"block{i}")(x)
        return x


@functools.lru_cache
def network(seed):
    "Backbone and head; the running statistics are those of one batch."
    with torch.random.fork_rng(), torch.no_grad():
        torch.manual_seed(seed)
        net = nn.Sequential(
            Backbone(),
            nn.AdaptiveAvgPool3d((1, 1, 1)),
            nn.Conv3d(1024, 1024, 1),
            nn.ReLU(),
            nn.Conv3d(1024, DIM, 1),
        )
        norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm3d)]
        for m in norms:
            m.momentum = 1
        net[0](CLIPS.roll(1))
        for m in norms:
            m.momentum = 0.1
    return net


def encoder(seed):
    return copy.deepcopy(network(seed))


class Pretraining(nn.Module):
    "The names of InfoNCE, and what the others add."

    def __init__(self, method):
        super().__init__()
        self.encoder_q, self.encoder_k = encoder(0), encoder(1)
        self.encoder_k.requires_grad_(False)
        self.register_buffer("queue", F.normalize(torch.randn(DIM, K), dim=0))
        self.register_buffer("queue_ptr", torch.tensor([8]))
        if method == "ubernce":
            self.register_buffer("queue_label", torch.arange(K) % 5)
        if method in ("coclr", "cpr"):
            self.sampler = encoder(2).requires_grad_(False)
            self.register_buffer("queue_second", F.normalize(torch.randn(DIM, K), dim=0))
            self.register_buffer("queue_vname", torch.arange(K) // 2)
            self.register_buffer("queue_label", torch.ones(K, dtype=torch.long))
        if method == "cpr":
            self.register_buffer("memory_index_record", torch.arange(K))


class Classifier(nn.Module):
    def __init__(self, dropout):
        super().__init__()
        self.backbone = encoder(0)[0]
        self.probe = not dropout
        # before the layer, and only the two learn (C model/classifier.py:31-45)
        if self.probe:
            self.backbone.requires_grad_(False)
            self.final_bn = nn.BatchNorm1d(1024)
            nn.init.normal_(self.final_bn.running_mean, std=0.01)
        self.final_fc = nn.Sequential(*[nn.Dropout(0.9)] * dropout, nn.Linear(1024, 7))

    def forward(self, z):
        return self.final_fc(self.final_bn(F.normalize(z)) if self.probe else z)


KEYS = {"infonce": 1858, "ubernce": 1859, "coclr": 2789, "cpr": 2790, "classifier": 926}
CLIPS = torch.randn(2, 3, 16, 32, 32, generator=torch.Generator().manual_seed(0))


def model_of(method):
    with torch.random.fork_rng():
        torch.manual_seed(len(method))
        heads = {"classifier": True, "probe": False}
        model = Classifier(heads[method]) if method in heads else Pretraining(method)
    return model


def adam_of(model):
    "One group for each parameter, of which those that learn have a state."
    every = [p for p in model.parameters() if p.requires_grad or isinstance(model, Pretraining)]
    opt = torch.optim.Adam([{"params": p} for p in every], lr=1e-3, weight_decay=1e-5)
    for i, p in enumerate(model.parameters()):
        p.grad = torch.full_like(p, 1e-3 * (i % 7 + 1)) if p.requires_grad else None
    opt.step()
    return opt


def saved(path, method, optimizer=False, **how):
    model = model_of(method)
    opt = adam_of(model) if optimizer else None
    content = {
        "epoch": 182,
        "state_dict": model.state_dict(),
        "best_acc": np.float64(0.5),
        "iteration": 27000,
    }
    torch.save(content | ({"optimizer": opt.state_dict()} if opt else {}), path, **how)
    return model.eval(), opt


def features(backbone):
    return F.adaptive_avg_pool3d(backbone(CLIPS), 1).flatten(1)


@pytest.fixture(scope="module", params=[*KEYS, "probe"])
def file(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("released") / f"{request.param}-ucf101-rgb-128-s3d-ep182.tar"
    model, opt = saved(
        path, request.param, optimizer=request.param in ("coclr", "classifier", "probe")
    )
    return request.param, path, model, opt


@torch.inference_mode()
def test_load_save_load(file, tmp_path):
    "Their features to 1e-6, the way back into their loader, ours twice the same, every key booked."
    method, path, model, opt = file
    state = model.state_dict()
    assert method == "probe" or len(state) == KEYS[method]
    r = load_released(path)
    assert (r.method, r.view, r.backbone) == (method.replace("probe", "classifier"), "rgb", "s3d")
    assert (r.epoch, r.iteration) == (182, 27000)
    assert r.best_acc == 0.5 and type(r.best_acc) is float and r.checked
    assert sorted(r.report.used + r.report.duplicated) == sorted(state) and not r.report.unused
    assert not r.report.problems()
    networks = [(r.encoder, getattr(model, "backbone", None) or model.encoder_q[0])]
    if r.momentum:
        networks += [(r.momentum, model.encoder_k[0])]
    if r.sampler:
        networks += [(r.sampler, model.sampler[0])]
    assert len(networks) == (
        1 if "classifier" in r.method else 2 if method in ("infonce", "ubernce") else 3
    )
    for ours, theirs in networks:
        a, b = ours(CLIPS), features(theirs)
        # the same numbers in other kernels: the last digits differ
        assert a.std() > 1e-3 and (a - b).abs().max() < 2e-5 * max(1, b.abs().max())
    if "encoder" in r.heads:
        want = model.encoder_q(CLIPS).flatten(1)
        assert torch.allclose(
            r.heads["encoder"](r.encoder(CLIPS)), want, rtol=1e-4, atol=1e-4 * want.std()
        )
    if r.classifier:
        want = model(features(model.backbone))
        assert torch.allclose(r.classifier.logits(CLIPS), want, rtol=1e-4, atol=1e-4 * want.std())
    again = save_released(r, tmp_path / "again.tar")
    back = torch.load(again, weights_only=True)
    assert [*back["state_dict"]] == [*state]  # in the order of their classes, too
    fresh = model_of(method)
    for v in fresh.state_dict().values():
        v.zero_()
    fresh.load_state_dict(back["state_dict"])
    for k, v in fresh.state_dict().items():
        assert torch.equal(v, state[k]), k
    assert again.stat().st_size < 1.1 * path.stat().st_size  # both names share their numbers
    if opt:
        theirs = adam_of(fresh)
        theirs.load_state_dict(back["optimizer"])
        assert (
            len(theirs.param_groups) == len(opt.param_groups)
            and theirs.param_groups[3]["lr"] == 1e-3
        )
        for p, q in zip(model.parameters(), fresh.parameters()):
            for k, v in opt.state[p].items():
                assert torch.equal(v, theirs.state[q][k])
            assert theirs.state[q].keys() == opt.state[p].keys()
    s = load_released(again, view="rgb")
    assert (
        torch.equal(s.encoder(CLIPS), r.encoder(CLIPS))
        and s.report == r.report
        and str(s) == str(r)
    )
    assert s.queues.keys() == r.queues.keys() and all(
        torch.equal(v, r.queues[k]) for k, v in s.queues.items()
    )


@pytest.fixture(scope="module")
def infonce(tmp_path_factory):
    path = tmp_path_factory.mktemp("infonce") / "infonce.tar"
    model, _ = saved(path, "infonce")
    return path, model.state_dict()


def rewritten(path, state, change, **how):
    state = OrderedDict(state)
    change(state)
    torch.save({"epoch": 1, "state_dict": state}, path, **how)
    return path


def test_older_files(infonce, tmp_path):
    """Before zip, in DistributedDataParallel, on a GPU, with single names: all are read; the view
    is asked.
    """
    _, state = infonce
    want = load_released(infonce[0]).encoder(CLIPS)

    def ddp(s):
        for k in [*s]:
            s[f"module.{k}"] = s.pop(k)

    old = load_released(
        rewritten(tmp_path / "old.tar", state, ddp, _use_new_zipfile_serialization=False)
    )
    assert (
        not old.checked
        and "no" in str(old)
        and torch.equal(old.encoder(CLIPS), want)
        and old.view is None
    )
    with pytest.raises(CheckpointError, match="--view"):
        old.ask_view()

    def single(s):
        for k in [*s]:
            if ".block" in k:
                del s[k]

    one = load_released(rewritten(tmp_path / "x-flow.tar", state, single))
    assert (
        one.view == "flow" and not one.report.duplicated and torch.equal(one.encoder(CLIPS), want)
    )
    assert load_released(tmp_path / "x-flow.tar", view="rgb").view == "rgb"
    raw = (tmp_path / "old.tar").read_bytes()
    assert raw.count(b"cpu")  # as if it had been saved from a GPU
    (tmp_path / "gpu.tar").write_bytes(
        raw.replace(b"X\x03\x00\x00\x00cpu", b"X\x03\x00\x00\x00gpu")
    )
    assert torch.equal(load_released(tmp_path / "gpu.tar").encoder(CLIPS), want)


NAME = "encoder_q.0.Mixed_3c.branch1.1.conv1.weight"
TWIN = "encoder_q.0.block3.2.branch1.1.conv1.weight"


def without(s):
    del s[NAME], s[TWIN]


def reshaped(s):
    s[NAME] = s[TWIN] = torch.zeros(3, 3)


def infinite(s):
    s[NAME] = s[TWIN] = s[NAME].clone()
    s[NAME].view(-1)[5] = torch.inf


def apart(s):
    s[TWIN] = s[TWIN] + 1


def far(s):
    s["queue_ptr"] = torch.tensor([K])


@pytest.mark.parametrize(
    "change, kind, name",
    [
        (without, LACKS, NAME),
        (reshaped, SHAPE, NAME),
        (infinite, NOT_FINITE, NAME),
        (apart, DIFFERING, TWIN),
        (far, SHAPE, "queue_ptr"),
    ],
)
def test_what_is_wrong_is_named(infonce, tmp_path, change, kind, name):
    path = rewritten(tmp_path / "x.tar", infonce[1], change)
    with pytest.raises(CheckpointError) as e:
        load_released(path)
    assert str(path) in str(e.value) and "\n" not in str(e.value)
    assert f"{kind} {name}" in str(e.value)


def test_what_is_too_much_is_named(infonce, tmp_path):
    def more(s):
        s["encoder_q.0.extra.weight"] = torch.zeros(2)

    r = load_released(rewritten(tmp_path / "x.tar", infonce[1], more))
    assert r.report.unused == ["encoder_q.0.extra.weight"] and "extra.weight" in str(r)
    assert len(r.report.used + r.report.duplicated + r.report.unused) == 1859


def test_harmful_files_are_refused(infonce, tmp_path):
    "In one sentence, within seconds, without much memory, and nothing is run."
    raw = infonce[0].read_bytes()

    class Bomb:
        def __reduce__(self):
            return os.system, (f"touch {tmp_path}/exploded",)

    bombs = {"zip.tar": {"state_dict": Bomb()}, "legacy.tar": {"state_dict": Bomb()}}
    for name, x in bombs.items():
        torch.save(x, tmp_path / name, _use_new_zipfile_serialization="zip" in name)
    (tmp_path / "bare.tar").write_bytes(pickle.dumps(Bomb()))
    (tmp_path / "short.tar").write_bytes(raw[: len(raw) // 2])
    flipped = bytearray(raw)
    flipped[len(raw) // 2] ^= 16
    (tmp_path / "flipped.tar").write_bytes(flipped)
    with zipfile.ZipFile(tmp_path / "big.tar", "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("x/data.pkl", pickle.dumps({}, 2))
        with z.open("x/data/0", "w", force_zip64=True) as f:
            for _ in range(150):
                f.write(bytes(2**20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for name in ("zip", "legacy", "bare", "short", "flipped", "big"):
        with pytest.raises(CheckpointError) as e:
            load_released(tmp_path / f"{name}.tar")
        assert (
            "\n" not in str(e.value) and f"{name}.tar" in str(e.value) and len(str(e.value)) < 400
        )
    assert not (tmp_path / "exploded").exists()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kilobytes


def iic_file(path, videos=20):
    with torch.random.fork_rng():
        torch.manual_seed(1)
        net = r3d18_iic()
        banks = {k: torch.randn(videos, 512) for k in ("memory_l", "memory_ab", "memory_neg")}
    opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
    for p in net.parameters():
        p.grad = torch.ones_like(p)
    opt.step()
    contrast = {"params": torch.tensor([1024, 0.07, -1, -1, 0.5])} | banks
    torch.save(
        {
            "opt": Namespace(modality="res", model="r3d"),
            "model": net.state_dict(),
            "epoch": 240,
            "contrast": contrast,
            "optimizer": opt.state_dict(),
        },
        path,
    )
    return net.eval(), banks


@torch.inference_mode()
def test_iic(tmp_path):
    with torch.inference_mode(False):
        net, banks = iic_file(tmp_path / "iic.pth")
    r = load_released(tmp_path / "iic.pth")
    assert (r.method, r.backbone, r.view, r.epoch) == ("iic", "r3d18_iic", "rgb", 240)
    assert r.options["modality"] == "res"
    assert torch.equal(r.encoder(CLIPS), net(CLIPS)) and not r.report.unused
    back = torch.load(save_released(r, tmp_path / "again.pth"), weights_only=True)
    copy.deepcopy(net).load_state_dict(back["model"])
    assert all(torch.equal(back["model"][k], v) for k, v in net.state_dict().items())
    assert (
        all(torch.equal(back["contrast"][k], v) for k, v in banks.items())
        and len(back["contrast"]) == 4
    )
    assert len(back["optimizer"]["param_groups"]) == 1
    assert torch.equal(load_released(tmp_path / "again.pth").encoder(CLIPS), net(CLIPS))


@torch.inference_mode()
def test_iic_fine_tuned(tmp_path):
    "I models/r3d.py: `linear` behind the pool; ft_classify.py saves {'model': state_dict}."
    with torch.random.fork_rng():
        torch.manual_seed(1)
        net = r3d18_iic().eval()
        net.linear = nn.Linear(512, 7)
    torch.save({"model": net.state_dict()}, tmp_path / "res_best_model_9.pt")
    r = load_released(tmp_path / "res_best_model_9.pt")
    assert (r.method, r.view, r.report.unused) == ("iic", "residual", [])
    assert r.view_options()["residual"] == "rolled"  # ft_classify.py does not scale
    assert torch.equal(r.classifier.logits(CLIPS), net.linear(net(CLIPS)))
    with pytest.raises(ValueError, match="has method classifier, and iic-toy has iic; .* --init"):
        continued_state(r, None, resolve(find("iic-toy")))  # no pretraining goes on with it
    back = torch.load(save_released(r, tmp_path / "again.pt"), weights_only=True)["model"]
    assert back.keys() == net.state_dict().keys() and [*back][-2:] == [
        "linear.weight",
        "linear.bias",
    ]
    assert all(torch.equal(back[k], v) for k, v in net.state_dict().items())


# --- files of torch.save, whatever is in them

W = torch.arange(24.0).reshape(4, 6)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    "Everything that released files hold, in both formats."
    folder = tmp_path_factory.mktemp("plain")
    state = OrderedDict(
        a=W,
        b=W,
        part=W.T[1:3],
        p=nn.Parameter(torch.ones(3)),
        n=torch.tensor(7),
        half=torch.ones(2, dtype=torch.bfloat16),
        empty=torch.zeros(0, 3),
    )
    content = {
        "epoch": 182,
        "state_dict": state,
        "best_acc": np.float64(0.518),
        "iteration": np.int64(9),
        "opt": Namespace(modality="res", lr=0.01),
        "sizes": torch.Size([2, 3]),
    }
    torch.save(content, folder / "new.pth")
    torch.save(content, folder / "old.pth", _use_new_zipfile_serialization=False)
    return folder, state


@pytest.mark.parametrize("name", ["new.pth", "old.pth"])
def test_what_is_saved_comes_back(plain, name):
    folder, state = plain
    content, checked = read_torch_file(folder / name)
    back = content["state_dict"]
    assert checked == (name == "new.pth") and list(back) == list(state)
    assert all(torch.equal(back[k], v) and back[k].dtype == v.dtype for k, v in state.items())
    assert back["a"].data_ptr() == back["b"].data_ptr()
    assert (content["best_acc"], content["iteration"], content["sizes"]) == (0.518, 9, (2, 3))
    assert vars(content["opt"]) == {"modality": "res", "lr": 0.01}


def refused(path, raw):
    path.write_bytes(raw)
    with pytest.raises(CheckpointError) as e:
        read_torch_file(path)
    assert str(e.value).startswith(f"{path}: was not loaded: ")
    assert "\n" not in str(e.value) and len(str(e.value)) < 400
    return str(e.value)


def test_torn_files_are_refused(plain, tmp_path):
    new, old = ((plain[0] / name).read_bytes() for name in ("new.pth", "old.pth"))
    flipped = bytearray(new)
    flipped[new.find(W.numpy().tobytes()) + 6] ^= 1
    assert "the checksum of new/data/0 does not match" in refused(tmp_path / "x.pth", flipped)
    for raw in (new[:-200], new[:300], old[:-5], old[:30], b"", b"GIF89a"):
        assert "damaged, or its end is missing" in refused(tmp_path / "x.pth", raw)
    with pytest.raises(CheckpointError, match="there is no such file"):
        read_torch_file(tmp_path / "none.pth")


class Command:
    def __init__(self, words):
        self.words = words

    def __reduce__(self):
        return os.system, (self.words,)


def word(text):
    return b"U" + bytes([len(text)]) + text


def tensor(numbers, shape, stride):
    "How a pickle makes a tensor of a storage with so many numbers."
    storage = (
        word(b"storage") + b"ctorch\nFloatStorage\n" + word(b"0") + word(b"cpu") + numbers + b"tQ"
    )
    return (
        b"ctorch._utils\n_rebuild_tensor_v2\n((" + storage + b"K\x00" + shape + stride + b"\x89}tR."
    )


def archive(program, compress=zipfile.ZIP_STORED, size=40):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compress) as z:
        files = {
            "data.pkl": program,
            "byteorder": b"little",
            "data/0": bytes(size),
            "version": b"3",
        }
        for name, raw in files.items():
            z.writestr(f"x/{name}", raw)
    return file.getvalue()


def legacy(program):
    head = b"".join(pickle.dumps(p, 2) for p in (0x1950A86A20F9469CFC6C, 1001, {}))
    return head + program + pickle.dumps([], 2)


MANY, TEN, HUNDRED = b"\x8a\x06" + (10**13).to_bytes(6, "little"), b"K\x0a", b"K\x64"
RUNS_CODE, DAMAGED = "could run code", "damaged, or its end is missing"


@pytest.mark.parametrize(
    "program, words",
    [
        (pickle.dumps(Command("true"), 2), "names posix.system, which is no part of plain weights"),
        (b"cbuiltins\neval\n.", "it names eval"),
        (b"clab.nets\nNet\n.", "it names lab.nets.Net"),
        (b"\x8c\x08builtins\x8c\x04eval\x93.", RUNS_CODE),
        (b"(i__main__\nThing\n.", RUNS_CODE),
        (b"\x82\x01.", RUNS_CODE),
        (tensor(MANY, TEN + b"\x85", b"K\x01\x85"), DAMAGED),
        (tensor(TEN, TEN + b"\x85", HUNDRED + b"\x85"), DAMAGED),
        # more numbers than its storage has
        (tensor(HUNDRED, HUNDRED + b"\x85", b"K\x01\x85"), ""),
        (b"X\xff\xff\xff\x7fabc.", DAMAGED),
        (b"NNN", DAMAGED),
        (b".", DAMAGED),
    ],
)
def test_pickles_written_by_hand(tmp_path, program, words):
    "In both formats; the older one stores no tensor of this kind, and may find another reason."
    assert words in refused(tmp_path / "new.pth", archive(program))
    assert words in refused(tmp_path / "old.pth", legacy(program)) or "storage" in str(program)


def test_files_larger_than_they_are(tmp_path, monkeypatch):
    """A view of 10**13 numbers, a zip bomb, a pickle without end; a memo of four billion entries is
    harmless.
    """
    stride_0 = tensor(TEN, MANY + b"\x85", b"K\x00\x85")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # kilobytes
    assert "reaches beyond its numbers" in refused(tmp_path / "x.pth", archive(stride_0))
    assert "a compressed archive" in refused(
        tmp_path / "x.pth", archive(b"N.", zipfile.ZIP_DEFLATED, 10**7)
    )
    whole = archive(b"N.")  # its list of contents says that a file is long
    at = whole.rfind(b"x/data/0") - 46
    bomb = whole[: at + 24] + (10**9).to_bytes(4, "little") + whole[at + 28 :]
    assert "a zip bomb" in refused(tmp_path / "x.pth", bomb)
    (tmp_path / "memo.pth").write_bytes(legacy(b"Nr\xff\xff\xff\xff."))
    assert read_torch_file(tmp_path / "memo.pth") == (None, False)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
    monkeypatch.setattr("vssl_nb.runs.torch_files.MAX_PICKLE", 100)
    assert "its pickle is too long" in refused(
        tmp_path / "x.pth", archive(pickle.dumps(["x" * 200], 2))
    )


@pytest.mark.parametrize("new", [True, False])
def test_a_flipped_bit_never_hands_out_other_numbers(tmp_path, new):
    "Of every byte one bit; the older format has no checksums, and may only fail in our words."
    content = {"w": torch.arange(6.0), "epoch": 182, "x": "rgb"}
    torch.save(content, tmp_path / "right.pth", _use_new_zipfile_serialization=new)
    raw, noticed = (tmp_path / "right.pth").read_bytes(), 0
    for i in range(len(raw)):
        other = bytearray(raw)
        other[i] ^= 1 << i % 8
        (tmp_path / "flip.pth").write_bytes(other)
        try:
            back = read_torch_file(tmp_path / "flip.pth")[0]
        except CheckpointError:
            noticed += 1
            continue
        if new:
            assert torch.equal(back["w"], content["w"]) and (back["epoch"], back["x"]) == (
                182,
                "rgb",
            )
    assert noticed > len(raw) / 4


def test_every_layout_is_tried():
    assert {*KEYS, "iic"} == {*LAYOUTS}


# --- an encoder to share


@torch.inference_mode()
def test_an_encoder_is_shared(tmp_path):
    "By a folder, in another process that imports nothing of the training's methods."
    with torch.inference_mode(False):
        net, head = create("tiny", seed=1).eval(), make_head("projection", 256)
    about = dict(
        backbone="tiny", view="rgb", length=16, stride=1, size=32, recipe="infonce-toy-rgb"
    )
    folder = save_pretrained(tmp_path / "shared", net, about, {"projection": head})
    assert sorted(p.name for p in folder.iterdir()) == [
        "README.md",
        "config.json",
        "model.safetensors",
    ]
    same = from_pretrained(folder)
    assert torch.equal(same(CLIPS), net(CLIPS)) and list(same.kept_heads) == ["projection"]
    config = json.loads((folder / "config.json").read_text())
    assert config == same.about and about.items() <= config.items()
    page = (folder / "README.md").read_text()
    assert page.startswith("---\nlibrary_name: vssl_nb\n") and "# infonce-toy-rgb" in page
    assert f"| sha256 | {config['sha256']} |" in page
    (tmp_path / "other").mkdir()
    for name, words in (
        ("./none", "neither a folder nor a name"),
        ("none", "neither a folder nor a name"),
        ("/a/b", "neither a folder nor a name"),
        (tmp_path / "other", "has no model.safetensors"),
    ):
        with pytest.raises(CheckpointError, match=words):
            from_pretrained(name)


def test_the_hub_is_asked_for_names(tmp_path, monkeypatch):
    "A module of this test stands for huggingface_hub."
    folder = save_pretrained(tmp_path / "x", create("tiny"), {"backbone": "tiny"})
    hub, asked = ModuleType("huggingface_hub"), []

    def download(name, allow_patterns):
        asked.append((name, sorted(allow_patterns)))
        return folder

    hub.snapshot_download = download
    monkeypatch.setitem(sys.modules, "huggingface_hub", hub)
    assert from_pretrained("me/tiny").about["backbone"] == "tiny"
    assert asked == [("me/tiny", ["README.md", "config.json", "model.safetensors"])]

    def down(name, allow_patterns):
        raise OSError("no route to host")

    hub.snapshot_download = down
    with pytest.raises(CheckpointError, match="cannot be had from the Hub .OSError"):
        from_pretrained("me/tiny")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(CheckpointError, match="pip install huggingface_hub"):
        from_pretrained("me/tiny")
