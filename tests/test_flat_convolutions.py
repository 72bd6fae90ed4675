"""Convolutions over time alone and over channels alone against PyTorch's own 3-D convolution:
results, all gradients, layouts, cost.

On a processor they are computed in another form; everywhere else they are the 3-D convolution.
"""

from unittest import mock

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from vssl_nb.nets.backbones import PointConv, TimeConv, cost, create, factored_conv

LAST = torch.channels_last_3d
LAYOUTS = {"contiguous": torch.contiguous_format, "last": LAST}
# (channels in, out, frames of the kernel, stride), (B, T, H, W)
SHAPES = [
    ((4, 6, 3, 1), (2, 7, 5, 3)),
    ((16, 16, 3, 1), (8, 16, 6, 6)),
    ((3, 5, 5, 2), (1, 9, 4, 1)),
    ((1, 4, 7, 2), (2, 8, 3, 3)),
    ((6, 1, 3, 3), (2, 8, 1, 5)),
    ((8, 8, 1, 2), (17, 5, 2, 2)),
    ((4, 4, 3, 2), (2, 1, 1, 1)),
]


def random(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def plainly(conv: nn.Conv3d, x: Tensor) -> Tensor:
    "What PyTorch's own 3-D convolution makes of it."
    return nn.functional.conv3d(x, conv.weight, None, conv.stride, conv.padding)


def results(conv: nn.Conv3d, x: Tensor, forward) -> list[Tensor]:
    "Output, and gradients of the input and of the weight."
    x = x.detach().requires_grad_()
    y = forward(x)
    # not the mean: its gradient would be the same everywhere
    slope = random(*y.shape)
    return [y, *torch.autograd.grad(y, [x, conv.weight], slope)]


def assert_same(ours: list[Tensor], theirs: list[Tensor]) -> None:
    "Equal within 1e-5 of the largest number, and of the same shapes."
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape and a.isfinite().all()
        assert (a - b).abs().max() <= 1e-5 * b.abs().max()


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind, shape", SHAPES)
def test_a_convolution_over_time(kind, shape, layout):
    conv = TimeConv(*kind)
    B, T, H, W = shape
    x = random(B, kind[0], T, H, W).contiguous(memory_format=LAYOUTS[layout])
    conv.weight.data = conv.weight.data.contiguous(memory_format=LAYOUTS[layout])
    with mock.patch.object(nn.Conv3d, "forward", side_effect=AssertionError):  # another form
        ours = results(conv, x, conv)
    assert_same(ours, results(conv, x, lambda x: plainly(conv, x)))
    with torch.inference_mode():
        assert torch.equal(conv(x), ours[0])


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dims, shape", [((4, 6), (2, 7, 5, 3)), ((1, 3), (3, 1, 2, 2))])
def test_a_convolution_over_channels(dims, shape, layout):
    conv = PointConv(*dims)
    B, T, H, W = shape
    x = random(B, dims[0], T, H, W).contiguous(memory_format=LAYOUTS[layout])
    assert_same(results(conv, x, conv), results(conv, x, lambda x: plainly(conv, x)))


def test_what_is_no_block_of_memory():
    "Clips of a larger batch, and of mixed axes."
    conv = TimeConv(4, 6, 3, 2)
    batch = random(3, 2, 4, 7, 5, 3)
    for x in (batch[:, 1], batch[:, 0].mT, batch[:, 0, :, :, ::2, 1:]):
        assert_same(results(conv, x, conv), results(conv, x, lambda x: plainly(conv, x)))


def test_layouts_stay():
    x = random(2, 4, 7, 5, 3)
    for conv in (TimeConv(4, 6), PointConv(4, 6)):
        assert conv(x).is_contiguous()
        assert conv(x.contiguous(memory_format=LAST)).is_contiguous(memory_format=LAST)
        # what the optimizer walks through beside the weight
        conv.weight.data = conv.weight.data.contiguous(memory_format=LAST)
        conv(x.contiguous(memory_format=LAST)).sum().backward()
        assert conv.weight.grad.stride() == conv.weight.stride()


def test_names_and_shapes_of_weights_are_those_of_before():
    assert {k: tuple(w.shape) for k, w in TimeConv(4, 6, 5).state_dict().items()} == {
        "weight": (6, 4, 5, 1, 1)
    }
    assert {k: tuple(w.shape) for k, w in PointConv(4, 6).state_dict().items()} == {
        "weight": (6, 4, 1, 1, 1)
    }
    weights = factored_conv(4, 6, (3, 3), (2, 2)).state_dict()
    assert weights["temporal_conv.weight"].shape[2:] == (3, 1, 1)


def plain_net(net: nn.Module, x: Tensor) -> Tensor:
    "A network in which every convolution is PyTorch's own."
    with (
        mock.patch.object(TimeConv, "forward", nn.Conv3d.forward),
        mock.patch.object(PointConv, "forward", nn.Conv3d.forward),
    ):
        return net(x)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["tiny", "s3d", "r2plus1d_iic"])
def test_a_network_in_training(name, layout):
    """In double precision, S3D with given statistics: BatchNorm of few numbers makes rounding
    larger.
    """
    net = create(name).double().train(name != "s3d")
    x = random(2, 3, 8, 32, 32).double().contiguous(memory_format=LAYOUTS[layout])
    for p in net.parameters():
        if p.ndim == 5:
            p.data = p.data.contiguous(memory_format=LAYOUTS[layout])
    found = []
    for forward in (net, lambda x: plain_net(net, x)):
        y = forward(x)
        found.append([y, *torch.autograd.grad(y.square().sum(), list(net.parameters()))])
    assert_same(*found)


@pytest.mark.parametrize("conv", [TimeConv(4, 6, 3, 2), PointConv(4, 6)])
def test_compiled(conv):
    "The form does not depend on the compiler; its backend would only take time here."
    x = random(2, 4, 7, 5, 3).contiguous(memory_format=LAST)
    compiled = torch.compile(conv, backend="aot_eager", fullgraph=True)
    assert_same(results(conv, x, compiled), results(conv, x, lambda x: plainly(conv, x)))


def counted(conv: nn.Conv3d, x: Tensor) -> int:
    "Operations of a forward and a backward pass."
    with FlopCounterMode(display=False) as flops:
        conv(x.detach().requires_grad_()).sum().backward()
    return flops.get_total_flops()


@pytest.mark.parametrize("make", [lambda: TimeConv(4, 6, 3, 2), lambda: PointConv(4, 6)])
def test_other_devices_keep_the_3d_convolution_and_operations_are_counted_alike(make):
    x = random(2, 4, 7, 5, 3).contiguous(memory_format=LAST)
    here = counted(make(), x)
    with (
        mock.patch.object(nn.functional, "conv2d", side_effect=AssertionError),
        mock.patch.object(nn.functional, "linear", side_effect=AssertionError),
    ):
        assert counted(make().to("meta"), x.to("meta")) == here
        with FakeTensorMode(allow_non_fake_inputs=True), torch.device("cuda"):
            y = make()(torch.empty(x.shape).contiguous(memory_format=LAST))
        assert y.device.type == "cuda"
    with FakeTensorMode():
        y = make()(torch.empty(x.shape).contiguous(memory_format=LAST))
        assert y.device.type == "cpu" and y.is_contiguous(memory_format=LAST)
    assert y.shape == make()(x).shape


def test_a_training_keeps_what_its_cost_says():
    "`cost` looks at 3-D convolutions on the meta device; what is kept here are views of the same."
    net, clip = create("tiny").train(), (16, 32, 32)
    for p in net.parameters():
        if p.ndim == 5:
            p.data = p.data.contiguous(memory_format=LAST)
    x = random(1, 3, *clip).contiguous(memory_format=LAST)
    kept: dict[int, Tensor] = {}

    def pack(saved: Tensor) -> Tensor:
        kept[saved.untyped_storage().data_ptr()] = saved
        return saved

    with (
        torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved),
        FlopCounterMode(display=False) as flops,
    ):
        y = net(x)
    for weights in (*net.parameters(), *net.buffers()):
        kept.pop(weights.untyped_storage().data_ptr(), None)
    computed = cost(net, clip)
    assert sum(saved.untyped_storage().nbytes() for saved in kept.values()) == computed.saved
    assert flops.get_total_flops() == computed.flops and y.requires_grad
