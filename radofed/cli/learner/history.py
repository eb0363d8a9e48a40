"""`rado learner history`: what a learner asked, and what became of it."""

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dpcore.declared import number_text
from dpcore.errors import ConfigurationError
from radobase.logs import quiet_grpc
from radobase.printing import amount, in_lines, local_time
from radofed.cli.framework import LISTED, ConfigOption, QueryInFull, ShownAtMost, Skipped
from radofed.cli.learner.sessions import open_session
from radofed.cli.output import Output, Result, wrapped
from radofed.cli.read_out import ReadOut, confirmed
from wire.request_fields import USUAL_DELTA

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import RenderableType

    from learner.history import AskedRead


def history(
    _output: Output,
    config: ConfigOption,
    query: QueryInFull = None,
    limit: ShownAtMost = LISTED,
    skip: Skipped = 0,
) -> Result:
    """Show what this learner asked, newest first, from its own disk. No coordinator is asked."""
    from learner.config import LearnerConfig
    from learner.history import LearnerHistory

    reader = LearnerHistory(LearnerConfig.load(config))
    if query is not None:
        matching = [query_id for query_id in reader.query_ids if query_id.hex().startswith(query.lower())]
        if len(matching) != 1:
            raise ConfigurationError(f"{len(matching)} queries begin with {query!r}; see `rado learner history`")
        one = reader.read(matching[0])
        return Result(one.to_dict() | {"detail": one.asked.to_dict()}, in_lines(_in_full(one)))
    ids = reader.query_ids
    found = [reader.read(query_id) for query_id in ids[skip : skip + limit]]
    return Result({"queries": [each.to_dict() for each in found], "count": len(ids)}, _table(found, len(ids)))


def _table(found: "Sequence[AskedRead]", count: int) -> "RenderableType":
    from wire.query_summary import with_purpose

    if not found:
        return "no query"
    header = ("time", "query", "asked", "outcome", "cohort")
    rows = []
    for each in found:
        row = (
            local_time(each.asked.created_at_unix_s),
            each.query_id.hex()[:10],
            with_purpose(each.asked.words, each.asked.purpose, each.asked.study),
            each.outcome,
            ", ".join(each.cohort or ()),
        )
        rows.append(row)
    return wrapped(header, rows, f"{len(found)} of {count} queries")


def _in_full(found: "AskedRead") -> list[str]:
    lines = [f"query {found.query_id.hex()}", *found.asked.lines(), f"outcome: {found.outcome}"]
    if found.cohort is not None:
        lines.append("cohort: " + ", ".join(f"{name} ({amount(rows, 'row')})" for name, rows in found.cohort.items()))
    if found.release is not None:
        lines.append(f"release: {found.release}; `rado learner privacy` states its privacy")
    return lines


# `rado learner members|accept`: the members of the federation, and the parties that this learner asks.


def members(output: Output, config: ConfigOption) -> Result:
    """Show the members of the federation, with the digits of each key, and which parties this learner asks.

    Fetches the newest roster. Read this learner's digits to a party that pins its key.
    """
    from learner.accepted_parties import AcceptedParties
    from wire.roster import Role

    with open_session(config, output) as session:
        roster, own = session.fetch_roster(), session.config
    chosen = AcceptedParties.read(own.parties).of(roster)
    trust = {member.name: chosen.trust(member.name) if member.role is Role.PARTY else "" for member in roster.members}
    trust[own.name] = "this learner"
    asked = {party.name for party in chosen.asked}
    data = {
        "roster_version": roster.version,
        "members": [
            {
                "role": member.role.value,
                "name": member.name,
                "digits": member.digits,
                "rows_at_least": member.rows_at_least,
                "asked": member.name in asked,
            }
            for member in roster.members
        ],
    }
    header = ("name", "role", "trust", "rows at least", "digits")
    rows = [
        (
            member.name,
            member.role.value,
            trust[member.name],
            "" if member.rows_at_least is None else str(member.rows_at_least),
            member.digits or "signs nothing",
        )
        for member in roster.members
    ]
    return Result(data, wrapped(header, rows, f"roster version {roster.version}, expires: {roster.expiry_date}"))


def accept(
    _output: Output,
    names: Annotated[list[str], typer.Argument(help="Parties of the roster.", metavar="NAME...", show_default=False)],
    config: ConfigOption,
    fingerprint: ReadOut = None,
) -> Result:
    """Accept parties, which later queries then ask, after each owner read out its fingerprint.

    The fingerprints must be those of the newest roster: if one is not, no one is accepted. Each replaces a former key
    of this party. To ask a party no more, remove its table from parties.toml.
    """
    quiet_grpc()
    from learner.accepted_parties import accept, find_party
    from learner.config import LearnerConfig

    loaded = LearnerConfig.load(config)
    parties = confirmed(names, fingerprint, lambda name, digits: find_party(loaded, config.parent, name, digits))
    found = [accept(loaded, party) for party in parties]
    lines = [sentence for each in found for sentence in each.sentences()]
    changed = any(each.changed for each in found)
    return Result({"party": ", ".join(names), "changed": changed, "parties": loaded.parties}, in_lines(lines))


# `rado learner privacy`: the privacy cost of the composition of several releases.


def privacy(
    _output: Output,
    releases: Annotated[list[Path], typer.Argument(help="The directories of releases.", show_default=False)],
    feature: Annotated[
        str | None, typer.Option(help="Protect this feature's own values, instead of whole records.")
    ] = None,
    column: Annotated[str | None, typer.Option(help="Protect this source column, instead of whole records.")] = None,
    delta: Annotated[str, typer.Option(help="The delta of epsilon, exact.")] = number_text(USUAL_DELTA),
    by_ids: Annotated[
        bool,
        typer.Option(
            "--by-ids",
            help="Count training and held-back rows as disjoint: if every party has an id_column, and every row kept "
            "its id.",
        ),
    ] = False,
) -> Result:
    """Compute the privacy cost of several releases.

    The figure is computed for the composition of releases over the same records, which costs less than the sum of their
    epsilons. Under collusion it counts every attempt of each query that may have a total. Lower bounds are given where
    one is known: for counts.
    """
    from dpcore.errors import ConfigurationError
    from dpcore.numbers.rationals import exact
    from learner.composition import composed_privacy, sentences
    from learner.release import Release

    if feature is not None and column is not None:
        raise ConfigurationError("give --feature or --column, not both")
    budget = exact(delta, "--delta")
    loaded = [Release.load(each) for each in releases]
    cost = composed_privacy(loaded, budget, feature=feature, column=column, by_ids=by_ids)
    studies = Counter(release.query.study for release in loaded if release.query.study is not None)
    what = "one record"
    if feature is not None:
        what = f"one record's value of {feature!r}, within that coordinate's own values where a release bounds no more,"
    elif column is not None:
        what = f"one record's value in the column {column!r}"
    data = {
        "releases": len(releases),
        "attempts": sum(release.attempts for release in loaded),
        "scope": cost.scope,
        "unit": what.split(",", maxsplit=1)[0],
        "epsilon": cost.epsilon,
        "epsilon_lower": cost.epsilon_lower,
        "epsilon_if_others_collude": cost.epsilon_if_others_collude,
        "delta": cost.delta,
        "by_ids": by_ids,
        "studies": [study.to_dict() | {"releases": count} for study, count in studies.items()],
    }
    stated = [f"{count} of {len(loaded)} releases in study {study.short}" for study, count in studies.items()]
    return Result(data, in_lines([*sentences(cost, loaded, what, by_ids=by_ids), *stated]))
