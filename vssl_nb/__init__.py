"""Self-supervised video representation learning.

`losses`, `backbones`, `mining`, `train`, `recipes`, `features`, `retrieval` and `load_released` are imported
when they are first used, so that `import vssl_nb` needs no PyTorch."""

__version__ = "0.1.0"

# name -> module, or module:object
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
    from importlib import import_module

    if name not in PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module, _, part = PLACES[name].partition(":")
    value = import_module(f"{__name__}.{module}")
    return getattr(value, part) if part else value


def __dir__():
    return [*globals(), *PLACES]


def main() -> int:  # exit code
    "`vssl-nb …`, see `cli.main`; Ctrl-C while Python reads the modules of it ends it as later."
    import os, signal

    def end(
        number,
        frame=None,
    ) -> int:  # no exception: a module that is half imported could lose it
        os.write(2, b"vssl-nb: interrupted\n")
        os._exit(128 + number)

    usual = signal.getsignal(signal.SIGINT)
    if usual is signal.default_int_handler:
        signal.signal(signal.SIGINT, end)
    from .app import cli

    try:
        signal.signal(signal.SIGINT, usual)
        return cli.main()
    except KeyboardInterrupt:
        return end(signal.SIGINT)
