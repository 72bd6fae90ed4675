"""Self-supervised video representation learning.

`losses`, `backbones`, `mining`, `train`, `recipes`, `features`, `retrieval` and `load_released` are
imported when they are first used, so that `import vssl_nb` needs no PyTorch.
"""

__version__ = "0.1.0"

# what other people's code takes from here -> module, or module:object
PLACES = {
    "losses": "ssl.losses",
    "backbones": "nets.backbones",
    "mining": "ssl.mining",
    "train": "training.loop",
    "recipes": "methods.recipes",
    "features": "measure.features",
    "retrieval": "measure.retrieval",
    "load_released": "runs.released:load_released",
}


def __getattr__(name: str):
    "One of `PLACES`, when it is first used."
    from importlib import import_module

    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module_name, _, part = PLACES[name].partition(":")
    module = import_module(f"{__name__}.{module_name}")
    return getattr(module, part) if part else module


def __dir__():
    return [*globals(), *PLACES]


def main() -> int:  # exit code
    "`vssl-nb …`, see `app.cli.main`; Ctrl-C while Python reads its modules ends it as later."
    import os
    import signal

    # no exception: a module that is half imported could lose it
    def end(number: int, frame=None) -> int:
        os.write(2, b"vssl-nb: interrupted\n")
        os._exit(128 + number)

    before = signal.getsignal(signal.SIGINT)
    # what somebody else has arranged, or a shell for its background jobs, stays
    if before is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)
    from .app import cli

    try:
        signal.signal(signal.SIGINT, before)
        return cli.main()
    except KeyboardInterrupt:
        return end(signal.SIGINT)
