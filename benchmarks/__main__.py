"""`python -m benchmarks`: measure, print tables, write results/*.json and pictures.

What measures no time runs on all cores at once, a benchmark on each.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from benchmarks import (
    accounting,
    additive,
    coefficient_coverage,
    curves_run,
    data_path,
    data_sources,
    dp_feat_error,
    encryption,
    federated_run,
    fewer_ciphertexts,
    interval_coverage,
    larger_tables,
    leaks,
    learners,
    million_rows,
    paper_tables,
    parity,
    predicates,
    privacy_audit,
    private_curves,
    private_erm,
    processes,
    rado_kernel,
    record_level,
    regressions,
    repeated_draws,
    rounds,
    scaling,
    startup,
    survival_tables,
    unseen_tables,
    wide_bounds,
)
from benchmarks.measuring import Neighbours, Report, Target, machine, targets_table
from dpcore.numbers.processors import processors

RESULTS = Path(__file__).resolve().parent / "results"
# Above this many busy cores, the load of other processes is reported where times are measured.
QUIET_CORES = 0.1
BENCHMARKS = {
    "encryption": encryption,
    "rado_kernel": rado_kernel,
    "repeated_draws": repeated_draws,
    "data_path": data_path,
    "data_sources": data_sources,
    "larger_tables": larger_tables,
    "federated_run": federated_run,
    "rounds": rounds,
    "curves_run": curves_run,
    "million_rows": million_rows,
    "scaling": scaling,
    "processes": processes,
    "startup": startup,
    "fewer_ciphertexts": fewer_ciphertexts,
    "learners": learners,
    "accounting": accounting,
    "leaks": leaks,
    "privacy_audit": privacy_audit,
    "predicates": predicates,
    "parity": parity,
    "paper_tables": paper_tables,
    "dp_feat_error": dp_feat_error,
    "record_level": record_level,
    "private_erm": private_erm,
    "additive": additive,
    "private_curves": private_curves,
    "unseen_tables": unseen_tables,
    "wide_bounds": wide_bounds,
    "regressions": regressions,
    "survival_tables": survival_tables,
    "interval_coverage": interval_coverage,
    "coefficient_coverage": coefficient_coverage,
}
QUICK = (
    "encryption",
    "rado_kernel",
    "repeated_draws",
    "data_path",
    "data_sources",
    "larger_tables",
    "federated_run",
    "rounds",
    "curves_run",
    "million_rows",
    "scaling",
    "processes",
    "startup",
    "fewer_ciphertexts",
    "accounting",
    "predicates",
    "parity",
)
SCIENCE = (
    "learners",
    "accounting",
    "leaks",
    "privacy_audit",
    "paper_tables",
    "dp_feat_error",
    "record_level",
    "private_erm",
    "additive",
    "private_curves",
    "unseen_tables",
    "wide_bounds",
    "regressions",
    "survival_tables",
    "interval_coverage",
    "coefficient_coverage",
    "predicates",
    "parity",
)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure against the alternatives.")
    parser.add_argument(
        "names", nargs="*", metavar="name", help=f"which: {', '.join(BENCHMARKS)} (default: {', '.join(QUICK)})"
    )
    parser.add_argument("--all", action="store_true", help="all data sets and settings of the named benchmarks")
    parser.add_argument("--science", action="store_true", help=f"{', '.join(SCIENCE)}, with --all")
    options = parser.parse_args()
    if options.science and options.names:
        parser.error("--science chooses the benchmarks: leave the names out")
    if unknown := [name for name in options.names if name not in BENCHMARKS]:
        parser.error(f"there is no benchmark {unknown[0]}: choose from {', '.join(BENCHMARKS)}")
    RESULTS.mkdir(exist_ok=True)
    names = SCIENCE if options.science else options.names or QUICK
    at_once = [name for name in names if name not in QUICK] if options.science else []
    targets = run_at_once(at_once)
    for name in names:
        if name not in at_once:
            targets += run_one(name, everything=options.all or options.science)
    if len(names) > 1 and targets:
        print(targets_table(targets))


def run_at_once(names: Sequence[str]) -> list[Target]:
    """Run benchmarks that measure no time with --all, one on each core; returns their targets. Exits if one failed."""

    def run(name: str) -> subprocess.CompletedProcess[str]:
        print(f"{name} ...", file=sys.stderr)
        # As many threads of BLAS would wait for one another.
        variables = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(_command_of(name), env=variables, capture_output=True, text=True, check=False)
        print(done.stdout if done.returncode == 0 else done.stderr, flush=True)
        return done

    begun_ns = time.time_ns()
    with ThreadPoolExecutor(processors()) as pool:
        failed = [name for name, done in zip(names, pool.map(run, names), strict=True) if done.returncode]
    if failed:
        sys.exit(f"These benchmarks failed, see their errors above: {', '.join(failed)}")
    # Results that a run left as they were (`skipped_more`) are not of this run.
    written = [name for name in names if (RESULTS / f"{name}.json").stat().st_mtime_ns >= begun_ns]
    return [target for name in written for target in _targets_of(name)]


def _command_of(name: str) -> list[str]:
    return [sys.executable, "-m", "benchmarks", "--all", name]


def _targets_of(name: str) -> list[Target]:
    """The targets in the JSON of a benchmark."""
    found = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["targets"]
    return [Target(**{key: value for key, value in target.items() if key != "met"}) for target in found]


def run_one(name: str, *, everything: bool) -> list[Target]:
    """Run one benchmark, print its tables, write its JSON and picture; returns its targets."""
    print(f"{name} ...", file=sys.stderr)
    start, neighbours = time.perf_counter(), Neighbours()
    report: Report = BENCHMARKS[name].run(everything=everything)
    busy = neighbours.cores_busy()
    at = {**machine(), "cores_busy_elsewhere": busy}
    if is_kept := skipped_more(RESULTS / f"{name}.json", report):
        report.notes.append(f"results/{name}.json stays as it was: this run skipped what that one did not.")
    else:
        write_results(name, report, at)
    tables = [*report.tables, *([targets_table(report.targets)] if report.targets else [])]
    print("\n\n".join(str(table) for table in tables))
    print("\n".join(["", *report.notes]))
    if busy is not None and busy > QUIET_CORES and name in QUICK:
        print(f"Other processes kept {busy} cores busy: repeat this on a quiet machine.")
    written = "" if is_kept else f"; results/{name}.json, results/{name}.png"
    print(f"\n{name} took {time.perf_counter() - start:.0f} s{written}\n", flush=True)
    return report.targets


def write_results(name: str, report: Report, at: dict[str, Any]) -> None:
    """Write the JSON and the picture of a benchmark. at: the machine."""
    date, file = datetime.now(UTC).date().isoformat(), RESULTS / f"{name}.json"
    found = report.as_json(at, date) | {"run_before": run_before(file)}
    written = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
    file.write_text(written + "\n", encoding="utf-8")
    figure = Figure(figsize=(10, 5), layout="constrained")
    BENCHMARKS[name].draw(report, figure)
    figure.suptitle(f"{name} ({at['cores']} cores, Python {at['python']}, {date})", fontsize=10)
    figure.savefig(RESULTS / f"{name}.png", dpi=100)


def skipped_more(file: Path, report: Report) -> bool:
    """Whether a run skipped tables or peers, as its notes say, and the one in the file of results none."""

    def skips(notes: Sequence[str]) -> bool:
        return any(note.startswith("Skipped") for note in notes)

    return file.exists() and skips(report.notes) and not skips(json.loads(file.read_text(encoding="utf-8"))["notes"])


def run_before(file: Path) -> dict[str, Any] | None:
    """What the file of results has of the run before: its date, how busy the machine was, its ratios and targets."""
    if not file.exists():
        return None
    before = json.loads(file.read_text(encoding="utf-8"))
    found = {key: before[key] for key in ("date", "ratios", "targets")}
    return found | {"cores_busy_elsewhere": before["machine"].get("cores_busy_elsewhere")}


if __name__ == "__main__":
    main()
