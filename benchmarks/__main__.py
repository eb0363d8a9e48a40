"""`python -m benchmarks`: measure, print tables, write results/*.json and pictures."""

import argparse
import json
import sys
import time
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

RESULTS = Path(__file__).resolve().parent / "results"
# Above this many busy cores, the load of other processes is reported with the times.
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
    targets = [target for name in names for target in run_one(name, everything=options.all or options.science)]
    if len(names) > 1 and targets:
        print(targets_table(targets))


def run_one(name: str, *, everything: bool) -> list[Target]:
    """Run one benchmark, print its tables, write its JSON and picture; returns its targets."""
    print(f"{name} ...", file=sys.stderr)
    start, neighbours = time.perf_counter(), Neighbours()
    report: Report = BENCHMARKS[name].run(everything=everything)
    busy = neighbours.cores_busy()
    at = {**machine(), "cores_busy_elsewhere": busy}
    date = datetime.now(UTC).date().isoformat()
    file = RESULTS / f"{name}.json"
    found = report.as_json(at, date) | {"run_before": run_before(file)}
    written = json.dumps(found, indent=1, ensure_ascii=False, allow_nan=False)
    file.write_text(written + "\n", encoding="utf-8")
    figure = Figure(figsize=(10, 5), layout="constrained")
    BENCHMARKS[name].draw(report, figure)
    figure.suptitle(f"{name} ({at['cores']} cores, Python {at['python']}, {date})", fontsize=10)
    figure.savefig(RESULTS / f"{name}.png", dpi=100)
    tables = [*report.tables, *([targets_table(report.targets)] if report.targets else [])]
    print("\n\n".join(str(table) for table in tables))
    print("\n".join(["", *report.notes]))
    if busy is not None and busy > QUIET_CORES:
        print(f"Other processes kept {busy} cores busy: repeat this on a quiet machine.")
    print(f"\n{name} took {time.perf_counter() - start:.0f} s; results/{name}.json, results/{name}.png\n", flush=True)
    return report.targets


def run_before(file: Path) -> dict[str, Any] | None:
    """What the file of results has of the run before: its date, how busy the machine was, its ratios and targets."""
    if not file.exists():
        return None
    before = json.loads(file.read_text(encoding="utf-8"))
    found = {key: before[key] for key in ("date", "ratios", "targets")}
    return found | {"cores_busy_elsewhere": before["machine"].get("cores_busy_elsewhere")}


if __name__ == "__main__":
    main()
