"""The array types that appear in signatures, and one BLAS thread where it matters."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import ThreadpoolController

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.intp]
BoolArray = NDArray[np.bool_]


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()


def one_blas_thread() -> Any:
    """Context in which BLAS runs on the calling thread.

    The products here are small (a block of rows by a hundred centres): handing them to a thread pool costs more
    than the product, and two pools that spin against each other cost seven to eighteen times as much.
    """
    return _controller().limit(limits=1, user_api="blas")
