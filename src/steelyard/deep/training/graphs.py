"""Steps of several training runs as one CUDA graph: one launch per step, and the runs execute side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

WARM_UP = 3  # steps before the capture, in which libraries choose their algorithms and optimizers create their state


class CapturedSteps:
    """Step functions that first run as they are, then are captured in a CUDA graph, then replayed.

    Every call of `replay` is one step of each run, captured or not. A step must read and write the same addresses each
    time and never wait for a number from the device.
    """

    def __init__(self, steps: Sequence[Callable[[], None]]) -> None:
        self.steps = steps
        self.streams = [torch.cuda.Stream() for _ in steps]  # type: ignore[no-untyped-call]
        self.forget()

    def forget(self) -> None:
        """Capture again: something that the graph holds as a constant has changed."""
        self.graph: torch.cuda.CUDAGraph | None = None
        self.done = 0

    def replay(self) -> None:
        """One step of each run."""
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
        current = torch.cuda.current_stream()
        for stream, step in zip(self.streams, self.steps, strict=True):
            stream.wait_stream(current)
            with torch.cuda.stream(stream):
                step()
        for stream in self.streams:
            current.wait_stream(stream)
