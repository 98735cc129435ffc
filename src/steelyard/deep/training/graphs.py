"""Steps of several trials as one CUDA graph: the host launches it once a step, and the trials run side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

WARM_UP = 3  # steps before the capture, in which libraries choose their algorithms and optimizers make their state


class Captured:
    """Steps that are run as they are at first, then captured, then replayed.

    Every call of `replay` is one step of each trial, captured or not. A step must read and write the same places of
    memory each time and never ask the device for a number.
    """

    def __init__(self, steps: Sequence[Callable[[], None]]) -> None:
        self.steps = steps
        self.streams = [torch.cuda.Stream() for _ in steps]  # type: ignore[no-untyped-call]
        self.forget()

    def forget(self) -> None:
        """Capture anew: something that a graph keeps as a constant has changed."""
        self.graph: torch.cuda.CUDAGraph | None = None
        self.done = 0

    def replay(self) -> None:
        """One step of each trial."""
        if self.graph is None and self.done >= WARM_UP:
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self._side_by_side()
        if self.graph is None:
            self._side_by_side()
            self.done += 1
        else:
            self.graph.replay()

    def _side_by_side(self) -> None:
        here = torch.cuda.current_stream()
        for stream, step in zip(self.streams, self.steps, strict=True):
            stream.wait_stream(here)
            with torch.cuda.stream(stream):
                step()
        for stream in self.streams:
            here.wait_stream(stream)
