"Schedules, LARS and parameter groups against PyTorch, lightly and numbers by hand."

import copy
import math
from functools import partial

import pytest
import torch
from lightly.utils.lars import LARS as LightlyLARS
from torch import nn

from vssl_nb.nets.backbones import create
from vssl_nb.training.loop import (
    LARS,
    make_optimizer,
    parameter_groups,
    step_optimizer,
    steps,
    warmup_cosine,
)


@pytest.mark.parametrize(
    "ours, theirs",
    [
        (
            steps((3, 5), 0.1),
            partial(torch.optim.lr_scheduler.MultiStepLR, milestones=[3, 5], gamma=0.1),
        ),
        (warmup_cosine(8), partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=8)),
    ],
)
def test_schedules_are_those_of_pytorch(ours, theirs):
    opt = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = theirs(opt)
    for epoch in range(8):
        assert ours(epoch) == pytest.approx(opt.param_groups[0]["lr"])
        opt.step()
        schedule.step()


def test_schedules_by_hand():
    drops, cosine = steps((250, 280), 0.1), warmup_cosine(10, 2)
    assert [drops(e) for e in (0, 249.9, 250, 279.9, 280, 299)] == pytest.approx(
        [1, 1, 0.1, 0.1, 0.01, 0.01]
    )
    assert [cosine(e) for e in (0, 1, 2, 6, 10, 11)] == pytest.approx([0, 0.5, 1, 0.5, 0, 0])
    with pytest.raises(ValueError, match="shorter than the training"):
        warmup_cosine(5, 5)


def stepped(name, gradient, **options):
    "One parameter at 3 after one step."
    w = nn.Parameter(torch.tensor([3.0]))
    w.grad = torch.tensor([gradient])
    make_optimizer(nn.ParameterList([w]), name, **options).step()
    return w.item()


def test_one_step_by_hand():
    """Adam goes by lr whatever the gradient; L2 decay is a gradient like any other, decoupled decay
    is not.
    """
    assert stepped("adam", 6.0, lr=0.1, weight_decay=0) == pytest.approx(2.9, abs=1e-4)
    assert stepped("sgd", 6.0, lr=0.1, weight_decay=0) == pytest.approx(2.4)
    assert stepped("adam", 0.0, lr=0.1, weight_decay=0.01) == pytest.approx(2.9, abs=1e-4)
    for name in ("adamw", "sgd"):
        assert stepped(name, 0.0, lr=0.1, weight_decay=0.01) == pytest.approx(3 - 0.003)
    # a bias: plain SGD, no decay
    assert stepped("lars", 6.0, lr=0.1, weight_decay=0.5) == pytest.approx(2.4)
    with pytest.raises(
        ValueError, match="optimizer='lion' is unknown; use 'adam', 'adamw', 'sgd' or 'lars'"
    ):
        stepped("lion", 1.0)
    with pytest.raises(ValueError, match="all of them are frozen"):
        make_optimizer(nn.Linear(2, 2).requires_grad_(False))


@pytest.mark.parametrize(
    "name, plain",
    [
        ("adam", torch.optim.Adam),
        ("adamw", torch.optim.AdamW),
        ("sgd", partial(torch.optim.SGD, momentum=0.9)),
    ],
)
def test_fused_steps_are_those_of_a_loop_over_tensors(name, plain):
    def after_five(fused):
        g = torch.Generator().manual_seed(0)
        ws = [nn.Parameter(torch.randn(s, generator=g)) for s in ((3,), (2, 3, 1, 2, 2))]
        opt = (
            make_optimizer(nn.ParameterList(ws), name, 0.1, 0.01)
            if fused
            else plain(ws, lr=0.1, weight_decay=0.01, foreach=False)
        )
        assert opt.defaults["fused"] is (True if fused else None)
        for _ in range(5):
            for w in ws:
                w.grad = torch.randn(w.shape, generator=g)
            opt.step()
        return ws

    for a, b in zip(after_five(True), after_five(False)):
        assert torch.allclose(a, b, atol=1e-5)


# --- LARS

SHAPES = (8, 3, 3, 3, 3), (8,), (8,), (5, 8), (5,), (2, 5, 1), (4, 4), (4, 4), (3, 7)


def weights():
    g = torch.Generator().manual_seed(0)
    ws = [nn.Parameter(torch.randn(s, generator=g)) for s in SHAPES]
    ws[6].data.zero_()
    return ws


def lars(ws):
    return LARS([dict(params=ws[:4], which=0), dict(params=ws[4:], which=1)], 1.0, 0.01, 0.9)


def lightly(ws):
    "Lightly leaves out whatever has no weight decay: here a group of its own."
    return LightlyLARS(
        [
            dict(
                params=[w for w in part if (w.ndim > 1) == many], which=i, weight_decay=0.01 * many
            )
            for i, part in enumerate((ws[:4], ws[4:]))
            for many in (False, True)
        ],
        1.0,
        0.9,
    )


def walk(ws, opt, times=range(8)):
    """Steps at two changing rates; gradients of many sizes, one always zero, one that comes now and
    then.
    """
    factor = warmup_cosine(8, 2)
    for t in times:
        g = torch.Generator().manual_seed(100 + t)
        for i, w in enumerate(ws):
            w.grad = 10.0 ** (i % 4 - 2) * torch.randn(w.shape, generator=g)
            if i == 7:
                w.grad.zero_()
            if i == 8 and t % 3:
                w.grad = None
        before = [None if w.grad is None else w.grad.clone() for w in ws]
        for group in opt.param_groups:
            group["lr"] = (0.8, 0.2)[group["which"]] * factor(t + 1)
        opt.step()
        if isinstance(opt, LARS):  # the gradients belong to the caller
            assert all(a is None or torch.equal(a, w.grad) for a, w in zip(before, ws))
    return ws


def test_lars_is_that_of_lightly():
    ours, theirs = weights(), weights()
    walk(ours, lars(ours))
    walk(theirs, lightly(theirs))
    for a, b in zip(ours, theirs):
        assert torch.allclose(a, b, atol=1e-6)
    assert [not torch.equal(a, b) for a, b in zip(ours, weights())] == [i != 7 for i in range(9)]


def test_lars_goes_on_from_a_checkpoint_with_the_same_bits():
    whole, ws = weights(), weights()
    walk(whole, lars(whole))
    opt = lars(ws)
    walk(ws, opt, range(5))
    kept, again = copy.deepcopy(opt.state_dict()), [nn.Parameter(w.detach().clone()) for w in ws]
    fresh = lars(again)
    fresh.load_state_dict(kept)
    walk(again, fresh, range(5, 8))
    assert all(torch.equal(a, b) for a, b in zip(whole, again))
    assert [{k: len(v) for k, v in s.items()} for s in kept["state"].values()] == [
        {"momentum_buffer": s[0]} for s in SHAPES
    ]


def test_all_layers_go_the_same_share_of_their_length():
    net = create("tiny", seed=0)
    clips = torch.rand(4, 3, 8, 32, 32, generator=torch.Generator().manual_seed(0))
    net(clips).square().sum(1).sqrt().var().backward()
    layers = [p for p in net.parameters() if p.ndim > 1]
    before = [p.detach().clone() for p in layers]
    LARS(net.parameters(), lr=3.2).step()
    for p, b in zip(layers, before):
        assert ((p - b).norm() / b.norm()).item() == pytest.approx(0.0032, rel=1e-3)


def test_what_lars_refuses():
    for wrong in (
        dict(lr=-1.0),
        dict(lr=math.nan),
        dict(lr=1.0, momentum=-0.1),
        dict(lr=1.0, trust=math.inf),
    ):
        with pytest.raises(ValueError, match="must be 0 or more"):
            LARS(weights(), **wrong)
    LARS(weights(), 0.1).step()  # without a gradient nothing moves


# --- parameter groups, and clipping


class Transformer(nn.Module):
    """An encoder that goes slowly, a token without decay, a head at a rate of its own, a frozen
    copy.
    """

    def __init__(self, **more):
        super().__init__()
        self.encoder, self.norm, self.head = nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2)
        self.slow = nn.Linear(3, 4).requires_grad_(False)
        self.token, self.more = nn.Parameter(torch.zeros(1, 1, 4)), more

    def parameter_groups(self):
        return [
            {"params": self.encoder.parameters(), "lr_factor": 0.1},
            {"params": [self.token, *self.slow.parameters()], "weight_decay": 0.0},
            {"params": self.head.parameters(), "lr": 0.02} | self.more,
        ]


def named(opt, module):
    names = {p: n for n, p in module.named_parameters()}
    return [([names[p] for p in g["params"]], g["lr"], g["weight_decay"]) for g in opt.param_groups]


def test_a_method_names_parameter_groups():
    m = Transformer()
    assert named(make_optimizer(m, "adamw", 0.5, 0.3), m) == [
        (["norm.weight", "norm.bias"], 0.5, 0.3),
        (["encoder.weight", "encoder.bias"], 0.05, 0.3),
        (["token"], 0.5, 0.0),
        (["head.weight", "head.bias"], 0.02, 0.3),
    ]
    groups = named(make_optimizer(m, "lars", 0.5, 0.3, decay_bias=False), m)
    assert groups == [
        (["norm.weight", "norm.bias"], 0.5, 0.0),
        (["encoder.weight"], 0.05, 0.3),
        (["encoder.bias"], 0.05, 0.0),
        (["token"], 0.5, 0.0),
        (["head.weight"], 0.02, 0.3),
        (["head.bias"], 0.02, 0.0),
    ]
    assert make_optimizer(Transformer(momentum=0.5), "sgd").param_groups[-1]["momentum"] == 0.5
    with pytest.raises(ValueError, match="Transformer.parameter_groups: 'rate' is unknown to adam"):
        make_optimizer(Transformer(rate=1.0))


def test_without_groups_an_optimizer_is_that_of_all_parameters():
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    ours = make_optimizer(net, "adam", 0.1, 0.01)
    theirs = torch.optim.Adam(net.parameters(), 0.1, weight_decay=0.01, fused=True)
    assert ours.state_dict() == theirs.state_dict()
    assert parameter_groups(net, 0.1) == [{"params": [*net.parameters()]}]


def test_long_gradients_are_clipped():
    def moved(clip_norm):
        a, b = (nn.Parameter(torch.zeros(2)) for _ in range(2))
        a.grad, b.grad = torch.tensor([0.0, 3.0]), torch.tensor([4.0, 0.0])  # together of length 5
        opt = torch.optim.SGD([{"params": [a]}, {"params": [b], "lr": 0.5}], lr=1.0)
        return step_optimizer(opt, clip_norm).item(), a.tolist(), b.tolist(), a.grad

    assert moved(0.0) == (5.0, [0.0, -3.0], [-2.0, 0.0], None)
    norm, a, b, _ = moved(1.0)
    assert (
        norm == 5.0
        and a == pytest.approx([0.0, -0.6], abs=1e-5)
        and b == pytest.approx([-0.4, 0.0], abs=1e-5)
    )
    assert moved(5.1)[1:3] == moved(0.0)[1:3]  # shorter ones stay
