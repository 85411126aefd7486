"""One loop for every model and objective: a function from state to state; logging and stopping are up to the caller."""

import functools
import math
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import optax
from jaxtyping import Array, Float, Int, PRNGKeyArray

from vsdn import metrics
from vsdn.batches import Batch, Batches
from vsdn.memories.keepers import AbstractKeeper
from vsdn.models import AbstractModel, segments
from vsdn.models.base import Evidence
from vsdn.models.latent import AbstractLatent
from vsdn.models.vsdn import VSDN
from vsdn.settings import ObjectiveSettings, Settings, TrainingSettings
from vsdn.training import lessons, objectives


class TrainState(NamedTuple):
    """Everything needed to resume a run exactly; noise and data order follow from seed and step."""

    params: Any  # the model's arrays
    opt_state: Any
    step: Int[Array, ""]  # number of batches so far
    epoch: Int[Array, ""]  # epochs finished, validation included
    loss_sum: Float[Array, ""]  # sum over the finite steps of this epoch
    finite: Int[Array, ""]  # the number of finite steps
    skipped: Int[Array, ""]  # total number of steps without a finite loss and gradient
    skipped_in_row: Int[Array, ""]
    best_params: Any
    best_score: Float[Array, ""]
    best_epoch: Int[Array, ""]


class Epoch(NamedTuple):
    """The record of one epoch; scores are in nats per observed value."""

    epoch: int
    step: int
    loss: float  # minus the bound, on the training part
    valid_nll: float  # of each row predicted from the rows before it, on the validation part
    best_nll: float  # the best score so far: this NLL, or the loss or CRPS if selected by that
    best_epoch: int
    skipped: int
    valid_loss: float = math.inf  # minus the bound, on the validation part, if requested
    valid_crps: float = math.inf  # as `valid_nll`, in each variable's standard deviations, if selected by CRPS

    def moved(self, loss: float, nll: float, *, by: str | None) -> "Epoch":
        """The record with its scores in other units: `Batches.log_unit` is added to all but the CRPS."""
        valid = {
            "valid_nll": self.valid_nll + nll,
            "best_nll": self.best_nll + (0.0 if by == "crps" else nll),
            "valid_loss": self.valid_loss + nll,
        }
        return self._replace(loss=self.loss + loss, **valid)


def make_optimiser(settings: TrainingSettings, num_steps: int) -> optax.GradientTransformation:
    """AdamW with clipping; the learning rate warms up, then follows a cosine or stays constant."""
    warmup = min(settings.lr_warmup, num_steps // 4)
    peak = settings.learning_rate
    if settings.schedule == "cosine":
        rest = optax.cosine_decay_schedule(peak, max(num_steps - warmup, 1), alpha=1e-3)
    else:
        rest = optax.constant_schedule(peak)
    rate = optax.join_schedules([optax.linear_schedule(0.0, peak, warmup + 1), rest], [warmup])
    descent = optax.adamw(rate, weight_decay=settings.weight_decay, mask=_decaying)
    return optax.chain(optax.clip_by_global_norm(settings.clip), descent)


def _decaying(params: Any) -> Any:
    """Which parameters have weight decay: all but those of keepers that training leaves alone."""
    is_settled = lambda part: isinstance(part, AbstractKeeper) and part.settled
    flags = lambda part: jax.tree.map(lambda _: not is_settled(part), part)
    return jax.tree.map(flags, params, is_leaf=is_settled)


def init(model: AbstractModel, optimiser: optax.GradientTransformation) -> TrainState:
    """The state before the first step."""
    strong = lambda leaf: jnp.asarray(leaf, leaf.dtype)  # a weakly typed array would recompile `update`
    params = jax.tree.map(strong, eqx.filter(model, eqx.is_inexact_array))
    zero, count = jnp.zeros(()), jnp.zeros((), jnp.int32)
    return TrainState(
        params,
        optimiser.init(params),
        count,
        count,
        zero,
        count,
        count,
        count,
        params,
        jnp.asarray(jnp.inf, zero.dtype),
        count,
    )


def first_state(model: AbstractModel, batches: Batches, settings: Settings) -> TrainState:
    """The state in which `train` starts a run with these settings."""
    steps = len(batches.epoch()) * (settings.training.epochs or 0)
    return init(model, make_optimiser(settings.training, steps))


def bound(evidence: Evidence, beta: Float[Array, ""], settings: ObjectiveSettings) -> Float[Array, ""]:
    """The bound of one series that the settings select."""
    if settings.objective == "vae":
        return objectives.vae(evidence, beta)
    return objectives.mixed(evidence, settings.alpha, beta)


def mean_loss(
    model: AbstractModel, batch: Batch, beta: Float[Array, ""], *, settings: ObjectiveSettings, key: PRNGKeyArray
) -> Float[Array, ""]:
    """Minus the bound, per observed value of the batch."""
    keys = jr.split(key, batch.weight.shape[0])
    if settings.save_memory and isinstance(model, VSDN):
        evidence = segments.batch_evidence(model, batch.grid, num_samples=settings.num_paths, keys=keys)
    else:
        evidence = model.batch_evidence(batch.grid, num_samples=settings.num_paths, keys=keys)
    bounds = jax.vmap(lambda evidence: bound(evidence, beta, settings))(evidence)
    seen = jnp.sum(batch.grid.mask, axis=(1, 2), dtype=bounds.dtype)
    return -jnp.sum(bounds * batch.weight) / jnp.sum(seen * batch.weight)


def make_update(
    static: Any, optimiser: optax.GradientTransformation, settings: Settings, num_batches: int, rest: np.ndarray
) -> Callable[[TrainState, Batch], TrainState]:
    """One training step: a finite loss and gradient update the weights, any other is skipped and counted."""
    objective = settings.objective
    warmup_steps = max(objective.kl_warmup * num_batches, 1)

    @jax.jit
    def update(state: TrainState, batch: Batch) -> TrainState:
        seed_key = jr.key(settings.training.seed)
        key, cut_key = jr.fold_in(seed_key, state.step), jr.fold_in(seed_key, ~state.step)  # no step has this number
        beta = objective.beta * jnp.minimum((state.step + 1) / warmup_steps, 1.0)
        batch = teach(batch, settings.training, rest, key=cut_key)
        loss_of = lambda params: mean_loss(eqx.combine(params, static), batch, beta, settings=objective, key=key)
        loss, grads = jax.value_and_grad(loss_of)(state.params)
        good = jnp.isfinite(loss) & jnp.isfinite(optax.tree.norm(grads))
        updates, opt_state = optimiser.update(grads, state.opt_state, state.params)
        params = optax.apply_updates(state.params, updates)
        keep = functools.partial(jax.tree.map, lambda new, old: jnp.where(good, new, old))
        return state._replace(
            params=keep(params, state.params),
            opt_state=keep(opt_state, state.opt_state),
            step=state.step + 1,
            loss_sum=state.loss_sum + jnp.where(good, loss, 0.0),
            finite=state.finite + good,
            skipped=state.skipped + ~good,
            skipped_in_row=jnp.where(good, 0, state.skipped_in_row + 1),
        )

    return update


def teach(batch: Batch, settings: TrainingSettings, rest: np.ndarray, *, key: PRNGKeyArray) -> Batch:
    """The batch as a training step sees it, augmented."""
    least = (settings.given_rows or 1) + 1  # one of them is predicted from the others
    cut_key, hide_key, begin_key, given_key, stretch_key, shift_key = jr.split(key, 6)
    batch = lessons.begin(batch, settings.begin_share, least, key=begin_key)
    batch = lessons.stretch(batch, settings.stretch, jnp.asarray(rest, batch.grid.dt.dtype), key=stretch_key)
    batch = lessons.shift(batch, settings.shift, key=shift_key)
    batch = lessons.cut(batch, settings.cut_share or 0.0, key=cut_key)
    batch = lessons.hide(batch, settings.hide_share, key=hide_key)
    batch = lessons.give(batch, settings.given_rows)
    return lessons.shift_given(batch, settings.given_shift, key=given_key)


rough_crps = functools.partial(metrics.crps, num_nodes=32)  # accurate enough to compare epochs


def make_score(
    static: Any, settings: TrainingSettings, of: Callable[..., Array] = metrics.nll
) -> Callable[[Any, Batches], float]:
    """The validation score of given weights: the mean `of` each scored value, predicted from the rows before it."""

    @jax.jit
    def score_batch(params: Any, batch: Batch) -> tuple[Array, Array]:
        model, batch = eqx.combine(params, static), lessons.give(batch, settings.given_rows)
        if isinstance(model, AbstractLatent):  # each of their forecasts reads the whole past
            batch = lessons.thinned(batch, settings.valid_rows)
        keys = jr.split(jr.key(settings.seed), batch.weight.shape[0])
        mixtures = model.batch_predict(batch.grid, num_samples=settings.valid_paths, keys=keys)
        each = jax.vmap(lambda grid, mixture: of(model.likelihood, mixture, grid.values[grid.rows]))
        scores = each(batch.grid, mixtures)
        seen = jax.vmap(lambda grid: grid.mask[grid.rows])(batch.grid) & batch.scored[..., None]
        seen = seen & (batch.weight > 0)[:, None, None]
        return jnp.sum(jnp.where(seen, scores, 0.0)), jnp.sum(seen)

    def score(params: Any, batches: Batches) -> float:
        sums = [score_batch(params, batch) for batch in batches]
        total = sum(float(part) for part, _ in sums) / max(sum(int(count) for _, count in sums), 1)
        return total if np.isfinite(total) else float("inf")

    return score


def make_bound(static: Any, settings: Settings) -> Callable[[Any, Batches], float]:
    """Minus the bound that the settings select, per scored value, for given weights; always with the same noise. Where
    the last rows of a series are scored: the bound of the whole series less that of the rows before them."""

    @jax.jit
    def sum_batch(params: Any, batch: Batch) -> tuple[Array, Array]:
        path_key, hide_key = jr.split(jr.key(settings.training.seed))
        beta = jnp.asarray(settings.objective.beta)
        batch = lessons.hide(batch, settings.training.hide_share, key=hide_key)
        batch = lessons.give(batch, settings.training.given_rows)
        loss = mean_loss(eqx.combine(params, static), batch, beta, settings=settings.objective, key=path_key)
        seen = jnp.sum(batch.grid.mask, axis=(1, 2), dtype=loss.dtype) @ batch.weight
        return loss * seen, seen

    def sums(params: Any, batches: Iterable[Batch]) -> np.ndarray:
        parts = [np.asarray(sum_batch(params, batch), float) for batch in batches]
        return np.sum(parts, axis=0)

    def loss(params: Any, batches: Batches) -> float:
        total, count = sums(params, batches)
        if not batches.grids.scored.all():
            total, count = (total, count) - sums(params, map(lessons.known, batches))
        mean = total / max(count, 1.0)
        return mean if np.isfinite(mean) else math.inf

    return loss


def why_ended(state: TrainState, settings: TrainingSettings) -> str | None:
    """The reason why a run in this state is over; None while it is not."""
    if int(state.skipped_in_row) >= settings.max_skipped:
        return f"{int(state.skipped_in_row)} steps in a row had no finite gradient"
    if int(state.epoch) >= (settings.epochs or 0):
        return "all epochs done"
    if int(state.epoch) - int(state.best_epoch) >= settings.patience:
        return f"no better validation score for {settings.patience} epochs"
    return None


def train(
    model: AbstractModel, batches: Batches, valid: Batches, settings: Settings, state: TrainState
) -> Iterator[tuple[TrainState, Epoch | None]]:
    """Yields the state after every step, and after every epoch once more together with its record."""
    training, num_batches = settings.training, len(batches.epoch())
    optimiser = make_optimiser(training, num_batches * (training.epochs or 0))
    static = eqx.partition(model, eqx.is_inexact_array)[1]
    update = make_update(static, optimiser, settings, num_batches, batches.rest)
    score = make_score(static, training)
    by = training.select_by
    valid_loss = make_bound(static, settings) if training.valid_bound or by == "bound" else lambda *_: math.inf
    valid_crps = make_score(static, training, rough_crps) if by == "crps" else lambda *_: math.inf
    gone = lambda state: int(state.skipped_in_row) >= training.max_skipped
    begun = lambda state: int(state.step) > int(state.epoch) * num_batches
    while why_ended(state, training) is None or (gone(state) and begun(state)):
        epoch, place = divmod(int(state.step), num_batches)
        if epoch == int(state.epoch) and not gone(state):
            order = batches.epoch(np.random.default_rng([training.seed, epoch]))
            for series in order[place:]:
                state = update(state, batches.load(series))
                yield state, None
                if gone(state):
                    break  # ends the epoch early, which its record shows
        nll, loss, crps = (each(state.params, valid) for each in (score, valid_loss, valid_crps))
        state, record = _finish_epoch(state, {"bound": loss, "crps": crps}.get(by or "", nll), keep=by == "last")
        yield state, record._replace(valid_nll=nll, valid_loss=loss, valid_crps=crps)


def _finish_epoch(state: TrainState, score: float, *, keep: bool) -> tuple[TrainState, Epoch]:
    """The state with its best weights kept (or these in any case) and its epoch counted, and the epoch's record."""
    epoch = int(state.epoch) + 1
    loss = float(state.loss_sum) / max(int(state.finite), 1)
    rounded = jnp.asarray(score, state.best_score.dtype)  # rounded before comparing: an equal score is no improvement
    if keep or rounded < state.best_score:
        best_epoch = jnp.asarray(epoch, jnp.int32)
        state = state._replace(best_params=state.params, best_score=rounded, best_epoch=best_epoch)
    zero, count = jnp.zeros_like(state.loss_sum), jnp.zeros((), jnp.int32)
    state = state._replace(epoch=jnp.asarray(epoch, jnp.int32), loss_sum=zero, finite=count)
    best_nll, best_epoch = float(state.best_score), int(state.best_epoch)
    return state, Epoch(epoch, int(state.step), loss, score, best_nll, best_epoch, int(state.skipped))
