"""`python -m radofed.demo.child PARENT ...` is `rado ...`, but that it ends with the process PARENT, which started it.

The demo ends its children itself; only where it is killed so that it cannot (SIGKILL) do they have to see to it.
"""

import os
import sys
import threading
import time

from radofed.cli import main

LOOK_EVERY_S = 0.5


def end_with(parent: int) -> None:
    """End this process at once when its parent is no longer `parent`: nodes are made to be killed at any moment."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_S)
    os._exit(1)


if __name__ == "__main__":
    threading.Thread(target=end_with, args=(int(sys.argv.pop(1)),), daemon=True).start()
    main()
