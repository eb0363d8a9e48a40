"""`rado demo` for tests: of the parties of each part, all but one are forked, which takes a second less for each.

One party of each part, the coordinators and the learner's commands start as for everyone.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from radofed.cli.entry_point import main
from radofed.demo.processes import Children
from tests import forked

FRESH = "west"


class _Node(forked.Forked):
    def terminate(self) -> None:
        self.send_signal(15)


def _started(real: Any) -> Any:
    def popen(children: Children, arguments: Sequence[str], **streams: Any) -> Any:
        log = Path(getattr(streams["stderr"], "name", ""))
        if tuple(arguments[:2]) != ("party", "start") or log.stem == FRESH:
            return real(children, arguments, **streams)
        node = _Node(forked.rado, tuple(arguments), log)
        children._running.append(node)  # type: ignore[arg-type]  # it has the methods that are used
        return node

    return popen


if __name__ == "__main__":
    Children._popen = _started(Children._popen)  # type: ignore[method-assign]
    sys.argv = ["rado", *sys.argv[1:]]
    main()
