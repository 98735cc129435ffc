"""The largest memory of this process."""

import resource
import sys


def peak() -> float:
    """The largest memory of this process so far, in MB.

    Where Linux tells it, not `ru_maxrss`: a process inherits that from the one that started it.
    """
    if sys.platform != "linux":
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024) / 1e6
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 / 1e6 for line in file if line.startswith("VmHWM"))
