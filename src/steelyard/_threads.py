"""One BLAS or OpenMP thread where it matters."""

from __future__ import annotations

from functools import cache
from threading import Lock
from typing import Any

from threadpoolctl import OpenBLASController, ThreadpoolController


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


class _OneThread:
    """Counts who is inside: of several threads that fit at once, the last one out gives the threads back."""

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
                _let_any_thread_set_blas()
                self.limit.restore_original_limits()
                _let_any_thread_set_blas()


def _let_any_thread_set_blas() -> None:
    """Recent threadpoolctl lets only the thread that set a limit of OpenBLAS lift it; here the last one out does."""
    clear = getattr(OpenBLASController, "clear_controlling_thread", None)
    if clear is not None:
        clear(force=True)


_ONE_BLAS_THREAD, _ONE_OPENMP_THREAD = _OneThread("blas"), _OneThread("openmp")


def one_blas_thread() -> _OneThread:
    """Context in which BLAS runs on the calling thread.

    The products here are small (a block of rows by a hundred centers): handing them to a thread pool costs more
    than the product, and pools that spin against each other cost more still.
    """
    return _ONE_BLAS_THREAD


def one_openmp_thread() -> _OneThread:
    """Context in which scikit-learn's boosting runs on the calling thread.

    On a few thousand rows its threads wait for each other more than they work, and on a busy machine for minutes.
    """
    return _ONE_OPENMP_THREAD
