import torch
from torchvision.models import video


def gradient(clips):  # (B, V, 3, T, H, W) in [0, 1]
    "Horizontal and vertical edges, and the grey picture."
    grey = clips.mean(2)
    x = grey.diff(dim=-1, append=grey[..., -1:])
    y = grey.diff(dim=-2, append=grey[..., -1:, :])
    return torch.stack([x, y, grey - 0.5], 2) * 4


def mc3_18(seed):
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = video.mc3_18(weights=None)
    net.fc = torch.nn.Identity()
    net.dim = 512
    return net


def nearest(sim, k):
    best = sim.topk(min(k, sim.shape[1]), 1).indices
    return torch.zeros_like(sim, dtype=torch.bool).scatter_(1, best, True)


class MutualNearest:
    "Candidates among the k nearest of a query that is among the k nearest of theirs."

    def __init__(self, k, view=None):
        self.k = k
        self.view = view

    def __call__(self, sims, excluded):
        assert len(sims) > 1, "a miner sees every view"
        sim = sims[self.view or next(iter(sims))].masked_fill(excluded, -torch.inf)
        return nearest(sim, self.k) & nearest(sim.T, self.k).T & ~excluded
