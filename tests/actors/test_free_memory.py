"""Memory the allocator keeps."""

import numpy as np
import psutil

from arachne.actors.confinement import return_free_memory

PIECE_BYTES, PIECES = 100_000, 1000  # small enough to come from the heap


def test_free_pages_below_one_in_use_go_back() -> None:
    """The heap can't shrink past its last piece by itself; what is free below that one is given back."""
    me = psutil.Process()
    pieces = [np.ones(PIECE_BYTES, np.uint8) for _ in range(PIECES)]
    full = me.memory_info().rss
    del pieces[:-1]
    return_free_memory()
    assert full - me.memory_info().rss > PIECE_BYTES * PIECES // 2
    assert pieces[0].all()
