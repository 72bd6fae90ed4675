"Residual networks and C3D in later rooms: files, protocols, BatchNorm groups, compiler, budget."

import copy
import math
import subprocess
import sys

import pytest
import torch
from torch import nn

from vssl_nb.nets import backbones
from vssl_nb.runs import trace
from vssl_nb.training import checkpoints
from vssl_nb.measure import features
from vssl_nb.papers import published
from vssl_nb.nets.backbones import BACKBONES, create
from vssl_nb.nets.batchnorm import GroupBatchNorm, group_batchnorm
from vssl_nb.runs.experiment import resolve
from vssl_nb.runs.trace import dry_run
from vssl_nb.runs.finetuning import TRAININGS
from vssl_nb.measure.protocols import protocol
from vssl_nb.methods.recipes import find, override

NAMES = ["r3d18", "r2plus1d18", "r3d18_iic", "r2plus1d_iic", "c3d", "r3d18_slow", "r3d50_cvrl"]


def clips(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def test_they_are_all_here():
    assert [*backbones.BACKBONES] == [
        "tiny",
        "small",
        "s3d",
        "s3dg",
        *NAMES,
        "vit_toy",
        "vit_toy_fine",
        "vit_small",
        "vit_base",
        "vit_large",
        "vit_toy_videomae",
        "vit_small_videomae",
        "vit_base_videomae",
        "vit_large_videomae",
        "vit_large_vjepa2",
        "vit_huge_vjepa2",
    ]


def test_torchvision_is_imported_by_its_networks_alone():
    "It takes most of a second: neither the table nor another row waits for it."
    code = (
        "import sys; from vssl_nb.nets.backbones import create; create('s3d'); "
        "create('r3d18_iic'); assert 'torchvision' not in sys.modules; "
        "create('r3d18'); assert 'torchvision' in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["r3d18", "c3d", "r3d50_cvrl"])
def test_weights_memory_precision_and_layout(name):
    "As the page of the residual networks checks it of the smaller ones."
    before = torch.get_rng_state()
    net = create(name, seed=3)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(x.isfinite().all() for x in net.state_dict().values())
    for conv in [
        m for m in net.modules() if isinstance(m, nn.Conv3d) and m.weight.numel() > 30_000
    ]:
        # fan out, as torchvision
        he = math.sqrt(2 / (conv.out_channels * math.prod(conv.kernel_size)))
        # uniform, PyTorch's default
        spread = he if name != "c3d" else 1 / math.sqrt(3 * conv.weight[0].numel())
        assert abs(conv.weight.std() / spread - 1) < 0.03
    x, new, found = clips(2, 3, 8, 48, 48), copy.deepcopy(net.state_dict()), []
    for net.activation_checkpointing in (False, True):
        net.load_state_dict(new)
        net.train().zero_grad()
        (net(x) - 1).square().mean().backward()
        found.append([p.grad for p in net.parameters()] + [b.clone() for b in net.buffers()])
    assert all(torch.equal(a, b) and a.isfinite().all() for a, b in zip(*found))
    assert {int(b) for b in net.buffers() if b.dtype == torch.long} == {1}
    with torch.no_grad():
        plain = net.eval()(x)
        with torch.autocast("cpu", torch.bfloat16):
            half = net(x)
        net.to(memory_format=torch.channels_last_3d)
        last = net(x.contiguous(memory_format=torch.channels_last_3d))
    torch.testing.assert_close(last, plain, rtol=1e-3, atol=1e-4 * float(plain.abs().max()))
    assert nn.functional.cosine_similarity(half.float(), plain).min() > 0.999


@pytest.mark.parametrize("name", ["r3d18_iic", "r2plus1d_iic", "c3d"])
def test_first_weights_of_iic_are_pytorchs_own(name):
    """Released code b11: no layer of models/*.py is filled by hand, so they are those of the
    constructors.
    """
    with torch.random.fork_rng():
        torch.manual_seed(3)
        theirs = BACKBONES[name].build().state_dict()
    for k, v in create(name, seed=3).state_dict().items():
        torch.testing.assert_close(v, theirs[k], rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize(
    "name,args", [("r3d18_iic", {}), ("r2plus1d18", {}), ("c3d", {}), ("r3d50_cvrl", {"eps": 1e-3})]
)
def test_an_encoder_comes_back_from_its_file(name, args, tmp_path):
    net = create(name, seed=1, **args)
    net.train()(clips(2, 3, 8, 32, 32))  # running statistics that are not those of a new one
    path = tmp_path / "encoder.safetensors"
    checkpoints.export_encoder(path, net, {"backbone": name, "backbone_args": args})
    back, about = checkpoints.read_encoder(path)
    x = clips(2, 3, 8, 48, 48, seed=1)
    with torch.no_grad():
        assert torch.equal(back(x), net.eval()(x))
    assert about["backbone"] == name and not back.training
    checkpoints.export_encoder(path, net, {"backbone": "r3d18"})
    with pytest.raises(checkpoints.CheckpointError, match="do not fit backbone 'r3d18'"):
        checkpoints.read_encoder(path)


@pytest.mark.parametrize("name", ["r3d18_iic", "r2plus1d_iic", "c3d"])
def test_the_features_of_iic(name):
    """Released code b11: 10 clips of 16 x 112 x 112, maxima of 2 x 2 pixels of the last maps: 9216
    numbers.
    """
    see = protocol("iic_official")
    assert (see.length, see.size, see.feature) == (16, 112, "maps")
    net = create(name).eval()
    assert BACKBONES[name].clip == (16, 112, 112)
    with torch.inference_mode():
        x = clips(1, 3, 16, 112, 112)
        found, maps = features._encode(net, x, "rgb", see), net.maps(x)
    assert found.shape == (1, 512 * 2 * 3 * 3) == (1, 9216)
    by_hand = torch.stack(
        [
            maps[0, c, t, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2].max()
            for c in range(512)
            for t in range(2)
            for i in range(3)
            for j in range(3)
        ]
    )
    assert torch.equal(found[0], by_hand)


@pytest.mark.parametrize("name", ["r2plus1d_iic", "r3d18_slow"])
@pytest.mark.parametrize("again", [False, True])
def test_groups_of_batchnorm_reach_every_block(name, again):
    """Layers are looked up by name, so those that `group_batchnorm` puts in their place are the
    ones that run.
    """
    plain = create(name, seed=1).train()
    parts = group_batchnorm(copy.deepcopy(plain), "split", 2)
    assert all(
        isinstance(m, GroupBatchNorm)
        for m in parts.modules()
        if isinstance(m, nn.modules.batchnorm._BatchNorm)
    )
    parts.activation_checkpointing = again
    x = clips(4, 3, 8, 64, 64)
    y = parts(x)
    halves = torch.cat([copy.deepcopy(plain)(half) for half in x.chunk(2)])
    torch.testing.assert_close(y, halves, rtol=1e-4, atol=1e-5)
    assert (y - plain(x)).abs().max() > 0.01 * y.abs().max()
    y.square().sum().backward()
    assert all(p.grad is not None for p in parts.parameters())


@pytest.mark.parametrize("again", [False, True])
def test_the_compiler_takes_a_network_whole(again):
    "Also where a block is several layers, put together while it runs."
    net, x = create("r3d18_iic", seed=1).train(), clips(2, 3, 8, 32, 32)
    other = copy.deepcopy(net)
    other.activation_checkpointing = again
    run = torch.compile(other, backend="aot_eager", fullgraph=True)
    net(x).square().sum().backward(), run(x).square().sum().backward()
    for a, b in zip(net.parameters(), other.parameters()):
        torch.testing.assert_close(b.grad, a.grad, rtol=1e-3, atol=1e-3 * float(a.grad.abs().max()))


def at_its_size(
    name,
    groups=1,
):  # a recipe of the paper with this network and the clips it is meant for
    T, size, _ = BACKBONES[name].clip
    return override(
        find("infonce-ucf101-rgb"), backbone=name, size=size, length=T, batch=8, groups=groups
    )


@pytest.mark.parametrize("name", ["r3d18", "r3d50_cvrl"])
def test_a_recipe_takes_them(name):
    "Two steps on the pretended GPU; the CPU never waits, everything learns."
    seen = dry_run(resolve(at_its_size(name)), activation_checkpointing=name == "r3d18")
    assert seen.learned == (True, True) and not seen.waits


def test_recomputation_pays_in_a_step():
    "What the budget says of a step, beside what the network keeps by shapes alone."
    recipe, net = at_its_size("r2plus1d_iic", 4), BACKBONES["r2plus1d_iic"].shapes()
    whole, again = (
        trace.trace_step(resolve(recipe), activation_checkpointing=a).total.max()
        for a in (False, True)
    )
    kept = backbones.cost(net, BACKBONES["r2plus1d_iic"].clip).saved
    net.activation_checkpointing = True
    # eight clips in bfloat16
    saved = 8 * (kept - backbones.cost(net, BACKBONES["r2plus1d_iic"].clip).saved) / 2
    # not all of it: the block that is due is there again
    assert 0.6 * saved < whole - again < saved


def test_a_finetuning_takes_them():
    recipe = TRAININGS["cpr_finetune"].recipe(override(find("infonce-ucf101-rgb"), backbone="c3d"))
    seen = dry_run(resolve(recipe), activation_checkpointing=True)
    assert seen.learned == (True, True) and not seen.waits


def test_published_numbers_know_them():
    "Rows of IIC's release stand behind IIC's network, not behind R3D-18 of torchvision."
    found = published.match("iic-ucf101-residual", backbone="r3d18_iic")
    assert found and {r.backbone for r in found} <= {"R3D", ""}
    assert {published.WORDS["backbone"][n.replace("_", "")] for n in NAMES} == {
        "R3D-18",
        "R(2+1)D",
        "R3D",
        "C3D",
        "R3D-50",
    }
