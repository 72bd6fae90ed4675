"Every command of `vssl-nb`, by name, in the order in which the overview lists them."

from typing import Any

from .data import Flow, MakeManifest, Toy
from .measurement import Extract, Mine, ProbeCommand, Retrieve, UncertaintyCommand, VerdictCommand
from .results import Claims, Demo, Report, Reproduce
from .training import Cotrain, DryRunCommand, Finetune, Pretrain, Recipes
from .use import Convert, Explore, Predict, Search

COMMANDS: dict[str, Any] = {
    "demo": Demo,
    "toy": Toy,
    "manifest": MakeManifest,
    "flow": Flow,
    "recipes": Recipes,
    "dry-run": DryRunCommand,
    "pretrain": Pretrain,
    "cotrain": Cotrain,
    "extract": Extract,
    "search": Search,
    "explore": Explore,
    "retrieve": Retrieve,
    "probe": ProbeCommand,
    "finetune": Finetune,
    "predict": Predict,
    "convert": Convert,
    "mine": Mine,
    "uncertainty": UncertaintyCommand,
    "claims": Claims,
    "reproduce": Reproduce,
    "verdict": VerdictCommand,
    "report": Report,
}
