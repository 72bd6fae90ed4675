import torch
import torch.nn.functional as F
from torch import nn

from vssl_nb.distributed import rank, world_size
from vssl_nb.nets.backbones import TransformerBlock, VideoViT, in_memory, initialise
from vssl_nb.rng import generator
from vssl_nb.ssl.memory import ema_update, momentum_at, momentum_copy, named_clips


def filled(make, seed):
    "A network whose weights depend on the seed alone."
    with torch.device("meta"):
        net = make()
    return initialise(in_memory(net), torch.Generator().manual_seed(seed), "torch")


def two_blocks(seed):
    return filled(lambda: VideoViT(dim=48, depth=2, heads=2), seed)


class Predictor(nn.Module):
    "Guesses hidden tokens from visible ones and from where the hidden ones are."

    def __init__(self, dim):
        super().__init__()
        self.mask_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.block = TransformerBlock(dim, 2, 2)
        self.out = nn.Linear(dim, dim)

    def forward(self, visible, positions):
        hidden = self.mask_token + positions
        tokens = self.block(torch.cat([visible, hidden], 1))
        return self.out(tokens[:, visible.shape[1] :])


class Masked(nn.Module):
    exported = "target"

    def __init__(self, encoder, view, seed, visible, momentum):
        super().__init__()
        self.view = view
        self.seed = seed
        self.visible = visible
        self.momentum = momentum
        self.encoder = encoder
        self.predictor = filled(lambda: Predictor(encoder.dim), seed + 1)
        self.target = momentum_copy(encoder)[0]

    def copies(self):
        return {"encoder": [self.target]}

    def split(self, B, N, batch):
        "Indices of visible and of hidden tokens, drawn for the whole batch of all processes."
        rng = generator("mask", self.seed, batch.get("step", 0), batch.get("part", 0))
        order = torch.from_numpy(rng.random((B * world_size(), N)).argsort(1))
        order = order.chunk(world_size())[rank()]
        n = max(1, round(self.visible * N))
        return order[:, :n], order[:, n:]

    def forward(self, batch):
        (x,) = named_clips(batch, self.view, ("x",))
        t, h, w = (size // k for size, k in zip(x.shape[2:], self.encoder.tubelets.tubelet))
        positions = self.encoder.tubelets.positions((t, h, w), device=x.device)
        visible, hidden = (i.to(x.device) for i in self.split(len(x), t * h * w, batch))

        predicted = self.predictor(self.encoder.tokens(x, visible), positions[hidden])
        with torch.no_grad():
            every = self.target.tokens(x)
        wanted = every.gather(1, hidden[..., None].expand(-1, -1, every.shape[2]))
        loss = F.smooth_l1_loss(predicted.float(), wanted.float())
        return loss, {"spread": every.mean(1).std(0).mean()}

    def after_step(self, batch):
        m = momentum_at(self.momentum, batch.get("progress", 0.0), "linear")
        ema_update(self.target, self.encoder, m)
