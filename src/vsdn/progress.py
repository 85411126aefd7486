"""Progress display of a run, and its interruption by the user."""

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from vsdn.training.loop import Epoch, TrainState


class Interrupt:
    """Whether the user asked to stop (Ctrl-C or a termination signal); the current step is finished first."""

    def __init__(self) -> None:
        self.asked = False

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:  # a second time: at once
            raise KeyboardInterrupt
        self.asked = True


@contextlib.contextmanager
def interruptible() -> Iterator[Interrupt]:
    """A block in which Ctrl-C only requests a stop; no effect outside the main thread, which cannot catch signals."""
    interrupt = Interrupt()
    if threading.current_thread() is not threading.main_thread():
        yield interrupt
        return
    before = {number: signal.signal(number, interrupt._ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield interrupt
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class TrainingBar:
    """A bar with loss, validation score, speed and time left; silent if the output is not a terminal."""

    def __init__(self, num_steps: int, batches: int, offset: float, *, show: bool):
        console = Console(stderr=True)
        self.batches = batches
        self.offset = offset  # from the model's units to nats in the user's units
        self.loss, self.valid = "…", ""
        self.bar = Progress(
            TextColumn("epoch {task.fields[epoch]}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("loss {task.fields[loss]}{task.fields[valid]} · {task.fields[speed]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=not (show and console.is_terminal),
            transient=True,
        )
        self.task = self.bar.add_task("", total=num_steps, epoch=1, loss="…", valid="", speed="compiling")

    def __enter__(self) -> "TrainingBar":
        self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.bar.stop()

    def update(self, state: TrainState, record: Epoch | None) -> None:
        """Shows this state in the bar."""
        if self.bar.disable:
            return
        if record is not None:
            self.valid = f" · valid {record.valid_nll:.3f} (best: epoch {record.best_epoch})"
        if int(state.finite):
            self.loss = f"{float(state.loss_sum) / int(state.finite) + self.offset:.3f}"
        speed = self.bar.tasks[self.task].speed
        self.bar.update(
            self.task,
            completed=int(state.step),
            epoch=int(state.step) // self.batches + 1,
            valid=self.valid,
            speed=f"{speed:.1f} steps/s" if speed else "compiling",
            loss=self.loss,
        )
