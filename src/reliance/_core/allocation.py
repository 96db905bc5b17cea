"""What the C library does with memory that was freed."""

from __future__ import annotations

import functools

import numpy as np

# The largest array whose release still teaches glibc (its limit, 32 MB, less room for the header and the alignment).
_LESSON = 2**25 - 2**16


@functools.cache
def keep_freed_memory() -> None:
    """Let freed memory stay with the process, up to 64 MB, instead of going back to the system block by block.

    The model makes arrays of a block's size in each call and frees them. glibc returns freed memory to the system
    beyond a threshold, twice the largest array that was freed so far, and every page of the next call is then a page
    fault, which shows beside a small network. Freeing one large array, of which no page is ever touched, raises the
    threshold for good. Other C libraries do not mind.
    """
    np.empty(_LESSON, dtype=np.uint8)
