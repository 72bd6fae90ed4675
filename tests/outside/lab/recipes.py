from vssl_nb.methods.recipes import find, override

mirror = override(
    find("infonce-toy-residual"),
    name="mirror-lab",
    method="lab.settings:MirrorSettings",
    view="lab.parts:gradient",
    backbone="lab.parts:mc3_18",
    optimizer="sgd",
    lr=0.01,
    epochs=1,
    batch=8,
    warmup=0.5,
    length=4,
    size=16,
    test_clips=1,
)
