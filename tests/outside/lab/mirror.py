import copy

import torch
import torch.nn.functional as F
from torch import nn

from vssl_nb.nets.heads import Projection
from vssl_nb.ssl.memory import ema_update, named_clips


class Mirror(nn.Module):
    def __init__(self, encoder, view, seed, dim, momentum):
        super().__init__()
        self.view = view
        self.momentum = momentum
        self.encoder = encoder
        self.projection = Projection(encoder.dim, 64, dim, seed + 1)
        self.predictor = Projection(dim, 64, dim, seed + 2)
        self.target = copy.deepcopy(self.network()).requires_grad_(False)

    def network(self):
        return nn.Sequential(self.encoder, self.projection)

    def copies(self):
        return {"encoder": [self.target]}

    def forward(self, batch):
        one, two = named_clips(batch, self.view, ("one", "two"))
        p = [self.predictor(self.projection(self.encoder(x))) for x in (one, two)]
        with torch.no_grad():
            t = [self.target(x) for x in (two, one)]
        cosines = [F.cosine_similarity(a.float(), b.float()).mean() for a, b in zip(p, t)]
        agree = sum(cosines) / 2
        return 2 - 2 * agree, {"agree": agree.detach()}

    def after_step(self, batch):
        ema_update(self.target, self.network(), self.momentum)
