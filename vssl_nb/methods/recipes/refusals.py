"""What several methods refuse: batches and BatchNorm groups that do not fit."""

from ...config import Recipe
from ...fields import RecipeError


def refuse_groups(
    groups: int | None,  # of BatchNorm, over all processes
    recipe: Recipe,
) -> None:
    "BatchNorm groups must be of one size. `RecipeError`."
    batch = recipe.learning.batch
    if groups and batch % groups:
        raise RecipeError(
            f"batch={batch} does not divide into groups={groups} BatchNorm groups; "
            "change one of them"
        )


def refuse_batches(recipe: Recipe) -> None:
    "All negatives of a step, and all statistics, are those of one batch. `RecipeError`."
    if recipe.learning.batch == 1:
        raise RecipeError(
            "batch=1 leaves no other video to compare with; use batch=2 or more in each process"
        )
    if recipe.learning.accumulate > 1:
        raise RecipeError(
            f"accumulate={recipe.learning.accumulate} would compare, and normalise, each part "
            "of a batch by itself; use accumulate=1, and --activation-checkpointing where memory "
            "is short"
        )
