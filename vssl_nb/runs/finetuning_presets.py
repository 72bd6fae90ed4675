"""The presets of fine-tuning, without PyTorch: in which fields of `FineTuning` each differs.

What no source says is called open. 0.573 of a 4:3 video of 128 x 171 px is a square of 112 px
(b11). b7 to b14: the notes on the released code in nbs/dossiers/released.ipynb.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SQUARE_OF_112 = 0.5730994152046783  # share of a video of 128 x 171 px


@dataclass(frozen=True)
class Preset:
    "How one fine-tuning differs from the defaults of `FineTuning`."

    fields: Mapping[str, Any]  # field -> value
    like: str = ""  # the preset whose fields it begins with; '': the defaults
    # name of the protocol it is tested with, in a report; '': `FineTuning.testing` as it is
    protocol: str = ""
    testing: Mapping[str, Any] = field(default_factory=dict)  # fields of that protocol


PRESETS = {
    # ours: CoCLR's head and rate, 10 windows
    "clean_linear": Preset(
        dict(
            clip="encoder",
            learns="head",
            normalise=True,
            batchnorm=True,
            optimizer="sgd",
            lr=0.1,
        ),
    ),
    # ours
    "clean_finetune": Preset(
        dict(
            clip="encoder",
            dropout=0.5,
        ),
    ),
    # ours: one rate for everything
    "scratch": Preset(
        dict(
            clip="encoder",
            dropout=0.5,
            lr_encoder=0.001,
        ),
    ),
    # b10 (i): L2-norm, BatchNorm1d, FC; RandomSizedCrop 224 from area .2, then 128 (here in one
    # step); colours .4 .4 .4 .1 with probability .3; one flip per batch there, one per clip here;
    # ten crops of 224 from 240 in sliding windows: set jitter=.3 in `testing` for the released
    # colour jitter; b7: the last start
    "coclr_linear": Preset(
        dict(
            length=32,
            size=128,
            jitter=0.3,
            last="released",
            learns="head",
            normalise=True,
            batchnorm=True,
            optimizer="sgd",
            lr=0.1,
            weight_decay=0.001,
            batch=64,
            epochs=100,
            drops=(60.0, 80.0),
        ),
        protocol="ten crops",
        testing=dict(
            windows="sliding",
            crops="ten",
            average="softmax",
            pictures="flow",
        ),
    ),
    # b10; README: two GPUs with 32 each
    "coclr_finetune": Preset(
        dict(
            learns="all",
            normalise=False,
            batchnorm=False,
            optimizer="adam",
            dropout=0.9,
            lr=0.001,
            lr_encoder=0.0001,
            epochs=500,
            drops=(400.0, 450.0),
        ),
        like="coclr_linear",
    ),
    # released code: one rate when all learns
    "coclr_scratch": Preset(
        dict(
            lr_encoder=0.001,
        ),
        like="coclr_finetune",
    ),
    # CPR app. A.2: 16 on each of two GPUs; rates of head and encoder as CoCLR; "32 frames sampled
    # uniformly" may mean one clip per video, CoCLR's windows are taken here
    "cpr_finetune": Preset(
        dict(
            batch=32,
        ),
        like="coclr_finetune",
    ),
    # b11: `--modality res`; 800 of UCF101's 9537 videos held out (by source here; HMDB51:
    # share=400/3570)
    "iic_finetune": Preset(
        dict(
            view="residual",
            residual="rolled",
            last="released",
            area=(SQUARE_OF_112, SQUARE_OF_112),
            aspect=(1.0, 1.0),
            flip=0.0,
            optimizer="sgd",
            lr=0.001,
            lr_encoder=0.001,
            weight_decay=0.0005,
            sgd_momentum=0.9,
            batch=16,
            epochs=150,
            head_init="torch",
            schedule="plateau",
            patience=50,
            floor=0.01,
            by="loss",
            share=800 / 9537,
        ),
        protocol="mean of logits",
        testing=dict(
            windows="linspace",
            crop=0.875,
            pictures="less",
            average="logits",
        ),
    ),
    # MoQuad sec. 4.1: softmax averaged; no video is held out; short ones are repeated, as by CVRL
    # (its model), whose code has these crops; open: weight decay, dropout, pixels
    "moquad_finetune": Preset(
        dict(
            length=16,
            stride=2,
            size=224,
            pad="loop",
            area=(0.3, 1.0),
            aspect=(0.5, 2.0),
            selection="last",
            epochs=100,
            schedule="cosine",
            batch=32,
            optimizer="lars",
            lr=0.08,
            lr_encoder=0.08,
            weight_decay=0.0001,
        ),
        protocol="three crops",
        testing=dict(
            clips=10,
            crops="three",
            average="softmax",
        ),
    ),
    # MoQuad sec. 4.1: as CVRL (b14), whose rate is 32 for 1024 videos; open: batch
    "moquad_linear": Preset(
        dict(
            learns="head",
            length=32,
            normalise=True,
            optimizer="sgd",
            lr=1.0,
            lr_encoder=0.0001,
            warmup=5.0,
            weight_decay=0.0,
        ),
        like="moquad_finetune",
    ),
    # ProViCo sec. 4.2, app. C.2: 16 frames of 112 px in steps of 1, two clips, K = 10; no video is
    # held out; open: optimizer, momentum, weight decay, schedule, pixels (as in its pretraining)
    "provico_finetune": Preset(
        dict(
            area=(SQUARE_OF_112, SQUARE_OF_112),
            aspect=(1.0, 1.0),
            flip=0.0,
            selection="last",
            mixture=2,
            samples=10,
            optimizer="sgd",
            lr=0.02,
            lr_encoder=0.02,
            weight_decay=0.0001,
            batch=96,
            epochs=200,
            schedule="cosine",
        ),
    ),
    # ProViCo sec. 4.2, 4.3: the layer alone learns, probabilities of all sampled embeddings
    # averaged; open: rate, batch and epochs (as in fine-tuning), and whether the Gaussian head
    # learns (here it does not)
    "provico_linear": Preset(
        dict(
            learns="head",
            lr_encoder=0.0001,
        ),
        like="provico_finetune",
    ),
    # VideoMAE (arXiv 2203.12602), appendix, fine-tuning of ViT-B on Kinetics-400, and its released
    # code, run_class_finetuning.py. Not here: two augmented clips of each video in a batch,
    # RandAugment, mixup 0.8, cutmix 1, label smoothing 0.1, random erasing 0.25, drop path 0.1. Its
    # classifier normalises the mean of the tokens by a new layer; here each token is normalised by
    # the layer of the pretraining, then the mean is taken
    "videomae_finetune": Preset(
        dict(
            length=16,
            stride=4,
            size=224,
            area=(0.08, 1.0),
            aspect=(0.75, 1.3333),
            flip=0.5,
            selection="last",
            optimizer="adamw",
            lr=2e-3,  # 1e-3 for 256 videos
            lr_encoder=2e-3,
            layer_decay=0.75,
            weight_decay=0.05,
            decay_bias=False,
            batch=512,
            epochs=75,
            schedule="cosine",
            warmup=5.0,
            lr_floor=1e-3,  # 1e-6 of 1e-3
        ),
        protocol="five times three crops",
        testing=dict(
            clips=5,
            crops="three",
            average="softmax",
        ),
    ),
    # the same for Something-Something V2: 5e-4 for 256 videos. A clip there is a frame from each of
    # 16 parts of the whole video (TSN), which `Sampling` has not; here every second frame, as in
    # its pretraining
    "videomae_finetune_ssv2": Preset(
        dict(
            stride=2,
            flip=0.0,
            lr=1e-3,
            lr_encoder=1e-3,
            epochs=40,
            lr_floor=2e-3,
        ),
        like="videomae_finetune",
        protocol="twice three crops",
        testing=dict(
            clips=2,
            crops="three",
            average="softmax",
        ),
    ),
    # ViT-S, as the paper has it; the released script of Kinetics-400 has 5e-4 for 256 videos and
    # the rates by layer of ViT-B, that of Something-Something V2 has what the paper has
    "videomae_finetune_small": Preset(
        dict(
            layer_decay=0.7,
            epochs=150,
        ),
        like="videomae_finetune",
    ),
    "videomae_finetune_ssv2_small": Preset(
        dict(
            lr=2e-3,  # 1e-3 for 256 videos
            lr_encoder=2e-3,
            layer_decay=0.7,
            lr_floor=1e-3,
        ),
        like="videomae_finetune_ssv2",
    ),
}
