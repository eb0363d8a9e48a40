"""`rado coordinator`: run the service that forms cohorts and multiplies ciphertexts."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from radobase.logs import quiet_grpc
from radobase.printing import amount, columns, duration, in_lines, listed, local_time
from radofed.cli.framework import LISTED, ConfigOption, Limit, command, group
from radofed.cli.output import EXIT_CONNECTION, Output, Result

if TYPE_CHECKING:
    from coordinator.local_control import Drained


# `rado coordinator drain | undrain`: take no new query before maintenance, and take queries again.

EXIT_TIMED_OUT = 3
WithinOption = Annotated[
    float, typer.Option("--within", min=0, help="Longest wait for attempts that are under way, in seconds.")
]


def drain(output: Output, config: ConfigOption, within: WithinOption = 3600.0) -> Result:
    """Let the running coordinator take no new query and no retry, and wait until no attempt is under way.

    It stays so until `rado coordinator undrain`, or until it is started again. Parties stay connected, and learners can
    fetch totals. Run this on the coordinator's machine, as its user. Exit code 0: nothing is under way, so a stop
    interrupts no one; 2: no coordinator runs; 3: attempts still run after --within seconds, and are listed.
    """
    from coordinator.config import CoordinatorConfig
    from coordinator.local_control import drain as begin_and_wait

    def on_wait(number: int) -> None:
        output.note(f"{number} under way; waiting for at most {duration(within)}")

    drained = begin_and_wait(CoordinatorConfig.load(config).state_directory, within, on_wait=on_wait)
    data = {
        "complete": drained.is_complete,
        "changed": drained.changed,
        "drained_since_unix_s": drained.since_unix_s,
        "under_way": drained.under_way,
    }
    return Result(data, _words(drained), exit_code=0 if drained.is_complete else EXIT_TIMED_OUT)


def undrain(_output: Output, config: ConfigOption) -> Result:
    """Let a drained coordinator take queries again. The exit code is 2 if no coordinator runs."""
    from coordinator.config import CoordinatorConfig
    from coordinator.local_control import undrain as end

    changed = end(CoordinatorConfig.load(config).state_directory)
    return Result({"changed": changed}, "it takes queries again" if changed else "it was not drained")


def _words(drained: "Drained") -> str:
    from coordinator.status import answer_words

    begun = "drained" if drained.changed else "drained before"
    if drained.is_complete:
        return f"{begun}; no attempt is under way. Stop the coordinator now, or `rado coordinator undrain`."
    rows = [
        (
            query["query_id"][:16],
            query["learner"],
            query["phase"],
            str(query["attempt"]),
            duration(query["remaining_s"]),
            answer_words(query),
        )
        for query in drained.under_way
    ]
    lines = [
        f"{begun}; these are under way and go on:",
        *columns(("query", "learner", "phase", "attempt", "left", "parties"), rows),
        "Give the command again to wait longer. If you stop the coordinator, they continue at its next start.",
    ]
    return in_lines(lines)


app = group("Run the coordinator and show its state.")


@command(app, "start")
def start(_output: Output, config: ConfigOption) -> Result:
    """Run the coordinator until SIGTERM or SIGINT.

    It then finishes open calls; every query's state stays on disk.
    """
    quiet_grpc()
    from coordinator.config import CoordinatorConfig
    from coordinator.server import serve

    loaded = CoordinatorConfig.load(config)
    serve(loaded)
    return Result({"coordinator": loaded.name, "ended": "drained"})


@command(app, "status")
def status(_output: Output, config: ConfigOption, limit: Limit = None) -> Result:
    """Show the coordinator's health, when each member was last seen, and its newest queries.

    Run this on the coordinator's machine. The exit code is 2 if the coordinator does not run.
    """
    quiet_grpc()
    from coordinator.config import CoordinatorConfig
    from coordinator.status import read

    found = read(CoordinatorConfig.load(config))
    text = in_lines(_sentences(found, LISTED if limit is None else limit))
    if limit is not None:
        found["queries"] = found["queries"][-limit:] if limit else []
    return Result(found, text, exit_code=0 if found["running"] else EXIT_CONNECTION)


@command(app, "roster")
def roster(
    _output: Output,
    file: Annotated[Path, typer.Argument(help="A newer roster.signed of the operator.", show_default=False)],
    config: ConfigOption,
) -> Result:
    """Install a newer roster. A running coordinator serves it within seconds, and expels whom it does not list."""
    from coordinator.config import CoordinatorConfig
    from coordinator.membership import install_roster

    loaded = CoordinatorConfig.load(config)
    installed = install_roster(loaded, file)
    data = {"roster": loaded.roster, "version": installed.version, "expires": installed.expiry_date}
    return Result(data, f"{loaded.roster}: version {installed.version}, expires {installed.expiry_date}")


@command(app, "admissions")
def admissions(
    _output: Output,
    files: Annotated[list[Path], typer.Argument(help="Admissions that the operator signed.", show_default=False)],
    config: ConfigOption,
) -> Result:
    """Leave renewed certificates for members to fetch with `rado certificate renew`. They hold no secret.

    Each must be signed by the federation's key, and for a member of the roster. Nothing is left if one is not.
    """
    from radofed.joining.operator import leave

    names = leave(config, files)
    return Result({"members": names}, f"left for {', '.join(names)}: `rado certificate renew` fetches it")


def _sentences(found: dict[str, Any], limit: int) -> list[str]:
    """The coordinator, its members, their limits, then its newest queries."""
    from coordinator.status import quota_words, seen_words

    used, most = (f"{found[key]:,}" for key in ("spool_bytes", "spool_limit_bytes"))
    disk = "" if found["free_disk_bytes"] is None else f", {found['free_disk_bytes']:,} bytes of disk are free"
    lines = [f"{found['federation']}: {found['health']} at {found['address']}; {used} of {most} bytes of uploads{disk}"]
    if found["cause"]:
        lines.append(f"cause: {found['cause']}")
    if found["not_ready"]:
        lines.append(f"not ready: {', '.join(found['not_ready'])}")
    if (since := found["drained_since_unix_s"]) is not None:
        lines.append(f"drained since {local_time(since)}: no new query is taken; `rado coordinator undrain` ends that")
    if (roster := found["roster"]) is not None:
        lines.append(
            f"roster version {roster['version']}, {amount(roster['members'], 'member')}, expires {roster['expires']}"
        )
        lines += [f"warning: {roster['warning']}"] if roster["warning"] else []
    lines.append(f"certificate expires {found['certificate']['expires']}")
    if warning := found["certificate"]["warning"]:
        lines.append(f"warning: {warning}")
    if found["members"]:
        rows = [(each["name"], each["role"], seen_words(each["last_seen_unix_s"])) for each in found["members"]]
        lines += ["", *columns(("member", "role", "last seen"), rows)]
    if found["quotas"]:
        quotas = [(each["learner"], *quota_words(each)) for each in found["quotas"]]
        lines += ["", *columns(("learner", "open", "asked in 24 h", "bytes of uploads in 24 h"), quotas)]
    if names := found["unknown_learners"]:
        lines.append(f"warning: [limits.learners] names {listed(names)}, and the roster has no such learner")
    return [*lines, "", *_queries(found["queries"], limit)]


def _queries(queries: list[dict[str, Any]], limit: int) -> list[str]:
    from coordinator.status import answer_words, newest_first

    newest = newest_first(queries)[:limit]
    if not newest:
        return [f"{amount(len(queries), 'query')}" if queries else "no queries"]
    rows = [
        (
            local_time(query["submitted_at_unix_s"]),
            query["query_id"][:16],
            query["learner"],
            query["kind"],
            query["phase"],
            f"{query['attempt']} of {query['max_attempts']}",
            duration(query["remaining_s"]) if query["remaining_s"] else "",
            answer_words(query),
        )
        for query in newest
    ]
    lines = columns(("submitted", "query", "learner", "kind", "phase", "attempt", "left", "parties"), rows)
    hidden = len(queries) - len(newest)
    return [*lines, *([f"{hidden} older queries; --limit shows more"] if hidden else [])]
