"""CPR: cascaded mining on CoCLR; recipes."""

from typing import Any

from ...config import Recipe, find, publish
from .coclr import RELEASED_FLOW, coclr_phases, coclr_recipe


def cascade_options(
    stages: int,
    ratio: float = 0.5,  # share that each stage but the last keeps
    *more: str,  # further options of `ssl.mining.Cascade`, such as 'order=paper'
) -> dict[str, Any]:  # fields of the settings of CoCLR and IIC
    "Mining in a cascade."
    return dict(miner="cascade", miner_options=(f"stages={stages}", f"ratio={ratio:g}", *more))


# the loader of CoCLR; b5: 2 GPUs x 16, 100 epochs, drop at 80
_README: dict[str, Any] = RELEASED_FLOW | dict(batch=32, epochs=100, drops=(80.0,))

# section 4.1: 400 epochs, 2 GPUs x 16; appendix A.1
_PAPER: dict[str, Any] = RELEASED_FLOW | dict(batch=32, epochs=400, drops=(300.0, 350.0))

# Algorithm 1 has none of what the released code adds
_ALGORITHM_1 = dict(same_source="negative", until_full="none", drop_own=0.0)


def _cycle(
    cycle: int,  # of the co-training, 1 or 2
    view: str,  # that learns
    miner: str,  # view that mines
) -> Recipe:
    "A phase as released."
    return coclr_recipe(
        find(f"infonce-ucf101-{view}"),
        f"coclr-cpr-ucf101-{view}-cycle{cycle}",
        f"CPR on CoCLR, cycle {cycle}: {view} learns, {miner} and it mine in 7 stages (released "
        "code)",
        miner,
        cascade_options(7),
        **_README,
    )


def _as_written(
    view: str,  # that learns
    miner: str,  # view that mines
) -> Recipe:
    "A phase as the paper writes it."
    return coclr_recipe(
        find(f"infonce-ucf101-{view}"),
        f"coclr-cpr-ucf101-{view}-paper",
        f"CPR on CoCLR as the paper writes it: {view} learns",
        miner,
        cascade_options(7, 0.5, "order=paper", "siblings=none") | _ALGORITHM_1,
        **_PAPER,
    )


def _ablation(
    stages: int,
    ratio: float,
) -> Recipe:
    "A row of tables 1 and 2; that of 7 stages and ratio 0.5 is cycle 1."
    return coclr_recipe(
        find("infonce-ucf101-rgb"),
        f"coclr-cpr-ucf101-rgb-s{stages}-r{ratio:g}",
        f"CPR's ablation: {stages} stages, ratio {ratio:g}; 100 epochs",
        "flow",
        cascade_options(stages, ratio),
        **_README,
    )


_toy = coclr_recipe(
    find("infonce-toy-rgb"),
    "coclr-cpr-toy-rgb-cycle1",
    "CPR on CoCLR on the toy videos: 3 stages",
    "residual",
    dict(queue=512, topk=20, momentum=0.95, temperature=0.07) | cascade_options(3, 0.6),
    epochs=28,
    warmup=0.0,
)

publish(
    None,
    _cycle(1, "rgb", "flow"),
    _cycle(1, "flow", "rgb"),
    _cycle(2, "rgb", "flow"),
    _cycle(2, "flow", "rgb"),
    _as_written("rgb", "flow"),
    _as_written("flow", "rgb"),
    _ablation(1, 0.5),
    _ablation(3, 0.5),
    _ablation(5, 0.5),
    _ablation(3, 0.8),
    _ablation(7, 0.8),
    _toy,
    cotrainings={"coclr-cpr-ucf101": coclr_phases("cpr-ucf101", "flow", 2)},
)
