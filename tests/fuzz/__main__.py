"""Coverage-guided fuzzing of every target: `python -m tests.fuzz [SECONDS [TARGET ...]]`.

Each target runs in a process of its own, for its share of the seconds, under libFuzzer's limits of 2 seconds and 500 MB
for one input. An input of libFuzzer begins with a byte: odd, and the rest is given to the parser as it is; even, and
Hypothesis makes a nearly valid input of the rest. An input that fails is written to build/fuzz/TARGET, as the parser
got it: put it into tests/fuzz/corpus/TARGET under a name that says what was wrong.
"""

import contextlib
import hashlib
import importlib.util
import io
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from hypothesis import HealthCheck, given, settings

if TYPE_CHECKING:
    from tests.fuzz.target import Target

SECONDS = 300
INPUT_S = 2
MEMORY_MB = 500
FOUND = Path("build/fuzz")
LONGEST_BYTES = 4096


def main(arguments: list[str]) -> int:
    if importlib.util.find_spec("atheris") is None:
        sys.stderr.write("atheris is not installed: run `make fuzz`, which installs it\n")
        return 2
    import atheris

    # Branches of the packages under test are counted, those of what they import are not.
    packages = ["dpcore", "wire", "parties", "coordinator", "learner", "radobase", "radofed"]
    counted = atheris.instrument_imports(include=packages, exclude=compiled_modules())
    with contextlib.redirect_stderr(io.StringIO()), counted:
        from tests.fuzz.target import all_targets

        targets = all_targets()
    seconds = float(arguments[0]) if arguments else SECONDS
    names = arguments[1:] or sorted(targets)
    if unknown := sorted(set(names) - set(targets)):
        sys.stderr.write(f"no such target: {', '.join(unknown)}\n")
        return 2
    failed = [name for name in names if not ran(targets[name], seconds / len(names))]
    if failed:
        sys.stderr.write(f"failed: {', '.join(failed)}; the inputs are in {FOUND}\n")
    return int(bool(failed))


def compiled_modules() -> list[str]:
    """Modules of functions that Numba compiles, which it cannot do once their branches are counted."""
    return [".".join(path.with_suffix("").parts) for path in sorted(Path("dpcore").glob("*/compiled.py"))]


def ran(target: "Target", seconds: float) -> bool:
    """Fuzz one target in a child process, print its figures, and return whether nothing failed."""
    start = time.monotonic()
    (FOUND / target.name).mkdir(parents=True, exist_ok=True)
    log = FOUND / target.name / "log"
    sys.stdout.flush()
    # A fork, as importing and instrumenting everything takes longer than a target's share.
    child = os.fork()
    if child == 0:
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        run_target(target, seconds)
        os._exit(1)  # libFuzzer ends the process itself
    _, status = os.waitpid(child, 0)
    text = log.read_text(errors="replace")
    count = max(map(int, re.findall(r"^(?:Done |#)(\d+)", text, re.MULTILINE)), default=0)
    coverage = re.findall(r"cov: (\d+)", text)
    print(  # noqa: T201 - a command's result
        f"{target.name:24} {'FAILED' if status else 'passed'} {count:8} executions, "
        f"coverage {coverage[-1] if coverage else '?':>5}, {time.monotonic() - start:5.1f} s",
        flush=True,
    )
    if status:
        sys.stderr.write("\n".join(text.splitlines()[-40:]) + "\n")
    return status == 0


def run_target(target: "Target", seconds: float) -> None:
    """Fuzz one target in this process. libFuzzer ends the process."""
    import atheris

    last: list[bytes] = []

    def check(data: bytes) -> None:
        last[:] = [data]
        target.check(data)

    make = fuzz_of(target, check)

    def one(data: bytes) -> None:
        try:
            if data[:1] and data[0] & 1:
                check(data[1:])
            else:
                make(data[1:])
        except BaseException:
            if last:
                (FOUND / target.name / f"parser-input-{hashlib.sha256(last[0]).hexdigest()[:12]}").write_bytes(last[0])
            raise

    with tempfile.TemporaryDirectory() as corpus:
        for number, path in enumerate(target.corpus):
            (Path(corpus) / str(number)).write_bytes(b"\1" + path.read_bytes())
        (Path(corpus) / "made").write_bytes(bytes(512))
        resident_mb = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") >> 20
        options = [
            f"-max_total_time={max(1, int(seconds))}",
            f"-timeout={INPUT_S}",
            f"-rss_limit_mb={resident_mb + MEMORY_MB}",
            f"-max_len={min(LONGEST_BYTES, target.limit_bytes + 1)}",
            f"-artifact_prefix={FOUND / target.name}/",
            "-print_final_stats=1",
        ]
        atheris.Setup([sys.argv[0], *options, corpus], one)
        atheris.Fuzz()


def fuzz_of(target: "Target", check: Callable[[bytes], None]) -> Callable[[bytes], object]:
    """What makes an input of the parser from one of libFuzzer, by the target's strategy, and checks it."""

    @settings(database=None, deadline=None, suppress_health_check=list(HealthCheck))
    @given(target.inputs)
    def fuzz(data: bytes) -> None:
        check(data)

    return fuzz.hypothesis.fuzz_one_input


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
