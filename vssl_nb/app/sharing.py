"An encoder to share: a folder with the weights, what they are, and a page for people"

import json
from pathlib import Path
from typing import Any

from torch import nn

from ..files import write_whole
from ..runs.hub import fetch_folder
from ..training.checkpoints import CheckpointError, export_encoder, read_encoder, read_heads

WEIGHTS = "model.safetensors"
CONFIG = "config.json"
CARD = "README.md"


def save_pretrained(
    folder,  # made, or written over; `hf upload OWNER/NAME FOLDER` brings it to the Hub
    encoder: nn.Module,  # from `backbones.create`, or of a run
    about: dict[str, Any],  # at least `backbone`; plain values only
    heads: dict[str, nn.Module] | None = None,  # from `heads.make_head`
) -> Path:  # the folder
    "Write an encoder as a folder: weights, config.json and a card for the Hub. `CheckpointError`."
    folder = Path(folder)
    _, about = read_encoder(export_encoder(folder / WEIGHTS, encoder, about, heads))
    config = json.dumps(about, indent=1) + "\n"
    write_whole(folder / CONFIG, lambda f: f.write(config.encode()))
    card = _card(about)
    write_whole(folder / CARD, lambda f: f.write(card.encode()))
    return folder


def _card(
    about: dict[str, Any],  # metadata of an encoder's file
) -> str:  # Markdown
    rows = [
        f"| {k} | {v} |"
        for k, v in about.items()
        if v is not None and not isinstance(v, (dict, list))
    ]
    title = about.get("recipe") or about.get("method") or about["backbone"]
    template = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    return template.format(rows="\n".join(rows), title=title)


def from_pretrained(
    name,  # a folder, or 'owner/name' on the Hub, whose files are fetched
    outside: bool = False,  # may it name a backbone of somebody's own? that code is imported
    # returns: (B, 3, T, H, W) -> (B, D), in eval mode, without gradient; with `.about` and
    # `.kept_heads`
) -> nn.Module:
    "An encoder that somebody shares. `CheckpointError`."
    folder = fetch_folder(name, [WEIGHTS, CONFIG, CARD])
    if not (folder / WEIGHTS).is_file():
        raise CheckpointError(
            f"{folder}: has no {WEIGHTS}, so it is not the folder of an encoder; `vssl-nb convert "
            "RUN FOLDER` makes one"
        )
    encoder: Any
    encoder, about = read_encoder(folder / WEIGHTS, outside)
    encoder.about = about
    encoder.kept_heads = read_heads(folder / WEIGHTS, outside)
    return encoder
