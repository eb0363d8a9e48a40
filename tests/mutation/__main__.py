"""Runs mutmut: `python -m tests.mutation [--at-once N] [GROUP or FILE ...]`.

Results are kept in `mutants`. A mutant is tested again if its function changed, or if it survived and a test changed.
The exit status is 1 if a chosen group has less than 90 % killed, or a survivor without a reason in survivors.toml.
"""

import argparse
import hashlib
import os
import shutil
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from mutmut import __main__ as mutmut
from mutmut import configuration
from mutmut.mutation.data import SourceFileMutationData
from mutmut.mutation.diff_apply import get_diff_for_mutant
from mutmut.runners.harness import PytestRunner
from mutmut.state import state
from mutmut.stats import status_by_exit_code
from mutmut.utils.file_utils import walk_mutatable_files
from mutmut.utils.format_utils import orig_function_and_class_names_from_key
from mutmut.workers import isolation
from mutmut.workers.isolation import ForkServerRunner, MutantRunner

from tests.mutation import changes
from tests.mutation.groups import GROUPS, ROOT, Survivor, explained, first_failure, group_of

LEAST_KILLED = 0.9
HERE = ROOT / "tests/mutation"
RESULTS = ROOT / "mutants"
_PASSED = RESULTS / "passed.sha256"
_KILLED = ("killed", "timeout")
_CAUGHT = "caught by type check"
_REPEATED = ("survived", "no tests", "suspicious", "check was interrupted by user")


def _results() -> Iterator[SourceFileMutationData]:
    for path in walk_mutatable_files():
        data = SourceFileMutationData(path=path)
        data.load()
        yield data


def _digest(*folders: str) -> str:
    found = hashlib.sha256()
    for path in sorted(path for folder in folders for path in (ROOT / folder).rglob("*.py") if path.parent != HERE):
        found.update(path.read_bytes())
    return found.hexdigest()


def _digest_of_all() -> str:
    return _digest("tests", *map(str, configuration.config().source_paths))


def _forget_survivors() -> None:
    """A test that is new or changed may kill them."""
    noted, digest = RESULTS / "tests.sha256", _digest("tests")
    if noted.exists() and noted.read_text(encoding="utf-8") == digest:
        return
    for data in _results():
        for name, code in data.exit_code_by_key.items():
            if status_by_exit_code[code] in _REPEATED:
                data.exit_code_by_key[name] = None
        if data.exit_code_by_key:
            data.save()
    RESULTS.mkdir(exist_ok=True)
    noted.write_text(digest, encoding="utf-8")


class _InBatches(PytestRunner):
    """One process runs a mutant's batches: the limit of processor time is that of all."""

    def run_tests(self, *, mutant_name, tests):
        if mutant_name is None:
            return super().run_tests(mutant_name=None, tests=tests)
        run = partial(super().run_tests, mutant_name=mutant_name)
        return first_failure(tests, lambda batch: run(tests=batch))


class _FastestFirst(ForkServerRunner):
    """Most mutants fail in many tests: the shortest one is enough.

    A mutant's limit is processor time alone: on a busy machine one that survives takes longer than any limit by the
    clock, and would count as killed. One that waits for ever fails by pytest's own limit for a test.
    """

    def __init__(self, *arguments):
        isolation.register_timeout = lambda pid, timeout_s: None
        super().__init__(*arguments)

    def submit(self, mutant_name, tests, cpu_time_limit, estimated_time):
        ordered = sorted(tests, key=lambda test: (state().duration_by_test[test], test))
        # mutmut doubles it, so that its limit by the clock is met first.
        super().submit(mutant_name, ordered, -(-cpu_time_limit // 2), estimated_time)

    def collect_stats(self, tests):
        """Every test passes here too."""
        status = super().collect_stats(tests)
        if status == 0 and not tests:
            _PASSED.write_text(_digest_of_all(), encoding="utf-8")
        return status

    def run_clean_tests(self, tests):
        """Not again if nothing changed."""
        if _PASSED.exists() and _PASSED.read_text(encoding="utf-8") == _digest_of_all():
            return 0
        status = super().run_clean_tests(tests)
        if status == 0:
            _PASSED.write_text(_digest_of_all(), encoding="utf-8")
        return status


def _runner(at_once: int = 1) -> MutantRunner:
    return _FastestFirst(at_once, _InBatches, {})


def _choose(chosen: list[str]) -> None:
    """Of all mutants, only those of the chosen files are run; results of the others are kept."""
    collect = mutmut.collect_source_file_mutation_data

    def collect_chosen(**options):
        mutants, data = collect(**options)
        return [mutant for mutant in mutants if _is_chosen(str(mutant[0].path), chosen)], data

    mutmut.collect_source_file_mutation_data = collect_chosen
    mutmut.estimated_worst_case_time = _place


def _place(name: str) -> tuple[int, int, bytes]:
    """A tenth of every group, then the next, at random: what an interrupted run has tested is a sample of each."""
    group = group_of(name.replace(".", "/").replace("/x", ".py/x", 1))
    drawn = hashlib.sha256(name.encode()).digest()
    return drawn[0] * 10 // 256, list(GROUPS).index(group), drawn


def _is_chosen(path: str, chosen: list[str]) -> bool:
    return not chosen or any(path.startswith(GROUPS.get(name, name)) for name in chosen)


def _survivor(path: Path, name: str) -> Survivor:
    function, of_class = orig_function_and_class_names_from_key(name)
    lines = get_diff_for_mutant(name, path=path).splitlines()[2:]
    before, after = (" ".join(line[1:].strip() for line in lines if line.startswith(sign)) for sign in "-+")
    return Survivor(str(path), f"{of_class}.{function}" if of_class else function, before, after)


def report(chosen: list[str]) -> bool:
    """Prints the table and the survivors without a reason. Whether there is none, and enough mutants are killed."""
    counts = {group: Counter[str]() for group in GROUPS}
    survivors: list[tuple[str, Survivor]] = []
    for data in _results():
        for name, code in data.exit_code_by_key.items():
            status = status_by_exit_code[code]
            counts[group_of(str(data.path))][status] += 1
            if status not in (*_KILLED, _CAUGHT, "not checked") and _is_chosen(str(data.path), chosen):
                survivors.append((name, _survivor(data.path, name)))
    titles = ("mutants", "by types", "by tests", "endless", "survived", "not run", "killed", "of tested")
    print(f"{'group':<12}{''.join(f'{title:>9}' for title in titles)}")
    passes = True
    for group, count in counts.items():
        caught, killed, endless, untested = (count[what] for what in (_CAUGHT, *_KILLED, "not checked"))
        survived = count.total() - untested - caught - killed - endless
        share = 1 - survived / max(1, count.total() - untested)
        of_tested = 1 - survived / max(1, killed + endless + survived)
        numbers = (count.total(), caught, killed, endless, survived, untested)
        print(f"{group:<12}{''.join(f'{number:>9}' for number in numbers)}{share:>9.1%}{of_tested:>9.1%}")
        if any(_is_chosen(start, chosen) for start in GROUPS[group]):
            passes &= share >= LEAST_KILLED
    left = explained()
    for name, survivor in survivors:
        left[survivor] -= 1
        if left[survivor] < 0:
            passes = False
            print(f"survived without a reason: {survivor}\n    mutmut show {name}")
    return passes


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    parser.add_argument("chosen", nargs="*", help=f"{', '.join(GROUPS)}, or the beginning of a path")
    parser.add_argument("--at-once", type=int, default=1, help="mutants tested at the same time")
    parser.add_argument("--report", action="store_true", help="run nothing")
    options = parser.parse_args()
    os.chdir(ROOT)
    os.environ["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    if not options.report:
        changes.install()
        shutil.rmtree(RESULTS / "tests", ignore_errors=True)
        _forget_survivors()
        _choose(options.chosen)
        mutmut.get_mutant_runner = _runner
        mutmut.filter_mutants_with_type_checker = changes.refused
        mutmut._run((), options.at_once)
    raise SystemExit(not report(options.chosen))


if __name__ == "__main__":
    main()
