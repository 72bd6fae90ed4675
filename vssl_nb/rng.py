"Where chance comes from: one generator for each purpose, seed and step."

import numpy as np
from numpy.random import Generator

from .arguments import one_of

# what is drawn -> last number of the key of its generator
PURPOSES = {
    "clips": 0,  # windows and augmentation of one video
    "order": 1,  # of the videos in an epoch
    "groups": 2,  # which key goes to which BatchNorm group
    "coin": 3,  # does the own key count as a positive in this step?
    "validation": 4,  # which test videos choose the epoch
    "dropout": 5,  # of features
    "broken": 6,  # how a clip is broken to become a negative
    "negatives": 7,  # rows of a memory bank
    "samples": 8,  # of Gaussian embeddings
    "mask": 9,  # tokens or pixels that are hidden
    "noise": 10,  # anything else that a method draws
}


def generator(
    purpose: str,  # a key of PURPOSES
    seed: int,  # of the run
    step: int = 0,  # optimizer step; epoch for 'clips' and 'order'
    part: int = 0,  # batch of an accumulated step; row of the manifest for 'clips'
) -> Generator:  # at its beginning, alike in every process
    "The random numbers of one purpose in one step; no other purpose, step or part shares them."
    one_of(tuple(PURPOSES), purpose=purpose)
    return np.random.default_rng((seed, step, part, PURPOSES[purpose]))


def coin(
    p: float,  # probability of True
    seed: int,  # of the run, the same in all processes
    step: int,  # optimizer step, the same in all processes
) -> bool:
    "One coin a step, for the whole global batch."
    return bool(generator("coin", seed, step).random() < p)
