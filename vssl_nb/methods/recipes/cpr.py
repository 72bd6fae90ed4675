"CPR: cascaded mining on CoCLR; recipes."

from typing import Any

from ...config import publish, find
from .coclr import RELEASED_FLOW, coclr_phases, coclr_recipe


def cascade_options(
    stages: int,
    ratio: float = 0.5,  # share that each stage but the last keeps
    *more: str,  # further options of `ssl.mining.Cascade`, such as 'order=paper'
) -> dict[str, Any]:  # fields of the settings of CoCLR and IIC
    "Mining in a cascade."
    return dict(miner="cascade", miner_options=(f"stages={stages}", f"ratio={ratio:g}", *more))


_CPR_README: dict[str, Any] = RELEASED_FLOW | dict(  # the loader of CoCLR
    batch=32, epochs=100, drops=(80.0,)
)  # b5: 2 GPUs x 16; 100 epochs, drop at 80
# Algorithm 1 has none of these
_CPR_PAPER = dict(same_source="negative", until_full="none", drop_own=0.0)
_BOTH = (("rgb", "flow"), ("flow", "rgb"))
_CPR = [
    coclr_recipe(
        find(f"infonce-ucf101-{view}"),
        f"coclr-cpr-ucf101-{view}-cycle{cycle}",
        f"CPR on CoCLR, cycle {cycle}: {view} learns, {miner} and it mine in 7 stages (released "
        "code)",
        miner,
        cascade_options(7),
        **_CPR_README,
    )
    for cycle in (1, 2)
    for view, miner in _BOTH
]
_CPR += [
    coclr_recipe(
        find(f"infonce-ucf101-{view}"),
        f"coclr-cpr-ucf101-{view}-paper",
        f"CPR on CoCLR as the paper writes it: {view} learns",
        miner,
        cascade_options(7, 0.5, "order=paper", "siblings=none") | _CPR_PAPER,
        # section 4.1: 400 epochs, 2 GPUs x 16; appendix A.1
        batch=32,
        epochs=400,
        drops=(300.0, 350.0),
        **RELEASED_FLOW,
    )
    for view, miner in _BOTH
]
_CPR += [  # tables 1 and 2; the row of 7 stages and ratio 0.5 is cycle 1 of above
    coclr_recipe(
        find("infonce-ucf101-rgb"),
        f"coclr-cpr-ucf101-rgb-s{s}-r{ratio:g}",
        f"CPR's ablation: {s} stages, ratio {ratio:g}; 100 epochs",
        "flow",
        cascade_options(s, ratio),
        **_CPR_README,
    )
    for s, ratio in ((1, 0.5), (3, 0.5), (5, 0.5), (3, 0.8), (7, 0.8))
]
_CPR += [
    coclr_recipe(
        find("infonce-toy-rgb"),
        "coclr-cpr-toy-rgb-cycle1",
        "CPR on CoCLR on the toy videos: 3 stages",
        "residual",
        dict(queue=512, topk=20, momentum=0.95, temperature=0.07) | cascade_options(3, 0.6),
        epochs=28,
        warmup=0.0,
    )
]
publish(None, *_CPR, cotrainings={"coclr-cpr-ucf101": coclr_phases("cpr-ucf101", "flow", 2)})
