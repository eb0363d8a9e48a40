"""The demo from end to end: data, then whole records by `newton`, then rados by DP-FEAT, each in its own federation."""

import shutil
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from radofed.demo.federation import Clock, Note, Shared
from radofed.demo.options import DemoOptions
from radofed.demo.patients import patients
from radofed.demo.processes import ended_by_signals
from radofed.demo.rados import RadosResult, plan_rados, run_rados
from radofed.demo.tables import digits, own_file
from radofed.demo.whole_records import WholeRecordsResult, run_whole_records, why_not


@dataclass(frozen=True)
class DemoResult:
    """The results of the demo."""

    whole_records: WholeRecordsResult | None
    """None if they were left out; left_out then says why."""
    left_out: str | None
    rados: RadosResult
    own_data: bool
    """Whether both parts used the user's table."""
    directory: Path | None
    """The kept files, None if they were deleted."""

    def to_dict(self) -> dict[str, Any]:
        """The `data` of `rado demo --format json`: the rados, and the whole records under their own keys."""
        whole = None if self.whole_records is None else self.whole_records.to_dict()
        left_out = {"whole_records": whole, "whole_records_left_out": self.left_out}
        return {**self.rados.to_dict(), "directory": self.directory, **left_out}


def run_demo(options: DemoOptions, note: Note) -> DemoResult:
    """Run the demo. note: progress callback, one sentence a call.

    When this returns or raises, every process that it started has ended, and its files are deleted unless
    `options.keep` is set. Raises ConfigurationError, before anything starts, if the options cannot be demonstrated,
    and ChildError if a node fails.
    """
    with ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        directory = options.keep or Path(tempfile.mkdtemp(prefix="rado-demo-"))
        if options.keep is None:
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
        else:
            directory.mkdir(parents=True, mode=0o700)
        return _run(options, directory, note)


def _run(options: DemoOptions, directory: Path, note: Note) -> DemoResult:
    clock, rados_clock = Clock(), Clock()
    with rados_clock.phase("data and keys"):
        shared = _rados_data(options, directory / "rados" / "data")
        plan = plan_rados(shared, options, note)
    with clock.phase("data and keys"):
        if options.data is None:
            records = Shared.of(patients(directory / "whole-records" / "data", options.parties))
        else:
            records = shared
    whole, left_out = None, why_not(records)
    if left_out is None:
        note(f"1. whole records by newton; parties and their rows: {records.rows_words()}")
        whole = run_whole_records(records, directory / "whole-records", clock, note)
    else:
        note(f"1. whole records are left out: {left_out}")
    note(f"2. rados; parties and their rows: {shared.rows_words()}")
    rados = run_rados(plan, directory / "rados", rados_clock, note)
    kept = directory if options.keep is not None else None
    return DemoResult(whole, left_out, rados, options.data is not None, kept)


def _rados_data(options: DemoOptions, directory: Path) -> Shared:
    if options.data is None or options.schema is None:
        return Shared.of(digits(directory, options.parties))
    return Shared.of(own_file(directory, options.data, options.schema, options.parties, options.split))
