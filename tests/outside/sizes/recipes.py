from vssl_nb.methods.recipes import find, override

sizes = override(
    find("lejepa-toy-vit"),
    name="sizes-lab",
    method="sizes.settings:SizesSettings",
    epochs=1,
    batch=8,
    warmup=0.5,
    test_clips=1,
)
