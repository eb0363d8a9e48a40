"""Run `rado ...` as `python -m radofed.demo.child PARENT ...`: it ends when PARENT, the process that started it, ends.

The demo stops its children itself. This is for a demo that cannot, because it was killed (SIGKILL).
"""

import os
import sys
import threading
import time

from radofed.cli import main

LOOK_EVERY_S = 0.5


def end_with(parent: int) -> None:
    """End this process at once when its parent is no longer `parent`. Nodes survive being killed at any moment."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with, args=(int(sys.argv.pop(1)),), daemon=True).start()
    main()
