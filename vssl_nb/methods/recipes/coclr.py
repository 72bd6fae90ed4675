"""CoCLR: settings, recipes and the phases of a co-training."""

from collections import Counter
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from ...fields import Count, RecipeError, Share
from ...config import Phase, Recipe, TrainingVideos, find, override, publish
from .infonce import QueueSettings


@dataclass(frozen=True, kw_only=True)
class CoCLRSettings(QueueSettings):
    "One phase of co-training."

    mining_view: str = "flow"  # entry of the batch that mines
    topk: Count = 5  # positives mined for each query (b4)
    miner: str = "topk"  # a name of `ssl.mining.MINERS`, or 'package.module:name'
    miner_options: tuple[str, ...] = ()  # further arguments of the miner, such as 'view=rgb'
    # what clips of the same recording are: 'positive' (released, b4), 'negative', 'ignored'
    same_source: Literal["positive", "negative", "ignored"] = "positive"
    # until the queue is full: 'wait' (released, b4: no step), 'infonce', 'none' (mines, as in
    # Algorithm 1)
    until_full: Literal["wait", "infonce", "none"] = "wait"
    # probability of a step in which the own key is no positive (released 0.9, b4; paper 0)
    drop_own: Share = 0.9
    name: ClassVar[str] = "coclr"
    method: ClassVar[str] = "vssl_nb.methods.coclr:CoCLR"

    def networks(self, view: str) -> dict[str, str]:
        return {"encoder": view, "sampler": self.mining_view}

    def refuse(self, recipe: Recipe, videos: TrainingVideos) -> None:
        "There must be enough to mine from. `RecipeError`."
        super().refuse(recipe, videos)
        # how often a video is in the queue at most, its siblings with it
        siblings = max(Counter(videos.source).values())
        passes = -(-self.queue // len(videos.source))
        excluded = min(self.queue, siblings * (1 + passes))
        if self.topk > self.queue - excluded:
            raise RecipeError(
                f"topk={self.topk} is too many: of the {self.queue} keys of the queue up to "
                f"{excluded} share the source of the query, and these are not searched; "
                "lower topk, or enlarge the queue"
            )


def coclr_recipe(
    base: Recipe,  # of InfoNCE, for the view that learns
    name: str,
    about: str,
    mining_view: str,
    # settings that differ from those of the base, and from the released ones
    method: dict[str, Any] = {},
    **learning,  # likewise
) -> Recipe:
    "A phase of co-training that begins where InfoNCE ends."
    settings = CoCLRSettings(**vars(base.method) | dict(mining_view=mining_view) | method)
    return override(replace(base, method=settings), name=name, about=about, **learning)


def coclr_phases(
    data: str,  # of the names of its recipes: 'toy' for coclr-toy-rgb-cycle1
    motion: str,  # the view beside rgb
    cycles: int,  # each view learns once in a cycle
) -> tuple[Phase, ...]:
    "InfoNCE in both views, then CoCLR in turns, each view mining for the other."
    last = {view: f"infonce-{data.removeprefix('cpr-')}-{view}" for view in ("rgb", motion)}
    phases = [Phase(name) for name in last.values()]
    for cycle in range(1, cycles + 1):
        # b4: Cycle1-FlowMining, then Cycle1-RGBMining from its result
        for view, miner in (("rgb", motion), (motion, "rgb")):
            phases.append(Phase(f"coclr-{data}-{view}-cycle{cycle}", last[view], last[miner]))
            last[view] = phases[-1].recipe
    return tuple(phases)


# the flow of a pair is augmented as the flow that trained it, whichever of the two views mines: one
# draw for both views, colours of flow change, u keeps its sign (released code,
# main_coclr.py:448-475)
RELEASED_FLOW: dict[str, Any] = dict(flow_flip="released", flow_colour="released")


def _released(
    data: str,  # of the names: 'ucf101' or 'k400'
    epochs: int,
    drop: float,  # epoch at which the rate falls
) -> list[Recipe]:
    "Two cycles in both views."
    return [
        coclr_recipe(
            find(f"infonce-{data}-{view}"),
            f"coclr-{data}-{view}-cycle{cycle}",
            f"CoCLR on {data.upper()}, cycle {cycle}: {view} learns, {miner} mines (released code)",
            miner,
            dict(groups=2),
            batch=64,  # README: 2 GPUs x 32 for both
            epochs=epochs,
            drops=(drop,),
            **RELEASED_FLOW,
        )
        for cycle in (1, 2)
        for view, miner in (("rgb", "flow"), ("flow", "rgb"))
    ]


_WORDS = {"toy": "the toy videos", "laptop": "real videos, without a GPU"}


def _small(
    data: str,  # of _WORDS
    cycle: int,  # of the co-training, 1 or 2
    view: str,  # that learns
    miner: str,  # view that mines
    epochs: int,
    method: dict[str, Any] = {},  # as of `coclr_recipe`
) -> Recipe:
    "A phase without a GPU."
    return coclr_recipe(
        find(f"infonce-{data}-{view}"),
        f"coclr-{data}-{view}-cycle{cycle}",
        f"CoCLR on {_WORDS[data]}, cycle {cycle}: {view} learns, {miner} mines",
        miner,
        method,
        epochs=epochs,
        warmup=0.0,
    )


def _toyfull(
    view: str,  # that learns
    miner: str,  # view that mines
) -> Recipe:
    "One cycle with S3D on the full-size toy."
    return coclr_recipe(
        find(f"infonce-toyfull-{view}"),
        f"coclr-toyfull-{view}-cycle1",
        f"CoCLR with S3D on the full-size toy: {view} learns, {miner} mines; for a GPU",
        miner,
        dict(topk=64),  # a quarter of a class in the queue
        epochs=10,
        warmup=0.0,
    )


_TOY_RGB = dict(queue=512, topk=20, momentum=0.95, temperature=0.07)
_TOY_RESIDUAL = dict(queue=512, topk=20, temperature=0.07)

publish(
    CoCLRSettings,
    # README: 100 epochs, drop at 80
    *_released("ucf101", 100, 80.0),
    *_released("k400", 50, 40.0),
    _small("toy", 1, "rgb", "residual", 28, _TOY_RGB),
    _small("toy", 1, "residual", "rgb", 3, _TOY_RESIDUAL),
    _small("toy", 2, "rgb", "residual", 28, _TOY_RGB),
    _small("toy", 2, "residual", "rgb", 3, _TOY_RESIDUAL),
    _small("laptop", 1, "rgb", "residual", 15),
    _small("laptop", 1, "residual", "rgb", 15),
    _small("laptop", 2, "rgb", "residual", 15),
    _small("laptop", 2, "residual", "rgb", 15),
    _toyfull("rgb", "flow"),
    _toyfull("flow", "rgb"),
    cotrainings={
        "coclr-ucf101": coclr_phases("ucf101", "flow", 2),
        "coclr-k400": coclr_phases("k400", "flow", 2),
        "coclr-toy": coclr_phases("toy", "residual", 1),
        "coclr-laptop": coclr_phases("laptop", "residual", 1),
        "coclr-toyfull": coclr_phases("toyfull", "flow", 1),
    },
)
