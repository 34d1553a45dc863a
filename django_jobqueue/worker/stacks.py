"""The stacks of all threads, for whoever asks what a worker is doing.

Not by faulthandler: with Python 3.13.0 its dump of a process with many threads stopped
half way.
"""

from __future__ import annotations

import sys
import threading
import traceback


def format_stacks() -> str:
    """Return where every thread of this process is, the newest call last."""
    frames = sys._current_frames()
    parts = []
    for thread in threading.enumerate():
        frame = frames.get(thread.ident or 0)
        if frame is not None:
            lines = "".join(traceback.format_stack(frame))
            parts.append(f"Thread {thread.name}:\n{lines}")
    return "\n".join(parts)
