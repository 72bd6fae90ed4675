"The clips of a few videos, decoded once, on which an encoder is looked at again and again"

from typing import Any

import torch
from torch import Tensor, nn

from ..data.manifest import Manifest
from ..data.views import Views, raw_inputs
from .features import ProtocolClips, device_of, evaluating, on_device, on_its_way, read_items
from .protocols import Protocol


class FixedClips:
    "The clips of some videos under a protocol, decoded once and kept as bytes."

    def __init__(
        self,
        manifest: Manifest,
        rows: list[int],  # of the manifest
        view: str,  # what the encoder sees: 'rgb', 'flow' or 'residual'
        protocol: Protocol,  # which clips, as many of every video
        batch: int = 16,  # clips at a time
        workers: int = 0,  # processes that decode, once
        **views,  # further arguments of `Views`, as in pretraining
    ):
        self._live = views.pop("live", None)
        self.manifest = manifest
        self.rows = rows
        self.view = view
        self.views = Views(view, **views)
        load = raw_inputs(view, self._live is not None)
        self._clips = ProtocolClips(manifest, rows, protocol, load=load)
        self._step = max(batch // protocol.clips, 1)  # videos at a time
        self._workers = workers
        # 'clips' or 'flow' (B, V, T, H, W, 3) uint8, and the `rows` they are of
        self.kept = list[dict[str, Any]]()
        # row -> why it cannot be read
        self.dropped = dict[int, str]()

    def decoded(
        self,
        encoder: nn.Module,
    ) -> torch.device:  # where the encoder is
        "Decode now, unless that was done; ValueError if fewer than two videos can be read."
        device = device_of(encoder)
        if self.kept:
            return device
        flow = "flow" in self._clips.load or "pair" in self._clips.load
        stream = "flow" if flow else "clips"
        videos = self._decode(stream, device)
        if len(videos) < 2:
            raise ValueError(
                f"{self.manifest.path}: fewer than two of {len(self.rows)} videos can be read "
                f"({next(iter(self.dropped.values()), '')}); run `vssl-nb manifest` again to mark "
                "the others"
            )
        for i in range(0, len(videos), self._step):
            rows, clips = zip(*videos[i : i + self._step])
            x = torch.stack(clips)
            if device.type == "cuda":
                x = x.pin_memory()
            self.kept.append({stream: x, "rows": list(rows)})
        return device

    def _decode(
        self,
        stream: str,  # 'clips' or 'flow'
        device: torch.device,  # where live flow is solved for
    ) -> list[tuple[int, Tensor]]:  # row; (V, T, H, W, 3) uint8
        videos = []
        for item in read_items(self._clips, self._workers):
            if "bad" in item:
                self.dropped[item["row"]] = item["bad"]
                continue
            if self._live:
                item = on_device(item, device, self._live)
            videos.append((item["row"], item[stream][item["at"]].cpu()))
        return videos

    @torch.no_grad()
    def features(
        self,
        encoder: nn.Module,
    ) -> tuple[Tensor, list[int]]:  # (N, V, D) float32 on the CPU; rows
        """Features of all clips, in evaluation mode and float32; the encoder gets back the modes it
        had.
        """
        device = self.decoded(encoder)
        rows: list[int] = []
        parts = []
        with evaluating(encoder):
            for batch in self.kept:
                rows += batch["rows"]
                raw = {k: v.to(device, non_blocking=True) for k, v in batch.items() if k != "rows"}
                x = self.views(raw)[self.view]
                # not encoder(x): a compiled one would be compiled again for these shapes
                with torch.autocast(device.type, enabled=False):
                    y = encoder.forward(x.flatten(0, 1))
                parts.append((on_its_way(y), x.shape[:2]))
        return torch.cat([read().unflatten(0, shape) for read, shape in parts]), rows
