"""What a party need not compute: rados, persons, epochs, and trainings that people approve once."""

import json
import os
import shlex
import subprocess
import time
from dataclasses import replace
from fractions import Fraction
from typing import Any

from dpcore.queries.moments import longest_norm
from dpcore.records.coding import SIGNS
from learner.planning import Plan
from learner.requests import GradientRequest, MomentsRequest, RadosRequest, Request
from rado.v1 import query_pb2
from radofed.conformance.findings import UnmetError
from radofed.conformance.kit import LEARNER, WATCHED
from radofed.conformance.party_good import MEDIUM, SMALL, UNDERSTOOD, NotComputedError, Trial, unless_not_computed
from radofed.conformance.play import Play, RefusedError, Upload, terms_at
from radofed.conformance.rados import wrong_repeated_table
from wire.envelopes import KEY_BYTES
from wire.errors import Code
from wire.features import Feature
from wire.status import PartyState, Phase
from wire.training import Training

RADOS = 40
"""Of each upload: enough to see their distribution."""
_HOUR_S = 3600


def rados(trial: Trial) -> None:
    """Rados without noise on one feature's signatures, and over a table with noise, which is asked twice."""
    _dp_feat(trial)
    what = "fixed-support: sums over half of the rows of a table with noise"
    again = "fixed-support: the same table asked again has the same noise"
    request = RadosRequest(trial.kit.schema, RADOS, design="fixed-support", **terms_at(MEDIUM))
    first = _computed(trial, "6", what, request)
    if first is None:
        trial.findings.add("6", again, passed=None, detail="there was no first answer over a table with noise")
        return
    play = trial.play(trial.asking.plan(request, understood=UNDERSTOOD))
    with trial.case("6", again):
        second = trial.uploaded(play)
        values = first.open().values, second.open().values
        if (wrong := wrong_repeated_table(play.query, trial.kit.records, *values)) is not None:
            raise UnmetError("6", wrong)
    play.end(Phase.COMPLETE)


def _dp_feat(trial: Trial) -> None:
    what = "dp-feat: sums over rows that a fair coin selects, without noise"
    schema = trial.kit.schema
    if not schema.boolean_coordinates:
        trial.findings.add("6", what, passed=None, detail="the schema has no boolean or threshold feature")
        return
    terms = {name: value for name, value in terms_at(MEDIUM).items() if name != "epsilon"}
    first = schema.boolean_coordinates[0]
    _computed(trial, "6", what, RadosRequest(schema, RADOS, design="dp-feat", sensitive=first, **terms))


def _computed(trial: Trial, section: str, what: str, request: Request, *codes: Code) -> Upload | None:
    """The checked upload for a request; None, with a finding, if it is refused as what the party does not compute.

    codes: of further refusals that say so.
    """
    play = trial.play(trial.asking.plan(request, understood=UNDERSTOOD))
    found: list[Upload] = []
    try:
        with trial.case(section, what):
            found.append(unless_not_computed(trial, play, *codes))
    except NotComputedError as error:
        trial.findings.add(section, what, passed=None, detail=f"it is refused with {error.code.value}")
    play.end(Phase.COMPLETE)
    return found[0] if found else None


def persons(trial: Trial) -> None:
    """Queries that protect persons: all rows of one id count together as much as one record."""
    kinds: dict[str, Request] = {}
    schema, terms = trial.kit.schema, {**terms_at(MEDIUM), "unit": "person"}
    kinds["moments"] = MomentsRequest(schema, norm_bound=longest_norm(schema), **terms)
    if schema.label.coding == SIGNS and schema.weight is None:
        theta = tuple((-1) ** place / (4 + place) for place in range(schema.d))
        kinds["gradient"] = GradientRequest(schema, theta, clip=Fraction(1, 8), **terms)
    for kind, request in kinds.items():
        what = f"persons, {kind}: each person's rows count together as one record"
        reason = _no_persons(trial) or ("" if kind in trial.kinds else f"it does not compute {kind}")
        if reason:
            trial.findings.add("6", what, passed=None, detail=reason)
        else:
            _computed(trial, "6", what, request, Code.PERSONS_UNKNOWN)


def _no_persons(trial: Trial) -> str:
    """Why persons are not asked about; empty if they are."""
    if Feature.PERSONS.value not in trial.features:
        return "it does not state persons"
    if trial.kit.persons is None:
        return "the table has no column `person`, or empty cells in it"
    return "rows with a weight are of no persons" if trial.kit.schema.weight is not None else ""


def epochs(trial: Trial) -> None:
    """Queries about the rows of one epoch."""
    what = "epochs: the sums over the rows of one epoch alone"
    empty = "it refuses a query about an epoch without rows with EPOCH_EMPTY"
    if trial.kit.epochs is None:
        for each in (what, empty):
            reason = "the table has no column `month`, or empty cells in it"
            trial.findings.add("6", each, passed=None, detail=reason)
        return
    schema, name = trial.kit.schema, str(min(trial.kit.epochs))
    common: dict[str, Any] = {**terms_at(MEDIUM), "norm_bound": longest_norm(schema)}
    found = _computed(trial, "6", what, MomentsRequest(schema, epoch=name, **common))
    if found is None and trial.findings.found[-1].passed is None:
        trial.findings.add("6", empty, passed=None, detail="it does not compute epochs")
        return
    play = trial.play(trial.asking.plan(MomentsRequest(schema, epoch="0001-nobody", **common), understood=UNDERSTOOD))
    with trial.case("6", empty) as remarks:
        try:
            play.accepted()
        except RefusedError as error:
            if error.code is not Code.EPOCH_EMPTY:
                remarks.append(f"it says {error.code.value}")
        else:
            raise UnmetError("6", "it was accepted")
    play.end()


# Trainings, and one decision of a person for all queries of one.


def trainings(trial: Trial) -> None:
    """Queries that name the training that they are a round of."""
    named = "a query that names its training is answered as any other"
    wrong = {
        "it refuses a query whose training is of another schema": _of_another_schema,
        "it refuses a query after its training's end": _ended,
        "it refuses a query that names the feature training and no training": _without_training,
    }
    once = "a person who approved a training is not asked again within its terms, and is beyond them"
    if Feature.TRAINING.value not in trial.features:
        for what in (named, *wrong, once):
            trial.findings.add("5", what, passed=None, detail="it does not state training")
        return
    play = trial.play(_round(trial, _training(trial)))
    with trial.case("5", named):
        trial.uploaded(play)
    play.end(Phase.COMPLETE)
    for what, edit in wrong.items():
        bad = trial.play(_round(trial, _training(trial)), edit)
        with trial.case("5", what):
            bad.show(Phase.ANSWERING, PartyState.SILENT)
            answer = bad.answer()
            if answer is None or answer.refusal is None:
                raise UnmetError("5", "no Refusal came" if answer is None else "it was accepted")
        bad.end()
    _approved_once(trial, once)


def _training(trial: Trial, **changes: Any) -> Training:
    """The announcement of a training of two queries."""
    now = int(time.time())
    fields: dict[str, Any] = {
        "name": os.urandom(KEY_BYTES),
        "estimator": "newton",
        "options": "",
        "schema_digest": trial.kit.schema.unweighted.digest,
        "epsilon": 4 * SMALL,
        "delta": Fraction(1, 10**5),
        "queries": 2,
        "max_attempts": 3,
        "begins_unix_s": now - 60,
        "ends_unix_s": now + 24 * _HOUR_S,
    }
    return Training(**{**fields, **changes})


def _round(trial: Trial, training: Training, learner: str = LEARNER, number: int = 1) -> Plan:
    """The plan of one query of a training. number: of the round; each asks something else."""
    schema = trial.kit.schema
    norm = longest_norm(schema) + Fraction(number, 8)
    request = MomentsRequest(schema, norm_bound=norm, training=training, **terms_at(SMALL))
    features = {*UNDERSTOOD, Feature.TRAINING.value}
    return trial.asking.plan(request, understood=features, learner=learner)


def _of_another_schema(message: query_pb2.Query) -> None:
    message.training.schema_digest = os.urandom(KEY_BYTES)


def _ended(message: query_pb2.Query) -> None:
    now = int(time.time())
    message.training.begins_unix_s, message.training.ends_unix_s = now - 2 * _HOUR_S, now - _HOUR_S


def _without_training(message: query_pb2.Query) -> None:
    message.ClearField("training")


def _approved_once(trial: Trial, what: str) -> None:
    if not trial.approve:
        reason = "no person decides: give the command with which one does, with --approve"
        trial.findings.add("7.2", what, passed=None, detail=reason)
        return
    training = _training(trial)
    opened: list[Play] = []

    def play_of(announced: Training) -> Play:
        plan = _round(trial, announced, WATCHED, len(opened) + 1)
        opened.append(trial.play(plan, by=WATCHED))
        return opened[-1]

    with trial.case("7.2", what):
        first = play_of(training)
        first.show(Phase.ANSWERING, PartyState.SILENT)
        if not first.is_pending(trial.patience_s):
            raise UnmetError("7.2", f"a query of {WATCHED} is not Pending: nobody was asked")
        if first.answer(trial.quiet_s) is not None:
            raise UnmetError("7.2", "it answered before a person decided")
        _approve(trial, first)
        trial.uploaded(first)
        first.end(Phase.COMPLETE)
        second = play_of(training)
        trial.uploaded(second)
        if second.is_pending(0.0):
            raise UnmetError("7.2", "the second query of the training waited for a person again")
        second.end(Phase.COMPLETE)
        _waits(trial, play_of(training), "a third query of a training of two")
        _waits(trial, play_of(_training(trial)), "a query of another training")
        larger = replace(training, epsilon=2 * training.epsilon)
        _waits(trial, play_of(larger), "a query of the same training with other terms")
    for play in opened:
        play.end()


def _waits(trial: Trial, play: Play, whose: str) -> None:
    play.show(Phase.ANSWERING, PartyState.SILENT)
    answer = play.answer(2 * trial.quiet_s)
    if answer is not None and answer.refusal is None:
        raise UnmetError("7.2", f"{whose} was accepted without a person's decision")
    if answer is None and not play.is_pending(trial.patience_s):
        raise UnmetError("7.2", f"{whose} is not Pending")
    play.end()


def _approve(trial: Trial, play: Play) -> None:
    """Run the command with which a person approves. Raises UnmetError."""
    words = [word.replace("{query}", play.query_id.hex()) for word in shlex.split(trial.approve)]
    try:
        done = subprocess.run(words, capture_output=True, text=True, timeout=10 * trial.patience_s, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnmetError("7.2", f"the command of --approve cannot be run: {error}") from error
    if done.returncode != 0:
        last = json.dumps((done.stderr or done.stdout).strip()[-300:])
        raise UnmetError("7.2", f"the command of --approve ended with {done.returncode}: {last}")
