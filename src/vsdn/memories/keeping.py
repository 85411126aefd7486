"""An ODE-RNN whose memory also keeps past values exactly, beside what its networks evolve (ours)."""

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from vsdn.grids.grid import Grid
from vsdn.memories.keepers import AbstractKeeper, Foretold, squash
from vsdn.memories.memory import AbstractFlow, AbstractODERNN, Memory, clock_before, make_moving, tell


class KeepingODERNN(AbstractODERNN):
    """h is a moving part followed by the keeper's state; the cell receives [squash(residual)∘m, m, kept], the residuals
    of the keeper's prediction (standardised if it predicts scales). Networks read the keeper's `read`."""

    flow: AbstractFlow
    cell: eqx.nn.GRUCell
    initial: Float[Array, " hidden"]
    keeper: AbstractKeeper

    def __init__(
        self, keeper: AbstractKeeper, data_size: int, *sizes: int, flow: str, activation: str, key: PRNGKeyArray
    ):
        """`sizes` are those of the clock, of the moving part of h and of the flow's hidden layer."""
        num_news = 2 * data_size + keeper.read_size
        self.flow, self.cell, moving = make_moving(num_news, *sizes, flow=flow, activation=activation, key=key)
        self.keeper = keeper
        learned = 0 if keeper.settled else keeper.size
        self.initial = jnp.concatenate([moving, jnp.zeros(learned, moving.dtype)])

    def begin(self) -> Float[Array, " hidden"]:
        if not self.keeper.settled:
            return self.initial
        return jnp.concatenate([self.initial, self._keeper.begin(self.initial.dtype)])

    def kept(self, h: Float[Array, "*any hidden"]) -> Foretold:
        return self._keeper.foretell(self._split(h)[1])

    def read(self, h: Float[Array, "*any hidden"]) -> Float[Array, "*any read"]:
        moving, kept = self._split(h)
        return jnp.concatenate([moving, self._keeper.read(kept)], axis=-1)

    def show(self, h: Float[Array, "*any whole"]) -> Float[Array, "*any hidden"]:
        moving, kept = self._split(h)
        return jnp.concatenate([moving, self.keeper.show(kept)], axis=-1)

    def timed(self, h: Float[Array, " hidden"], clock: Float[Array, " clock"]) -> Float[Array, " hidden"]:
        moving, kept = self._split(h)
        return jnp.concatenate([moving, self._keeper.timed(kept, clock)])

    def drift(
        self, h: Float[Array, " hidden"], clock: Float[Array, " clock"], dt: Float[Array, ""]
    ) -> Float[Array, " hidden"]:
        moving, kept = self._split(h)
        later = self._keeper.after(self._keeper.timed(kept, clock), dt)
        return jnp.concatenate([super().drift(moving, clock, dt), later])

    def jump(
        self, h: Float[Array, " hidden"], y: Float[Array, " channel"], mask: Bool[Array, " channel"]
    ) -> Float[Array, " hidden"]:
        moving, kept = self._split(h)
        y = jnp.where(mask, y, 0.0)
        moved = self.take(moving, self._news(kept, y, mask), mask)
        return jnp.concatenate([moved, self._keeper.take(kept, y, mask)])

    def forward(self, grid: Grid, start: Float[Array, " hidden"] | None = None) -> Memory:
        """The memory along the grid; a settled keeper is run first and separately, since it has no gradient."""
        if not self.keeper.settled:
            return super().forward(grid, start)
        moving, kept = self._split(self.begin() if start is None else start)
        along = self._keep(grid, kept)
        news = self._news(along.pre, jnp.where(grid.mask, grid.values, 0.0), grid.mask)

        @jax.checkpoint
        def step(h, at):
            dt, clock, news, mask, told = at
            pre = super(KeepingODERNN, self).drift(h, clock, dt)
            return tell(told, pre, self.take(pre, news, mask))

        inputs = (grid.dt, clock_before(grid.clock), news, grid.mask, grid.told)
        moved = jax.lax.scan(step, moving, inputs)[1]
        join = lambda *parts: jnp.concatenate(parts, axis=-1)
        shown = jax.tree.map(join, moved, along._replace(whole=None))
        return shown._replace(whole=join(moved.post, along.whole))

    def _keep(self, grid: Grid, begin: Float[Array, " kept"]) -> Memory:
        """The keeper's state along the grid: the part that is shown, and the whole (compiled away if unused)."""
        keeper = self._keeper

        def step(kept, at):
            dt, clock, y, mask, told = at
            pre = keeper.timed(keeper.after(kept, dt), clock)
            post, memory = tell(told, pre, keeper.take(pre, jnp.where(mask, y, 0.0), mask))
            return post, jax.tree.map(keeper.show, memory)._replace(whole=post)

        return jax.lax.scan(step, begin, (grid.dt, grid.clock, grid.values, grid.mask, grid.told))[1]

    def _news(
        self, kept: Float[Array, "*any kept"], y: Float[Array, "*any channel"], mask: Bool[Array, "*any channel"]
    ) -> Float[Array, "*any news"]:
        """The input of the cell."""
        error = jnp.where(mask, squash(self._keeper.foretell(kept).error(y)), 0.0)
        return jnp.concatenate([error, mask.astype(error.dtype), self._keeper.read(kept)], axis=-1)

    @property
    def _keeper(self) -> AbstractKeeper:
        """The keeper, without gradients if it is settled."""
        return jax.lax.stop_gradient(self.keeper) if self.keeper.settled else self.keeper

    def _split(self, h: Float[Array, "*any hidden"]) -> tuple[Float[Array, "*any moving"], Float[Array, "*any kept"]]:
        """The moving part of h, and the keeper's state."""
        moving, kept = jnp.split(h, [self.cell.hidden_size], axis=-1)
        return moving, kept
