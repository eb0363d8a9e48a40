"""The demo from end to end: data, provisioning, nodes, a query, training, comparison."""

import itertools
import math
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Any

from dpcore.errors import ConfigurationError, PlanError
from dpcore.records.schema import Schema
from radofed.demo.baselines import Baselines, baselines
from radofed.demo.processes import ChildError, Children, ended_by_signals, has_content, wait_for
from radofed.demo.tables import DemoData, Split, digits, own_file, party_names
from radofed.provision import Provisioned, provision
from radofed.templates import PolicyChoices
from wire.roster import Role

FEDERATION = "demo"
LEARNERS = ("radoboost", "mean-variance")
KEY_BITS = 3072
DELTA = Fraction(1, 1_000_000)
ATTEMPTS = 2
START_WITHIN_S = 60.0
ANSWER_WITHIN_S, PREPARE_WITHIN_S, UPLOAD_WITHIN_S = 120, 600, 600
# Port 0: the operating system chooses; the coordinator writes what it got into its state directory.
ANY_PORT = "127.0.0.1:0"
DIGITS_EPSILON_PER_RADO = Fraction(4)
"""A truncation so mild that it costs nothing, and by which Theorem 6 has something to say beside the exact count.

It is left away where the smallest party has so few rows that no epsilon would be finite with it."""


@dataclass(frozen=True)
class DemoOptions:
    """What to demonstrate. data, schema: the user's own, both or neither. keep: where to leave everything.

    sensitive: by default the first boolean coordinate of the schema; where there is none, the design is plain.
    Raises ConfigurationError where the options contradict one another.
    """

    data: Path | None = None
    schema: Schema | None = None
    parties: int = 4
    rados: int = 1000
    split: Split = "label-skew"
    sensitive: str | None = None
    epsilon_per_rado: Fraction | None = None
    keep: Path | None = None

    def __post_init__(self) -> None:
        if (self.data is None) != (self.schema is None):
            raise ConfigurationError("give --data and --schema together; draft a schema with `rado schema infer`")
        if not 2 <= self.parties <= 50:
            raise ConfigurationError(f"{self.parties} parties: the demo runs 2 to 50 of them on this machine")
        if self.rados < 2:
            raise ConfigurationError(f"{self.rados} rados: ask for at least 2")
        if self.keep is not None and self.keep.exists():
            raise ConfigurationError(f"{self.keep}: is there already; give another directory")


@dataclass(frozen=True)
class DemoResult:
    """What the demo showed. Errors are fractions of the held-out rows, phases seconds in order."""

    errors: dict[str, float]
    compared: Baselines
    rows: dict[str, int]
    release: dict[str, Any]
    sentences: list[str]
    phases_s: dict[str, float]
    sensitive: str | None
    directory: Path | None

    def to_dict(self) -> dict[str, Any]:
        """The `data` of `rado demo --format json`."""
        statement = self.release["privacy"]
        figures = ("unit", "scope", "epsilon", "delta", "theorem_epsilon", "epsilon_if_others_collude")
        return {
            "test_error": {
                "radoboost": self.errors["radoboost"],
                "mean_variance": self.errors["mean-variance"],
                "logistic_pooled": self.compared.logistic_pooled,
                "best_single_party": self.compared.best_single_party,
                "median_single_party": self.compared.median_single_party,
                "majority": self.compared.majority,
            },
            "privacy": {name: statement[name] for name in figures},
            "privacy_in_words": self.sentences,
            "parties": len(self.rows),
            "rows_by_party": self.rows,
            "test_rows": self.compared.test_rows,
            "rados": self.release["rados"],
            "design": "plain" if self.sensitive is None else "dp-feat",
            "sensitive": self.sensitive,
            "upload_bytes_per_party": self.release["plan"]["upload_bytes_per_party"],
            "seconds": sum(self.phases_s.values()),
            "seconds_by_phase": self.phases_s,
            "directory": self.directory,
        }


@dataclass
class _Clock:
    """Measures phases."""

    phases_s: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.monotonic()
        yield
        self.phases_s[name] = time.monotonic() - start


def run_demo(options: DemoOptions, note: Callable[[str], None]) -> DemoResult:
    """Run the demo; `note` is told what happens, a sentence at a time.

    Every process that it starts has ended when this returns or raises; everything it wrote is gone then, unless
    `options.keep` says otherwise. Raises ChildError where a node fails.
    """
    with ExitStack() as stack:
        stack.enter_context(ended_by_signals())
        directory = options.keep or Path(tempfile.mkdtemp(prefix="rado-demo-"))
        if options.keep is None:
            stack.callback(shutil.rmtree, directory, ignore_errors=True)
        else:
            directory.mkdir(parents=True, mode=0o700)
        children = stack.enter_context(Children(directory / "logs"))
        try:
            return _run(options, directory, children, note)
        except ChildError:
            note(children.logs_of_all())
            raise


def _run(options: DemoOptions, directory: Path, children: Children, note: Callable[[str], None]) -> DemoResult:
    clock = _Clock()
    with clock.phase("data and keys"):
        data = _data(options, directory / "data")
        rows = {name: _count_rows(file, data.schema) for name, file in data.parties.items()}
        note("parties and their rows: " + ", ".join(f"{name} {count}" for name, count in rows.items()))
        sensitive = _sensitive(options, data.schema, note)
        truncation = _truncation(options, min(rows.values()), note)
        policy = _policy(options, sensitive, truncation, min(rows.values()))
        made = provision(
            directory / "federation",
            federation=FEDERATION,
            coordinator_address=ANY_PORT,
            parties=party_names(options.parties),
            rows_at_least=rows,
            policy=policy,
        )
        _hand_over(made, data)
        (learner,) = made.of(Role.LEARNER)
        note(f"making the learner's {KEY_BITS}-bit Paillier key")
        children.run("keygen", "learner", "keygen", "--config", str(learner.config), "--bits", str(KEY_BITS))
    with clock.phase("starting nodes"):
        _start(made, children, note)
    with clock.phase("federated query"):
        query = ["--rados", str(options.rados), "--delta", str(DELTA), "--attempts", str(ATTEMPTS)]
        query += ["--answer-within-s", str(ANSWER_WITHIN_S), "--prepare-within-s", str(PREPARE_WITHIN_S)]
        query += ["--upload-within-s", str(UPLOAD_WITHIN_S), "--schema", str(directory / "data" / "schema.toml")]
        query += ["--design", "plain" if sensitive is None else "dp-feat"]
        query += [] if sensitive is None else ["--sensitive", sensitive]
        query += [] if sensitive is None or truncation is None else ["--epsilon-per-rado", str(truncation)]
        release = children.run(
            "learner", "learner", "query", "--config", str(learner.config), *query, on_line=_Until(", complete,", note)
        )
    children.check()
    children.stop()
    with clock.phase("training"):
        errors = _train(Path(release["release"]), data, directory / "models", children, note)
    with clock.phase("comparison"):
        note("training on the rows themselves, for comparison")
        compared = baselines(data)
    sentences = _statement(release)
    kept = directory if options.keep is not None else None
    return DemoResult(errors, compared, rows, release, sentences, clock.phases_s, sensitive, kept)


class _Until:
    """Passes lines on up to and with the first that has `last`."""

    def __init__(self, last: str, note: Callable[[str], None]) -> None:
        self._last, self._note, self._over = last, note, False

    def __call__(self, line: str) -> None:
        if not self._over:
            self._note(line)
        self._over = self._over or self._last in line


def _data(options: DemoOptions, directory: Path) -> DemoData:
    if options.data is None or options.schema is None:
        data = digits(directory, options.parties)
    else:
        data = own_file(directory, options.data, options.schema, options.parties, options.split)
    (directory / "schema.toml").write_text(data.schema.to_toml(), encoding="utf-8")
    return data


def _count_rows(file: Path, schema: Schema) -> int:
    from parties.data.dataset import check  # noqa: PLC0415  (the demo itself stands in for each party here)

    return check(schema, file).rows


def _sensitive(options: DemoOptions, schema: Schema, note: Callable[[str], None]) -> str | None:
    name = options.sensitive or next(iter(schema.boolean_coordinates), None)
    if name is None and options.epsilon_per_rado is not None:
        raise ConfigurationError("the schema has no boolean or threshold feature, so leave --epsilon-per-rado out")
    if name is None:
        note("the schema has no boolean or threshold feature to protect, so the design is plain: nothing is protected")
    elif name not in schema.boolean_coordinates:
        choices = ", ".join(schema.boolean_coordinates) or "none"
        raise ConfigurationError(f"--sensitive {name}: choose a boolean or threshold feature of the schema: {choices}")
    return name


def _truncation(options: DemoOptions, fewest_rows: int, note: Callable[[str], None]) -> Fraction | None:
    from dpcore.accounting.dp_feat import own_epsilon  # noqa: PLC0415  (slow to import)

    if options.data is not None or options.epsilon_per_rado is not None:
        return options.epsilon_per_rado
    try:
        own_epsilon(fewest_rows, options.rados, DIGITS_EPSILON_PER_RADO, DELTA)
    except PlanError:
        note(f"the smallest party has only {fewest_rows} rows, so signatures are drawn without truncation")
        return None
    return DIGITS_EPSILON_PER_RADO


def _policy(
    options: DemoOptions, sensitive: str | None, truncation: Fraction | None, fewest_rows: int
) -> PolicyChoices:
    """What the demo's parties allow: this query and no other, at what it costs the smallest party."""
    from dpcore.accounting.dp_feat import own_epsilon  # noqa: PLC0415  (slow to import)
    from dpcore.accounting.filters import BASIC_SHARE  # noqa: PLC0415  (as above)

    if sensitive is None:
        own = _plain_epsilon(fewest_rows, options.rados)
    else:
        try:
            own = own_epsilon(fewest_rows, options.rados, truncation, DELTA)
        except PlanError as error:
            raise ConfigurationError(
                f"with {fewest_rows} rows at the smallest of {options.parties} parties: {error}; in the demo, lower "
                "--parties or --rados"
            ) from error
    return PolicyChoices(
        designs=("plain" if sensitive is None else "dp-feat",),
        allow_unprotected=True,
        smallest_cohort=min(3, options.parties),
        assumed_colluders=min(1, options.parties - 2),
        epsilon=str(math.ceil(ATTEMPTS * own)),
        # The basic filter, which a few large epsilons need, has half of a limit's delta.
        delta=f"{float(ATTEMPTS * DELTA / BASIC_SHARE):g}",
        unbounded_queries=ATTEMPTS,
        rados_per_query=options.rados,
        delta_per_query=f"{float(DELTA):g}",
        attempts_per_query=ATTEMPTS,
        reason=(
            "FOR A DEMONSTRATION ONLY. allow_unprotected is set because these rows are public: rados of this design do "
            "not\nprotect whole records. A party with real rows leaves it false unless its data officer has decided "
            "otherwise."
        ),
    )


def _plain_epsilon(fewest_rows: int, rados: int) -> float:
    """What a boolean feature's own values tell at most: at the smallest party that is large enough to have a bound."""
    from parties.ledger.charges import plain_loss  # noqa: PLC0415  (slow to import)

    for rows in itertools.count(fewest_rows):
        with suppress(PlanError):
            return float(plain_loss(rows, rados, DELTA).epsilon)
    raise AssertionError


def _hand_over(made: Provisioned, data: DemoData) -> None:
    """Give every party its schema and its rows."""
    for member in made.of(Role.PARTY):
        source = data.parties[member.name]
        (member.directory / "schema.toml").write_text(data.schema.to_toml(), encoding="utf-8")
        shutil.copy(source, member.directory / f"data{source.suffix}")
        _replace(member.config, '"data.csv"', f'"data{source.suffix}"')


def _start(made: Provisioned, children: Children, note: Callable[[str], None]) -> None:
    (coordinator,) = made.of(Role.COORDINATOR)
    address_file = coordinator.directory / "state" / "address"
    children.start("coordinator", "coordinator", "start", "--config", str(coordinator.config))
    wait_for("coordinator", lambda: has_content(address_file), children, START_WITHIN_S)
    address = address_file.read_text(encoding="utf-8").strip()
    note(f"coordinator at {address}, mutual TLS; starting {len(made.of(Role.PARTY))} parties and the learner")
    for member in made.members:
        if member.role is not Role.COORDINATOR:
            _replace(member.config, f'"{ANY_PORT}"', f'"{address}"')
    for member in made.of(Role.PARTY):
        children.start(member.name, "party", "start", "--config", str(member.config))


def _replace(file: Path, old: str, new: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert old in text, f"{file} was to have {old}"
    file.write_text(text.replace(old, new), encoding="utf-8")


def _train(
    release: Path, data: DemoData, models: Path, children: Children, note: Callable[[str], None]
) -> dict[str, float]:
    from learner.model import Model, error_rate  # noqa: PLC0415  (imports what the nodes need, not the demo)

    models.mkdir()
    errors = {}
    for name in LEARNERS:
        note(f"training {name} on the rados")
        file = models / f"{name}.json"
        children.run(f"train-{name}", "learner", "train", str(release), "--estimator", name, "--output", str(file))
        errors[name] = error_rate(Model.load(file), data.test)
    return errors


def _statement(release: dict[str, Any]) -> list[str]:
    from dpcore.queries.statement import PrivacyStatement  # noqa: PLC0415  (slow to import)

    return PrivacyStatement.from_dict(release["privacy"]).sentences()
