"""How many cores of the machine there are to use."""

import os


def num_cores() -> int:
    """Of those that this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on Linux
        return os.cpu_count() or 1
