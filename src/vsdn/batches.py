"""A data set in batches of series of similar length, so that only a handful of shapes is compiled."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float

from vsdn.grids.grid import Grid
from vsdn.grids.marching import GridSet


class Batch(NamedTuple):
    """Some series with a leading batch axis; a series of weight 0 is padding."""

    grid: Grid
    weight: Float[Array, " batch"]
    scored: Bool[Array, "batch row"]  # which rows count for the validation score


@dataclass(frozen=True, eq=False)
class Batches:
    """The series of a data set, sorted into buckets; all series of a bucket are padded to one shape."""

    grids: GridSet
    bucket: np.ndarray  # of each series
    num_points: np.ndarray  # of each bucket, including at least one point of padding
    num_rows: np.ndarray
    batch_size: int
    rest: np.ndarray  # value at rest of each variable that is a rate, in the model's units; else NaN

    @classmethod
    def make(cls, grids: GridSet, batch_size: int, num_buckets: int, *, rest: np.ndarray | None = None) -> "Batches":
        ends = bucket_lengths(grids.num_points, num_buckets)
        bucket = np.searchsorted(ends, grids.num_points)
        rows = [max(1, grids.num_rows[bucket == number].max(initial=0)) for number in range(len(ends))]
        rest = np.full(grids.mask.shape[1], np.nan) if rest is None else rest
        return cls(grids, bucket, ends + 1, np.array(rows), min(batch_size, len(bucket)), rest)

    def epoch(self, rng: np.random.Generator | None = None) -> list[np.ndarray]:
        """The series numbers of each batch of one pass; series and batches are shuffled if `rng` is given."""
        lists = []
        for number in range(len(self.num_points)):
            series = np.flatnonzero(self.bucket == number)
            series = series if rng is None else rng.permutation(series)
            lists += np.split(series, range(self.batch_size, len(series), self.batch_size))
        return lists if rng is None else [lists[number] for number in rng.permutation(len(lists))]

    def load(self, series: np.ndarray) -> Batch:
        """One batch of an epoch as arrays, padded to the batch size; sorted by length, since the kernel skips steps in
        which no neighbouring series moves."""
        number = self.bucket[series[0]]
        series = series[np.argsort(self.grids.num_points[series], kind="stable")]
        filled = np.concatenate([series, np.full(self.batch_size - len(series), series[0])])
        grid = self.grids.pad(filled, int(self.num_points[number]), int(self.num_rows[number]))
        weight = jnp.asarray(np.arange(self.batch_size) < len(series), grid.dt.dtype)
        return Batch(grid, weight, jnp.asarray(self.grids.pad_scored(filled, int(self.num_rows[number]))))

    def __iter__(self) -> Iterator[Batch]:
        """Every series once, in batches."""
        return (self.load(series) for series in self.epoch())

    def log_unit(self, std: np.ndarray) -> float:
        """The offset from nats per observed value in the model's units to the user's: the mean log of std."""
        seen = self.grids.mask[self.grids.scored].sum(axis=0)
        return float(np.sum(seen * np.log(std)) / max(seen.sum(), 1))


def bucket_lengths(lengths: np.ndarray, num_buckets: int) -> np.ndarray:
    """At most `num_buckets` padded lengths, ascending, with the fewest padded points in total."""
    sizes, counts = np.unique(lengths, return_counts=True)
    if len(sizes) > 128:  # enough candidates: at worst a slightly suboptimal cut
        pick = np.unique(np.quantile(lengths, np.linspace(0, 1, 128), method="higher"))
        counts = np.diff(np.searchsorted(np.sort(lengths), pick, side="right"), prepend=0)
        sizes = pick
    before = np.concatenate([[0], np.cumsum(counts)])
    cost = (before[None, 1:] - before[:-1, None]) * sizes[None, :]  # cost[i, j]: sizes i..j padded to sizes[j]
    cost = np.where(np.triu(np.ones_like(cost, bool)), cost, np.iinfo(np.int64).max // 4)
    best, cuts = cost[0], []
    for _ in range(min(num_buckets, len(sizes)) - 1):
        total = np.concatenate([[0], best[:-1]])[:, None] + cost
        total[0] = cost[0]
        cuts.append(total.argmin(axis=0))
        best = total.min(axis=0)
    ends, last = [], len(sizes) - 1
    for cut in reversed(cuts):
        ends.append(last)
        last = cut[last] - 1
        if last < 0:
            break
    else:
        ends.append(last)
    return sizes[sorted(ends)]
