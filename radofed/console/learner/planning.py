"""The page that plans, forwards and backwards, and the page that confirms what is asked."""

import inspect
import shlex
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dpcore.declared import values_of
from dpcore.errors import ConfigurationError, RadofedError
from dpcore.evaluation.descriptive.inquiry import Inquiry
from dpcore.evaluation.descriptive.result import Table
from dpcore.predicates.evaluation import check
from dpcore.predicates.notation import parse
from dpcore.records.schema import Schema
from dpcore.statistics.adaptive import Adaptive, Way
from learner.accepted_parties import AcceptedParties
from learner.config import LearnerConfig
from learner.estimators import class_of
from learner.federation import Federation
from learner.history import AskedBefore, LearnerHistory
from learner.inquiries import save_inquiry
from learner.planning import Plan, cohort_sizes, statements
from learner.progress import answers_in_words
from learner.questions import Questions
from learner.requests import Request, query_request
from learner.session import Session
from radobase.schema_files import load_schema, schema_of
from radofed.console.learner.queries import (
    BUDGET,
    CHOICES,
    INQUIRIES,
    PLAN,
    QUERY,
    STATISTIC,
    USUAL,
    Following,
    PlanFields,
    Waiting,
    asked_parties,
    fields_of,
)
from radofed.console.learner.trainings import PreparedTraining, Trainings
from radofed.console.pages import Answer, Goto, Shown, Visit
from radofed.planning.asked_cost import AskedCost
from radofed.planning.asked_queries import AskRequest
from radofed.planning.from_options import Planned, cost_of, party_rows, request_of, worth_curve
from radofed.planning.inquiries import plan_inquiry
from radofed.planning.picture import worth_plot
from wire.query_summary import QuerySummary, signed_parts
from wire.request_fields import AskedTerms, QueryOptions
from wire.roster import Member

_ASSUMED = "Assumed: "
_MODEL = "model.json"
SERIES = Way.SPLIT
"""Of questions that answers may choose: the piece that one is about says in its release how many there are."""
MOST_PREDICATES = 50

_COMMAND = ("schema", "label", "epsilon", "delta", "purpose", "study")
"""Fields that the printed command repeats, if they are given."""


@dataclass
class Prepared:
    """A plan that may be asked."""

    plan: Plan
    parties: tuple[Member, ...]
    """Those that it asks."""
    notes: list[str]
    """As of a command."""
    request: Request
    earlier: AskedBefore | None = None
    """A query that asked the same, and has an answer or may get one."""
    inquiry: Inquiry | None = None
    """What it asks, if it is one."""
    said: Sequence[str] = ()
    """The plan in words; empty for those of the query."""
    expected: Table | None = None
    """The intervals that an inquiry expects."""
    answers: tuple[str, ...] = ()
    """Of parties that were asked whether they would accept it."""
    asked: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


class Planning:
    """Plans a learner's queries and asks them."""

    def __init__(self, file: Path, config: LearnerConfig, following: Following, trainings: Trainings) -> None:
        self._file, self._config, self._following, self._trainings = file, config, following, trainings
        self._waiting = Waiting[Prepared]("plan again")

    def page(self, visit: Visit) -> Answer:
        """The form. query: what, a design, an estimator or "statistic"."""
        return self._shown(self._fields(visit.query.get("what", USUAL)), self._usual())

    def act(self, visit: Visit) -> Answer:
        """As `rado plan`, or on to the confirmation. form: what, the fields, and "do": "plan" or "ask"."""
        fields = self._fields(visit.form.get("what", USUAL))
        values = {each.name: visit.form.get(each.name, "") for each in (*fields.first, *fields.more)}
        try:
            if visit.form.get("do") == "ask":
                if fields.asks_by_itself:
                    return Goto(f"training/{self._prepare_training(fields, values)}")
                return Goto(f"asking/{self._prepare(fields, values)}")
            if fields.is_inquiry:
                return self._planned_inquiry(fields, values)
            return self._planned(fields, values)
        except RadofedError as error:
            return self._shown(fields, values, fault=str(error))

    def confirmation(self, visit: Visit) -> Answer:
        """What is asked, of whom, and what it costs."""
        prepared = self._waiting.find(visit)
        asked = QuerySummary.of(prepared.plan.query)
        values = {
            "name": visit.path["plan"],
            "prepared": prepared,
            "said": prepared.said or prepared.plan.sentences(),
            "query": prepared.plan.query_id.hex(),
            "predicates": asked.predicates[:MOST_PREDICATES],
            "more_predicates": max(0, len(asked.predicates) - MOST_PREDICATES),
            "signed": signed_parts(prepared.plan.query.to_bytes()),
        }
        return Shown("learner/asking.html", "Ask this?", values)

    def ask(self, visit: Visit) -> Answer:
        """As `rado learner query`: sign it, write it to disk, send and follow it. A second time does nothing."""
        prepared = self._waiting.find(visit)
        with prepared.lock:
            if not prepared.asked:
                with self._following.session(prepared.notes) as session:
                    session.prepare(prepared.plan)
                    if prepared.inquiry is not None:
                        save_inquiry(prepared.inquiry, session.release_directory(prepared.plan.query_id))
                prepared.asked = True
                self._following.start(prepared.plan.query_id)
        return Goto(f"queries/{prepared.plan.query_id.hex()}")

    def would_accept(self, visit: Visit) -> Answer:
        """As `rado learner query --would-accept`: ask the parties, and show what they say on the page."""
        prepared = self._waiting.find(visit)
        with prepared.lock, self._following.session(prepared.notes) as session:
            prepared.answers = tuple(answers_in_words([session.would_accept(prepared.request)]))
        return Goto(f"asking/{visit.path['plan']}")

    def _fields(self, what: str) -> PlanFields:
        if what not in {name for names in CHOICES.values() for name in names}:
            raise ConfigurationError(f"there is no plan of {what!r}: choose one of the list")
        return fields_of(what)

    def _history(self) -> LearnerHistory | None:
        return LearnerHistory(self._config) if self._config.state_directory.is_dir() else None

    def _usual(self) -> dict[str, str]:
        """Values that follow from what the learner has seen: the rows that accepted parties stated last."""
        history = self._history()
        if history is None or (roster := history.roster) is None:
            return {}
        parties = AcceptedParties.read(self._config.parties).of(roster).asked
        rows = list(history.rows_of(parties, roster).values())
        return {"party_rows": ",".join(map(str, rows))} if rows and None not in rows else {}

    def _schema(self, values: Mapping[str, str]) -> Schema:
        """The schema of a file and its label, or without a file those of the newest query."""
        text, label = values["schema"], values.get("label") or None
        if text:
            return load_schema(Path(text).expanduser(), label)
        history = self._history()
        newest = None if history is None else history.newest_query
        if newest is None:
            raise ConfigurationError("give the path of the schema's file: there is no query yet that has one")
        return schema_of(newest.schema, label)

    def _planned(self, fields: PlanFields, values: dict[str, str]) -> Answer:
        options, schema = PLAN.parse(values, **fields.chosen), self._schema(values)
        if fields.what == STATISTIC and not options.statistic:
            raise ConfigurationError('give at least one predicate, such as x["age"] >= 65')
        # Some are options of the query alone; they are read here, too, so that a wrong one is seen at once.
        asked = self._asked(values, fields.what) if fields.is_design else BUDGET.parse(values)
        honest = _honest(asked, request_of(options, schema).party_rows)
        if fields.is_design or honest is not None:
            options = replace(options, honest=honest)
        request = request_of(options, schema)
        if isinstance(request, AskRequest):
            request = replace(request, way=SERIES)
        planned = cost_of(request, options)
        if planned.needed_epsilon is not None:
            values |= {"epsilon": planned.needed_epsilon, "worth": ""}
        sentences = planned.sentences()
        warning = f"Warning: {planned.cost.warning}"
        found = {
            "planned": planned,
            "said": [each for each in sentences if each != warning and not each.startswith(_ASSUMED)],
            "assumed": [each.removeprefix(_ASSUMED) for each in sentences if each.startswith(_ASSUMED)],
            "curve": worth_plot(worth_curve(request), planned) if planned.cost.feasible else None,
            "command": "" if fields.is_design else self._command(fields, values),
            **({} if fields.is_design or fields.what == STATISTIC else self._evaluation(fields, values)),
        }
        return self._shown(fields, values, **found)

    def _planned_inquiry(self, fields: PlanFields, values: dict[str, str]) -> Answer:
        """As `rado learner describe --plan` and the like, for the sizes that the form has."""
        options, schema = INQUIRIES[fields.what].parse(values), self._schema(values)
        sizes = PLAN.parse({name: values[name] for name in ("rows", "parties", "party_rows")})
        held = party_rows(sizes.rows, sizes.parties, sizes.party_rows)
        epsilon, delta = options.budget(fields.what)
        terms = values_of(options, AskedTerms)
        found = plan_inquiry(options.asked(), schema, held, epsilon=epsilon, delta=delta, **terms)
        said, command = found.sentences(), self._inquiry_command(fields, values)
        return self._shown(fields, values, said=said, expected=found.widths(), command=command)

    def _inquiry_command(self, fields: PlanFields, values: Mapping[str, str]) -> str:
        """The command that asks the same."""
        columns = [line.strip() for line in values.get("columns", "").splitlines() if line.strip()]
        given = {name: text for name, text in values.items() if name != "columns"}
        words = INQUIRIES[fields.what].arguments(given)
        return shlex.join(["rado", "learner", fields.what, *columns, "--config", str(self._file), *words])

    def _inquiry(self, session: Session, fields: PlanFields, values: Mapping[str, str]) -> Prepared:
        """What is asked of the accepted parties of the newest roster."""
        options, schema = INQUIRIES[fields.what].parse(values), self._schema(values)
        source, inquiry = Questions(session), options.asked()
        federation = Federation(source, schema, **values_of(options, AskedTerms))
        epsilon, delta = options.budget(fields.what)
        found = federation.planned_inquiry(inquiry, epsilon=epsilon, delta=delta)
        expected = None if found.expected is None else found.widths()
        request = source.request_of(found.plan)
        return Prepared(found.plan, (), [], request, inquiry=inquiry, said=found.sentences(), expected=expected)

    def _asked(self, values: Mapping[str, str], design: str) -> QueryOptions:
        """The options of `rado learner query`."""
        # The command needs a file; without one it is the newest query's schema.
        schema = values["schema"] or str(self._file)
        return QUERY.parse(values, config=str(self._file), schema=schema, design=design)

    def _prepare(self, fields: PlanFields, values: Mapping[str, str]) -> str:
        schema = self._schema(values)
        notes: list[str] = []
        with self._following.session(notes) as session:
            if fields.is_inquiry:
                prepared = self._inquiry(session, fields, values)
            elif fields.is_design:
                request: Request = query_request(self._asked(values, fields.what), schema)
                prepared = Prepared(session.plan(request), (), [], request)
            else:
                prepared = Prepared(*self._statistic(session, schema, values))
            plan = prepared.plan
            parties = tuple(each for each in session.fetch_roster().parties if plan.query.asks(each.name))
            prepared = replace(prepared, parties=parties, notes=notes, earlier=session.asked_before(plan))
        return self._waiting.keep(prepared)

    def _statistic(
        self, session: Session, schema: Schema, values: Mapping[str, str]
    ) -> tuple[Plan, tuple[Member, ...], list[str], Request]:
        """The fields of the plan of a batch of statistics, as `rado learner statistic` asks it."""
        options = PLAN.parse({name: text for name, text in values.items() if name != "worth"})
        predicates = [parse(text) for text in options.statistic]
        if not predicates:
            raise ConfigurationError('give at least one predicate, such as x["age"] >= 65')
        check(predicates, schema)
        if options.noise_rate:
            raise ConfigurationError("--noise-rate is for the command that the plan prints: leave it out to ask here")
        asked = BUDGET.parse(values)
        source = Questions(session)
        federation = Federation(source, schema, **values_of(asked, AskedTerms))
        series = None if options.adaptive is None else Adaptive(options.adaptive, SERIES)
        oracle = federation.within(*asked.budget("a statistic"), series)
        plan = oracle.planned(predicates, tolerance=options.tolerance, confidence=options.confidence)
        return plan, (), [], source.request_of(plan)

    def _prepare_training(self, fields: PlanFields, values: Mapping[str, str]) -> str:
        """Plan what an estimator asks of the accepted parties of the newest roster, and keep it to be confirmed."""
        schema = self._schema(values)
        notes: list[str] = []
        texts, options = self._trainings.options(fields.what, values)
        with self._following.session(notes) as session:
            roster, parties = asked_parties(session, notes)
            rows = list(session.rows_of(parties.asked, roster).values())
            stated = statements(options, session.study)
        plan = PLAN.parse({**values, **_rows_of(rows, values)}, **fields.chosen)
        plan = replace(plan, honest=_honest(options, request_of(plan, schema).party_rows))
        planned = cost_of(request_of(plan, schema), plan)
        if not planned.cost.feasible:
            raise ConfigurationError(f"this is not possible: {planned.cost.reason}")
        if planned.needed_epsilon is not None:
            texts["epsilon"] = planned.needed_epsilon
        warning = planned.cost.warning or ""
        warned = [f"Warning: {warning}"]
        if isinstance(planned.cost, AskedCost) and (few := planned.cost.coefficients_warning) is not None:
            warned.append(f"Warning: {few}")
            notes.append(warned[-1])
        said = [*stated, *(each for each in planned.sentences() if each not in warned)]
        prepared = PreparedTraining(
            estimator=fields.what,
            given=texts,
            schema=schema,
            said=said,
            warning=warning,
            parties=parties.asked,
            notes=notes,
        )
        return self._trainings.prepare(prepared)

    def _command(self, fields: PlanFields, values: Mapping[str, str]) -> str:
        """The command that asks what the page does not ask."""
        given = [f"--{name}={values[name]}" for name in _COMMAND if values[name]]
        shared = ["--config", str(self._file), *given]
        if fields.what == STATISTIC:
            series = [f"--adaptive={values['adaptive']}"] if values["adaptive"] else []
            return shlex.join(["rado", "learner", "statistic", *values["statistic"].splitlines(), *shared, *series])
        options = [f"--option={text}" for text in values["option"].splitlines()]
        options += [f"--{name.replace('_', '-')}={values[name]}" for name in ("rounds", "class_weight") if values[name]]
        asks = ["rado", "learner", "train", "--estimator", fields.what, *shared, *options]
        return shlex.join([*asks, "--output", _MODEL])

    def _evaluation(self, fields: PlanFields, values: Mapping[str, str]) -> dict[str, Any]:
        """The command that measures the model, and whether its training may hold rows back."""
        given = [f"--{name}={values[name]}" for name in _COMMAND[2:] if values[name]]
        asks = ["rado", "learner", "evaluate", _MODEL, "--config", str(self._file), *given]
        # A guarantee needs a known number of rows, which a part of them does not have.
        guarantees = "require_rows" in inspect.signature(class_of(fields.what)).parameters
        return {"evaluation": shlex.join(asks), "may_hold_back": not guarantees}

    def _shown(self, fields: PlanFields, values: Mapping[str, str], **found: Any) -> Answer:
        history = self._history()
        newest = None if history is None else history.newest_query
        shared = {
            "choices": CHOICES,
            "fields": fields,
            "entered": values,
            "more_given": any(values.get(each.name, each.default) != each.default for each in fields.more),
            "schema_hint": "The path of the schema that the parties share."
            + ("" if newest is None else f" Empty: that of the newest query, {newest.schema.name!r}."),
            "fault": "",
            "planned": None,
            "expected": None,
            "said": [],
            "curve": None,
            "command": "",
            "evaluation": "",
        }
        return Shown("learner/plan.html", "Plan", shared | found)


def _rows_of(stated: Sequence[int | None], values: Mapping[str, str]) -> dict[str, str]:
    """The fields of the parties' rows: as they stated them, otherwise as they were typed.

    Raises ConfigurationError if those are not of as many parties as are asked.
    """
    typed = values.get("party_rows", "")
    if None not in stated:
        typed = ",".join(map(str, stated))
    elif len(typed.split(",")) != len(stated):
        raise ConfigurationError(
            f"{len(stated)} parties are asked, and the roster does not state the rows of each: give them by "
            "--party-rows"
        )
    return {"rows": "", "parties": "", "party_rows": typed}


def _honest(asked: AskedTerms, party_rows: tuple[int, ...]) -> int | None:
    """The parties whose noise counts, as the query will have it; None for the usual number, also of a pool."""
    most = asked.max_parties if isinstance(asked, QueryOptions) else None
    if asked.colluders is asked.cohort_min is most is None:
        return None
    colluders, cohort_min, _ = cohort_sizes(
        len(party_rows), colluders=asked.colluders, cohort_min=asked.cohort_min, max_parties=most
    )
    # All parties of a plan answer.
    return (len(party_rows) if asked.cohort_noise == "answering" else cohort_min) - colluders


def _epsilon(planned: Planned) -> float | None:
    epsilon = planned.cost.request.epsilon
    return None if epsilon is None else float(epsilon)
