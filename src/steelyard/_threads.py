"""Contexts that limit BLAS or OpenMP to one thread."""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import OpenBLASController, ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


class _OneThread:
    """Counts the threads inside the context; the last one to leave restores the thread limits."""

    def __init__(self, user_api: str) -> None:
        self.lock, self.inside, self.user_api = Lock(), 0, user_api
        self.limit: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if not self.inside:
                self.limit = _controller().limit(limits=1, user_api=self.user_api)
            self.inside += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.inside -= 1
            if not self.inside and self.limit is not None:
                _release_openblas_control()
                self.limit.restore_original_limits()
                _release_openblas_control()


def _release_openblas_control() -> None:
    """Let any thread lift the limit of OpenBLAS: recent versions of threadpoolctl allow only the one that set it."""
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


_ONE_BLAS_THREAD, _ONE_OPENMP_THREAD = _OneThread("blas"), _OneThread("openmp")


def one_blas_thread() -> _OneThread:
    """Context in which BLAS runs on the calling thread.

    The matrix products are small (a block of rows by a hundred centers): dispatching them to a thread pool costs more
    than the product, and competing pools of several processes cost still more.
    """
    return _ONE_BLAS_THREAD


def one_openmp_thread() -> _OneThread:
    """Context in which scikit-learn's boosting runs on the calling thread.

    On a few thousand rows its threads spend more time waiting for each other than working; on a busy machine, minutes.
    """
    return _ONE_OPENMP_THREAD
