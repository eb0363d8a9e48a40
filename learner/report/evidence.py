"""A learner's evidence to file: a record of each opened total, and of the model that was made of them."""

import base64
from collections.abc import Iterator
from typing import Any

from dpcore.accounting.protection import WHOLE
from dpcore.errors import ConfigurationError
from dpcore.queries.statement import PrivacyStatement
from learner.release import Release
from learner.report.gathering import Report, ReportedRelease, Sources, loaded
from learner.report.sentences import assumptions, not_protected
from radobase.presentation.five_safes import ANSWER, MODEL, NOT_CHECKED, OPEN, PASSED, Check, Output, Project
from radobase.presentation.words import texts, unit
from radobase.printing import amount
from wire.query_summary import signed_parts
from wire.roster import Role

_RULE = "each party that answered decided by its own policy, and keeps the record of it"


def outputs(sources: Sources, report: Report) -> tuple[Output, ...]:
    """The outputs of a report: its answers in the order of asking, and then the model, if it is about one.

    sources: of the report. Raises ConfigurationError if a model's releases are not here, and what reading them raises.
    """
    if report.without_releases:
        raise ConfigurationError(
            f"no evidence was written: {report.without_releases}. Give the learner's --config, or each --release"
        )
    _, releases, _ = loaded(sources)
    answers = [_answer(report, answer, release) for answer, release in zip(report.answers, releases, strict=True)]
    return (*answers, *([] if report.model is None else [_model(report, answers)]))


def _answer(report: Report, answer: ReportedRelease, release: Release) -> Output:
    envelope = release.query_envelope
    return Output(
        what=ANSWER,
        identity=answer.query_id,
        learner=answer.asked.learner,
        key=_key(report, answer.asked.learner),
        project=Project.of(release.query.study, answer.asked.purpose),
        words=answer.asked.words,
        asked=answer.asked.to_dict() | {"predicates": list(answer.asked.predicates), "rows": answer.rows},
        privacy=_privacy(report, answer.statement) | {"attempts_that_may_have_a_total": answer.attempts},
        checks=tuple(_checks(report, answer.statement, answer)),
        approvals=(),
        rule=_RULE,
        began_unix_s=min(answer.asked.created_at_unix_s, answer.opened_at_unix_s),
        ended_unix_s=answer.opened_at_unix_s,
        signed={
            "payload": base64.b64encode(envelope.payload).decode(),
            "signature": base64.b64encode(envelope.signature).decode(),
            "fields": [part.to_dict() for part in signed_parts(envelope.payload)],
        },
    )


def _model(report: Report, answers: list[Output]) -> Output:
    assert report.model is not None, "the report is about a model"
    first, last = answers[0], answers[-1]
    return Output(
        what=MODEL,
        identity=report.digest,
        learner=last.learner,
        key=last.key,
        project=last.project,
        words=f"{report.model.estimator} of {amount(len(answers), 'answer')}",
        asked={
            "answers": [answer.identity for answer in answers],
            "estimator": report.model.estimator,
            "options": report.options,
            "schema": report.schema_name,
            "schema_digest": report.schema_digest,
        },
        privacy=_privacy(report, report.statement),
        checks=tuple(_checks(report, report.statement, None)),
        approvals=(),
        rule=_RULE,
        began_unix_s=first.began_unix_s,
        ended_unix_s=max(answer.ended_unix_s for answer in answers),
    )


def _key(report: Report, learner: str) -> str:
    keys = {m.fingerprint for m in report.members if m.role == Role.LEARNER.value and m.name == learner}
    return keys.pop() if len(keys) == 1 else ""


def _privacy(report: Report, statement: PrivacyStatement) -> dict[str, Any]:
    return {
        **statement.to_dict(),
        "unit": unit(statement.unit),
        "epsilon_is_of": "this output alone, against the learner alone; each party's ledger counts all answers",
        "honest_parties": list(report.honest_parties),
        "assumptions": [*statement.assumptions, *texts(assumptions(report))],
        "not_protected": texts(not_protected(report)),
        "sentences": statement.sentences(),
    }


def _checks(report: Report, statement: PrivacyStatement, answer: ReportedRelease | None) -> Iterator[Check]:
    what = "roster, query, cohort and receipts bear the signatures of this federation"
    if report.is_verified:
        yield Check(what, PASSED, "verified again for this record, against the pinned key of the federation")
    else:
        yield Check(what, NOT_CHECKED, "the report was made without the learner's --config, which pins the key")
    if answer is None:
        yield Check("it was trained on exactly these answers", PASSED, "the model's file has their digest")
    else:
        found, needed = len(answer.rows), answer.asked.cohort_min
        result = PASSED if found >= needed else OPEN
        how = f"{amount(found, 'party')}, at least {needed} asked for"
        yield Check("the total is over as many parties as the query states", result, how)
    what = "noise bounds what it says about one row, or one person"
    if statement.epsilon is None or statement.scope not in WHOLE:
        yield Check(what, OPEN, "nothing is bounded for whole rows; its privacy statement says what is")
    else:
        delta = "0" if statement.delta is None else f"{statement.delta:g}"
        yield Check(what, PASSED, f"epsilon {statement.epsilon:.6g} at delta {delta}, against the learner alone")
