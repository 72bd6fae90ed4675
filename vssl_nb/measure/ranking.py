"The videos of a folder, sorted by how unsure a network with a Gaussian head is about them"

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ..data.manifest import Manifest
from ..training.checkpoints import read_heads
from ..training.machine import Machine
from .features import check_suffix, encoder_protocol, open_encoder, trusted, videos_of, write_csv
from .gaussian import (
    VideoGaussians,
    between_share,
    refuse_grouping,
    video_gaussians,
    video_uncertainty,
)
from .windows import refuse_repeated_clips


def rank_videos(
    g: VideoGaussians,
    manifest: Manifest,
) -> list[dict[str, Any]]:  # rank, video, label, uncertainty, between
    "The videos, the least sure first, of equals the earlier row."
    uncertainty = video_uncertainty(g)
    between = between_share(g)
    order = uncertainty.argsort(descending=True, stable=True).tolist()
    ranked = []
    for rank, i in enumerate(order, 1):
        video = manifest.rows[int(g.row[i])]
        ranked.append(
            {
                "rank": rank,
                "video": video.video,
                "label": video.label,
                "uncertainty": float(uncertainty[i]),
                "between": float(between[i]),
            }
        )
    return ranked


def ranking_text(
    ranked: Sequence[dict[str, Any]],  # of `rank_videos`
    show: int = 20,  # lines: half of them the least sure, half the surest; 0: all
) -> str:
    "A line for each video, and a line of dots for those that are left out."
    width = max(len(r["video"]) for r in ranked)
    lines = []
    for r in ranked:
        line = (
            f"{r['rank']:>6}  {r['uncertainty']:.3e}  {100 * r['between']:7.1f} %  "
            f"{r['video']:{width}}  {r['label']}"
        )
        lines.append(line.rstrip())
    if 0 < show < len(lines):
        surest = show // 2
        dots = f"   ...  {len(lines) - show} more"
        lines = [*lines[: show - surest], dots, *lines[len(lines) - surest :]]
    head = f"{'rank':>6}  {'variance':9}  {'between':>9}  video"
    return "\n".join([head, *lines])


def write_ranking(
    path: str | Path,  # ends in .csv
    ranked: Sequence[dict[str, Any]],  # of `rank_videos`
    dropped: Mapping[str, str] = {},  # video -> why it could not be read
) -> Path:
    "All videos, the least sure first, and those that could not be read; whole or not at all."
    path = check_suffix(path, ".csv")
    columns = ("rank", "video", "label", "uncertainty", "between")
    rows: list[list[Any]] = [[*columns, "status"]]
    for r in ranked:
        rows.append([*(r[c] for c in columns), "ok"])
    for video, why in dropped.items():
        rows.append(["", video, "", "", "", why])
    return write_csv(path, rows)


def folder_gaussians(
    run,  # a run folder whose encoder was exported with a Gaussian head
    data,  # a Manifest, its file, or any folder of videos
    clips: int = 10,  # of a video
    of: int = 2,  # of `video_gaussians`
    batch: int = 64,  # of `video_gaussians`
    machine: Machine = Machine(),  # of `video_gaussians`
    # returns: in the order of the manifest; what cannot be read is in `dropped`
) -> tuple[VideoGaussians, Manifest]:
    "The distributions of all videos of a folder. ValueError."
    refuse_grouping(clips, of)
    run = Path(run)
    encoder, prepare = open_encoder(run)
    file = run / "encoder.safetensors"
    head = read_heads(file, trusted(run)).get("gaussian")
    if head is None:
        raise ValueError(
            f"{file}: has no Gaussian head, so that it predicts no variance; name a run whose "
            "method exports one"
        )
    m = data if isinstance(data, Manifest) else videos_of(data)
    rows = [r for r, video in enumerate(m.rows) if video.status == "ok"]
    lost = {r: video.status for r, video in enumerate(m.rows) if video.status != "ok"}
    if len(m) < 2:
        raise ValueError(f"{m.path}: one video cannot be ranked; name a folder of several")
    if not rows:
        raise ValueError(f"{m.path}: not one of {len(m)} videos can be read: {lost[0]}")
    p = encoder_protocol(prepare.about, clips=clips)
    refuse_repeated_clips(p, m.rows)
    g = video_gaussians(
        encoder,
        head,
        m,
        rows,
        prepare.about["view"],
        p,
        of=of,
        batch=batch,
        machine=machine,
        **prepare.views,
    )
    g.dropped.update(lost)
    return g, m
