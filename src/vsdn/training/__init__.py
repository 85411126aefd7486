"""Training: planning a run, initialising memories, augmenting batches, and the loop."""

from vsdn.training.loop import (
    Epoch,
    TrainState,
    first_state,
    make_bound,
    make_optimiser,
    make_score,
    make_update,
    mean_loss,
    train,
    why_ended,
)

__all__ = [
    "Epoch",
    "TrainState",
    "first_state",
    "make_bound",
    "make_optimiser",
    "make_score",
    "make_update",
    "mean_loss",
    "train",
    "why_ended",
]
