import torch
from torch import nn

from vssl_nb.methods.lejepa import random_directions, sigreg
from vssl_nb.nets.heads import Projection
from vssl_nb.ssl.memory import named_clips


class Sizes(nn.Module):
    def __init__(self, encoder, view, seed, dim, slices):
        super().__init__()
        self.view = view
        self.seed = seed
        self.slices = slices
        self.encoder = encoder
        self.projection = Projection(encoder.dim, 32, dim, seed + 1)

    def embed(self, batch, view, clips):
        x = torch.stack(named_clips(batch, view, ("",) * clips), 1)
        assert x.shape[-1] == {"_middle": 24, "_small": 16}.get(view.removeprefix(self.view), 32)
        z = self.projection(self.encoder(x.flatten(0, 1)))
        return z.unflatten(0, x.shape[:2]).transpose(0, 1).float()

    def forward(self, batch):
        whole = self.embed(batch, self.view, 2)
        middle = self.embed(batch, f"{self.view}_middle", 2)
        small = self.embed(batch, f"{self.view}_small", 3)
        z = torch.cat([whole, middle, small])
        predict = (z - whole.mean(0)).square().mean()
        a = random_directions(z.shape[2], self.slices, self.seed, batch.get("step", 0))
        return 0.95 * predict + 0.05 * sigreg(z, a.to(z.device)), {"predict": predict.detach()}
