"""What a report on a release or a model says, gathered from the learner's own files. Nothing is asked."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpcore.accounting.odds import exceptions
from dpcore.accounting.protection import WHOLE
from dpcore.errors import ConfigurationError
from dpcore.evaluation.descriptive.result import Result
from dpcore.queries.statement import PrivacyStatement
from learner.clipped_weights import what_clipping_does
from learner.composition import EpsilonCurve, curves
from learner.config import LearnerConfig
from learner.history import RELEASE_NAME_DIGITS
from learner.inquiries import inquiry_file, read_again
from learner.journal import query_ids_of
from learner.model import Model
from learner.release import Release, ReleaseError, stated_digest
from learner.report.coefficients import Coefficients, coefficients
from learner.report.measured import Measured, measure, read_evaluation
from learner.scoring import by_score
from learner.shapes import Shapes, every_shapes
from learner.training import digest_of_releases
from radobase.presentation.words import chances
from wire.envelopes import fingerprint, load_public_key
from wire.errors import WireError
from wire.query_summary import QuerySummary
from wire.roster import Role, Roster, members_that_left
from wire.study import Study

MOST_PREDICATES = 20
"""Predicates of a query that a report shows."""
MOST_RELEASES = 1000
MOST_JOURNALS = 200
_SEED_BYTES = 16


@dataclass(frozen=True)
class Sources:
    """What a report is made from."""

    subject: Path
    """A model's file or a release's directory."""
    releases: tuple[Path, ...] = ()
    """Directories of a model's releases, in the order of asking; empty to look for them with `config`."""
    config: LearnerConfig | None = None
    options: Mapping[str, Any] | None = None
    """Of the estimator, as in the training."""
    evaluation: Path | None = None
    """A file of `rado learner evaluate`."""
    test: Path | None = None
    """Labelled rows of the learner's own."""


@dataclass(frozen=True)
class ReportedRelease:
    """One release: what was asked, when and by whom it was answered."""

    query_id: str
    digest: str
    asked: QuerySummary
    opened_at_unix_s: int
    attempt: int
    attempts: int
    """How many may have a total."""
    rows: dict[str, int]
    """Of each party of the cohort."""
    statement: PrivacyStatement


@dataclass(frozen=True)
class MemberRow:
    """A member of a roster."""

    role: str
    name: str
    fingerprint: str
    answered: int | None
    """How many of the releases a party's rows are in; None for other roles."""
    rows: int | None
    left_after: int | None = None
    """The last roster of these releases that lists it, if the newest one does not; None if it does."""


@dataclass(frozen=True)
class Chances:
    """The chance of a guess about one unit in words: before, after for the learner alone, and if others collude."""

    before: str
    alone: str
    colluding: str


@dataclass(frozen=True)
class Report:
    """What a report on a release or a model says."""

    subject_file: str
    digest: str
    """Of the model or release."""
    version: str
    made_at_unix_s: float
    model: Model | None
    """None for a release."""
    statement: PrivacyStatement
    answers: tuple[ReportedRelease, ...]
    without_releases: str
    """Why the model's releases are not here; empty if they are."""
    is_verified: bool | None
    """Whether all signatures were verified against the federation's pinned key; None if that key was not given."""
    federation: str | None
    roster_version: int | None
    """Of the newest release."""
    members: tuple[MemberRow, ...]
    honest_parties: tuple[int, ...]
    """How many parties' noise is counted under collusion."""
    chances: tuple[Chances, ...]
    """None if nothing is bounded for a whole row."""
    exceptions: float | None
    curves: tuple[EpsilonCurve, ...]
    coefficients: tuple[Coefficients, ...]
    """Of each score of a model; empty for a release."""
    shapes: tuple[Shapes, ...]
    """Of each score of a model with a feature map, whose coefficients say nothing; empty for others."""
    measured: tuple[Measured, ...]
    found: Result | None
    """What a release of an inquiry answers, such as curves of survival; None for others, and for a model."""
    options: dict[str, Any]
    schema_name: str
    schema_digest: str
    seed: str
    """Of the intervals."""

    @property
    def learners(self) -> tuple[str, ...]:
        """Who asked."""
        return tuple(dict.fromkeys(answer.asked.learner for answer in self.answers))

    @property
    def parties(self) -> tuple[MemberRow, ...]:
        """The parties whose rows are in a release."""
        return tuple(member for member in self.members if member.answered)

    @property
    def rows(self) -> int | None:
        """The rows of the parties that answered, as they stated them last."""
        return sum(member.rows or 0 for member in self.parties) if self.answers else None

    @property
    def purposes(self) -> tuple[tuple[str, int], ...]:
        """The purposes that its queries state, with the number of queries."""
        return tuple(Counter(answer.asked.purpose for answer in self.answers if answer.asked.purpose).most_common())

    @property
    def without_purpose(self) -> int:
        """The number of its queries that state none."""
        return sum(not answer.asked.purpose for answer in self.answers)

    @property
    def studies(self) -> tuple[tuple[Study, int], ...]:
        """The studies that its queries name, with the number of queries."""
        return tuple(Counter(answer.asked.study for answer in self.answers if answer.asked.study).most_common())

    @property
    def without_study(self) -> int:
        """The number of its queries that name none."""
        return sum(answer.asked.study is None for answer in self.answers)

    def to_dict(self) -> dict[str, Any]:
        """All figures by name, in JSON types."""
        return {
            "subject": self.subject_file,
            "digest": self.digest,
            "made_at_unix_s": self.made_at_unix_s,
            "estimator": None if self.model is None else self.model.estimator,
            "privacy": self.statement.to_dict(),
            "answers": [
                {
                    **asdict(answer),
                    "asked": answer.asked.to_dict() | {"predicates": list(answer.asked.predicates)},
                    "statement": answer.statement.to_dict(),
                }
                for answer in self.answers
            ],
            "without_releases": self.without_releases or None,
            "studies": [study.to_dict() | {"queries": queries} for study, queries in self.studies],
            "signatures_verified": self.is_verified,
            "federation": self.federation,
            "roster_version": self.roster_version,
            "members": [asdict(member) for member in self.members],
            "chances": [asdict(chance) for chance in self.chances],
            "exceptions": self.exceptions,
            "curves": [asdict(curve) for curve in self.curves],
            "coefficients": by_score({each.of: each.to_dict() for each in self.coefficients}),
            "clipping": [] if self.model is None else list(what_clipping_does(self.model)),
            "shapes": by_score({each.label: each.to_dict(each.ranked) for each in self.shapes}),
            "evaluations": [measured.to_dict() for measured in self.measured],
            "found": None if self.found is None else self.found.to_dict(),
            "schema_digest": self.schema_digest,
            "seed": self.seed,
        }


def gather(sources: Sources, now_unix_s: float, version: str) -> Report:
    """The report on a release or a model. version: of this program.

    Raises ConfigurationError if a file is of another sort or of another model, and what reading each of them raises.
    """
    model, releases, without = loaded(sources)
    if model is None and (sources.evaluation or sources.test or sources.options):
        raise ConfigurationError("--evaluation, --test and --option are about a model: give the model's file")
    statement = releases[0].statement if model is None else model.statement
    schema = releases[0].schema if model is None else model.schema
    digest = releases[0].digest if model is None else model.digest
    rosters = [Roster.from_bytes(release.roster_envelope.payload) for release in releases]
    roster = max(rosters, key=lambda each: each.version, default=None)
    options = dict(sources.options or {})
    seed = digest[:_SEED_BYTES]
    random = np.random.default_rng(list(seed))
    return Report(
        subject_file=sources.subject.name,
        digest=digest.hex(),
        version=version,
        made_at_unix_s=now_unix_s,
        model=model,
        statement=statement,
        answers=tuple(map(_answer, releases)),
        without_releases=without,
        is_verified=_verified(releases, sources.config),
        federation=None if roster is None else roster.federation,
        roster_version=None if roster is None else roster.version,
        members=() if roster is None else _members(roster, rosters, releases),
        honest_parties=tuple(sorted({release.query.honest_of(len(release.party_rows)) for release in releases})),
        chances=_chances(statement),
        exceptions=None if statement.delta is None else exceptions(statement.delta),
        curves=curves(releases, statement),
        coefficients=() if model is None else coefficients(model, releases, options, random),
        shapes=() if model is None or model.feature_map is None else every_shapes(model),
        measured=() if model is None else _measured(sources, model),
        found=None if model is not None else _found_by_inquiry(sources.subject),
        options=options,
        schema_name=schema.name,
        schema_digest=schema.digest.hex(),
        seed=seed.hex(),
    )


def _found_by_inquiry(directory: Path) -> Result | None:
    """What a release's directory answers; None without the file of an inquiry beside it."""
    return read_again(directory)[0] if inquiry_file(directory).exists() else None


def loaded(sources: Sources) -> tuple[Model | None, tuple[Release, ...], str]:
    """The model, if the subject is one; the releases; and why a model's releases are not here."""
    subject = sources.subject
    if subject.is_dir():
        if sources.releases:
            raise ConfigurationError(
                "--release names what a model was trained on: give the model's file, or leave it out"
            )
        return None, (Release.load(subject),), ""
    if not subject.exists():
        raise ConfigurationError(f"{subject}: does not exist; give a model's file or a release's directory")
    model = Model.load(subject)
    if sources.releases:
        releases = tuple(map(Release.load, sources.releases))
        if digest_of_releases([release.digest for release in releases]) != model.release_digest:
            raise ConfigurationError(
                f"{subject}: was not trained on these releases; give all of them, in the order in which they were asked"
            )
        return model, releases, ""
    if sources.config is None:
        return model, (), "no --release and no --config was given, so the model's releases were not looked for"
    found = _found(model, subject, sources.config.releases_directory)
    return model, found, "" if found else "the learner's directory of releases does not have them, or not all"


def _found(model: Model, file: Path, directory: Path) -> tuple[Release, ...]:
    """The model's releases in the learner's directory: by the journal of its training, else by their digests.

    The journal may have another name, as where the model was renamed: what it names has the model's digest, or is not
    taken.
    """
    named = file.with_name(f"{file.name}.journal")
    others = sorted(path for path in file.parent.glob("*.journal") if path != named)
    for journal in [path for path in (named, *others) if path.is_file()][:MOST_JOURNALS]:
        try:
            places = [directory / query_id.hex()[:RELEASE_NAME_DIGITS] for query_id in query_ids_of(journal)]
        except ConfigurationError:
            if journal == named:
                raise
            continue
        if places and all(place.is_dir() for place in places):
            digests = [_digest_stated(place) for place in places]
            if None not in digests and digest_of_releases(list(filter(None, digests))) == model.release_digest:
                return tuple(map(Release.load, places))
    for place in sorted(directory.iterdir())[:MOST_RELEASES] if directory.is_dir() else []:
        if _digest_stated(place) == model.release_digest:
            return (Release.load(place),)
    return ()


def _digest_stated(place: Path) -> bytes | None:
    try:
        return bytes.fromhex(stated_digest(place))
    except (ReleaseError, ValueError):
        return None


def _answer(release: Release) -> ReportedRelease:
    return ReportedRelease(
        query_id=release.query_id.hex(),
        digest=release.digest.hex(),
        asked=QuerySummary.of(release.query),
        opened_at_unix_s=release.created_at_unix_s,
        attempt=release.cohort.attempt,
        attempts=release.attempts,
        rows=release.party_rows,
        statement=release.statement,
    )


def _verified(releases: Sequence[Release], config: LearnerConfig | None) -> bool | None:
    """Raises ConfigurationError if a signature is wrong."""
    if config is None or not releases:
        return None
    key = load_public_key(config.federation_key)
    for release in releases:
        try:
            release.verify(key)
        except WireError as error:
            raise ConfigurationError(
                f"release {release.digest.hex()[:16]}: its signatures are not those of this federation ({error}); give "
                "the --config of the learner that fetched it"
            ) from error
    return True


def _members(roster: Roster, rosters: Sequence[Roster], releases: Sequence[Release]) -> tuple[MemberRow, ...]:
    """Those of the newest roster, then those that left: their rows may be in an earlier release."""
    stated: dict[str, int] = {}
    for release in releases:
        stated |= release.party_rows
    listed = [*((member, None) for member in roster.members), *members_that_left(roster, rosters)]
    return tuple(
        MemberRow(
            role=member.role.value,
            name=member.name,
            fingerprint=fingerprint(member.signing_key) if member.signing_key else "",
            answered=sum(member.name in release.party_rows for release in releases)
            if member.role is Role.PARTY
            else None,
            rows=stated.get(member.name),
            left_after=version,
        )
        for member, version in listed
    )


def _chances(statement: PrivacyStatement) -> tuple[Chances, ...]:
    """For whole records only: what a smaller scope bounds is no guess about a row."""
    epsilon, colluding, delta = statement.epsilon, statement.epsilon_if_others_collude, statement.delta
    if statement.scope not in WHOLE or epsilon is None or colluding is None or delta is None:
        return ()
    return tuple(
        Chances(before, alone, together or "") for before, alone, together in chances(epsilon, colluding, delta)
    )


def _measured(sources: Sources, model: Model) -> tuple[Measured, ...]:
    found = []
    if sources.evaluation is not None:
        found.append(read_evaluation(sources.evaluation, model))
    if sources.test is not None:
        found.append(measure(model, sources.test))
    return tuple(found)
