"""What the library's own parts keep of `vssl_nb.contracts`."""

import subprocess
import sys

import pytest
import torch

from vssl_nb.contracts import Encoder, Method, Miner
from vssl_nb.measure.protocols import PROTOCOLS
from vssl_nb.methods.recipes import METHODS
from vssl_nb.names import load_object
from vssl_nb.nets.backbones import create
from vssl_nb.ssl.mining import MINERS

# further arguments of some methods
MORE = {
    "coclr": lambda: dict(sampler=create("tiny", seed=1)),
    "iic": lambda: dict(videos=8),
    "supervised": lambda: dict(classes=3),
}


def make(name):
    settings = METHODS[name]
    cls = load_object(settings.method, "a method")
    encoder = create("vit_toy" if hasattr(settings, "encoder_needs") else "tiny")
    return cls(encoder, view="rgb", seed=0, **MORE.get(name, dict)())


def test_the_file_imports_no_torch():
    code = "import sys, vssl_nb.contracts; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


@pytest.mark.parametrize("name", METHODS)
def test_methods_keep_the_contract(name):
    method = make(name)
    assert isinstance(method, Method) and isinstance(method.encoder, Encoder)
    assert type(METHODS[name].name) is str and METHODS[name].method.startswith("vssl_nb.")

    networks = torch.nn.Sequential(method.encoder, getattr(method, "projection", None))
    copies = getattr(method, "copies", dict)()
    assert bool(copies) == any("momentum_encoder" in n for n, _ in method.named_modules())
    for slow in copies.get("encoder", ()):
        pairs = list(zip(slow.parameters(), networks.parameters(), strict=True))
        assert pairs and all(torch.equal(a, b) and a is not b for a, b in pairs)


def test_miners_and_protocols_keep_the_contract():
    assert all(isinstance(miner(k=1), Miner) for miner in MINERS.values())
    for protocol in PROTOCOLS.values():
        fields = ("name", "clips", "length", "stride", "size", "centre", "metric")
        assert all(hasattr(protocol, field) for field in fields) and "\n" in str(protocol)


def test_nothing_follows_a_step_of_a_method_without_memory():
    assert {name for name in METHODS if not hasattr(make(name), "after_step")} == {
        "simclr",
        "moquad",
        "provico",
        "lejepa",
        "supervised",
    }
