"""What `torch.hub.load('a clone of this repository', NAME, ..., source='local')` offers."""

dependencies = ["torch", "torchvision", "safetensors", "numpy"]


def encoder(name, outside=False):
    """An encoder that somebody shares, by its folder or its name on the Hub: clips (B, 3, T, H, W)
    -> (B, D).
    """
    from vssl_nb.app.sharing import from_pretrained

    return from_pretrained(name, outside)


def released(path, view=None):
    "The encoder of a file of CoCLR, CPR or IIC; its `.released` tells what else is in the file."
    from vssl_nb.runs.released import load_released

    file = load_released(path, view)
    file.encoder.released = file
    return file.encoder


def backbone(name="s3d", seed=0):
    "An untrained backbone, whose weights depend on the seed alone."
    from vssl_nb.nets.backbones import create

    return create(name, seed=seed)
