from vssl_nb.methods.recipes import find, override

masked = override(
    find("lejepa-toy-vit"),
    name="masked-lab",
    method="masked.settings:MaskedSettings",
    backbone="masked.method:two_blocks",
    clips=1,
    length=8,
    epochs=2,
    batch=8,
    warmup=0.5,
    test_clips=1,
)
