"""Run one management command as a child of the demo, and stop with it.

    python -m launcher.child runworker --name demo

The parent holds the other end of our standard input. When that end closes, for whatever
reason, the command is interrupted as by Ctrl-C.
"""

import os
import signal
import sys
import threading

from django.core.management import execute_from_command_line


def main() -> None:
    # Needed if a shell started the parent in the background, with SIGINT ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Thread(target=_stop_with_parent, daemon=True).start()
    execute_from_command_line(sys.argv)


def _stop_with_parent() -> None:
    # Not sys.stdin: this thread would hold its lock while the interpreter shuts down.
    while os.read(0, 1024):
        pass
    os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    main()
