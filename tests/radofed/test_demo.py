"""`rado demo`, whole: real processes, 3072-bit keys, the tables at the end; and nothing left behind however it ends."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

from dpcore.errors import ConfigurationError
from dpcore.records.schema import Schema
from learner.composition import composed_privacy
from learner.release import Release
from parties.data.dataset import check
from parties.data.schema_draft import infer
from parties.policy import Policy
from radofed.cli.demo import _schema
from radofed.cli.entry_point import run
from radofed.cli.output import Output
from radofed.demo.federation import ChildError, Children, Shared, ended_by_signals, last_lines, wait_for
from radofed.demo.options import DemoCommandOptions, DemoOptions
from radofed.demo.parts import DIGITS_EPSILON_PER_RADO, plan_rados, truncation_for, why_not
from radofed.demo.run import run_demo
from radofed.demo.tables import OWN_SHARE, baselines, digits, own_file, party_names, read_xy
from radofed.demo.tables import schema as patients_schema
from radofed.provision import provision
from tests.waiting import HANG_S, wait_until
from wire.roster import Role

RADOS = 250
# Every process of the demo writes down, as it ends, which modules it had loaded.
RECORDER = """
import atexit, os, sys
def record():
    name = "-".join(a for a in sys.argv[1:3] if not a.startswith("-")) + f".{os.getpid()}"
    with open(os.path.join(os.environ["MODULES_DIRECTORY"], name), "w") as file:
        file.write("\\n".join(sys.modules))
atexit.register(record)
"""
SCHEMA = """
schema_version = 1
name = "own"
[label]
column = "y"
positive = ["1"]
negative = ["0"]
[[features]]
name = "a"
type = "real"
lower = -4.0
upper = 4.0
[[features]]
name = "b"
type = "real"
lower = -4.0
upper = 4.0
"""


def processes_about(text):
    """Command lines and directories of running processes that mention a text."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            line = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
            line += str((entry / "cwd").readlink())
        except (OSError, ValueError):
            continue
        if str(text) in line and entry.name != str(os.getpid()):
            found.append(line)
    return found


def own_table(path, rows=400):
    random = np.random.default_rng(3)
    x = random.normal(size=(rows, 2)).clip(-4, 4)
    y = (x @ [1.0, -0.5] + 0.3 * random.normal(size=rows) > 0).astype(int)
    lines = [f"{a:.3f},{b:.3f},{label}" for (a, b), label in zip(x, y, strict=True)]
    path.write_text("\n".join(["a,b,y", *lines]) + "\n")
    return path


PROGRAM = ("-m", "radofed")
# As on a system whose processes are not forked: each imports what it needs, and nothing else.
APART = "import radofed.demo.child as child; child._FORKS = False; from radofed.cli.entry_point import main; main()"


def demo_in(root, *arguments, program=PROGRAM):
    """(directory, printed object, what was said) of a demo that is kept, with the modules that its processes loaded."""
    (root / "recorder").mkdir()
    (root / "recorder" / "sitecustomize.py").write_text(RECORDER)
    (root / "modules").mkdir()
    paths = os.pathsep.join(filter(None, [str(root / "recorder"), os.environ.get("PYTHONPATH")]))
    result = subprocess.run(
        [sys.executable, *program, "demo", "--format", "json", "--keep", str(root / "kept"), *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=HANG_S,
        env=os.environ | {"PYTHONPATH": paths, "MODULES_DIRECTORY": str(root / "modules")},
    )
    assert result.returncode == 0, result.stderr[-5000:]
    return root, json.loads(result.stdout), result.stderr


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    """The demo with a quarter of the rados."""
    return demo_in(tmp_path_factory.mktemp("demo"), "--rados", str(RADOS))


@pytest.fixture(scope="module")
def apart(tmp_path_factory):
    """The directory of a demo whose processes are not forked from one another."""
    return demo_in(tmp_path_factory.mktemp("apart"), "--rados", str(RADOS), program=("-c", APART))[0]


@pytest.mark.more
def test_one_object_with_the_fields_that_were_promised(shown):
    _, found, _ = shown
    assert (found["schema_version"], found["status"]) == (1, "ok")
    data = found["data"]
    assert set(data["test_error"]) == {
        "radoboost", "mean_variance", "logistic_pooled", "best_single_party", "median_single_party", "majority",
    }  # fmt: skip
    assert all(0 < error < 1 for error in data["test_error"].values())
    assert {"unit", "scope", "epsilon", "delta", "theorem_epsilon", "epsilon_if_others_collude"} <= set(data["privacy"])
    assert data["parties"] == 4
    assert data["rados"] == {"n": RADOS, "d": 65, "unit": "2^-15"}
    assert 80_000 < data["upload_bytes_per_party"] < 180_000
    assert data["seconds"] == pytest.approx(sum(data["seconds_by_phase"].values()))
    assert len(set(data["rows_by_party"].values())) == 4


@pytest.mark.more
def test_whole_records_have_keys_of_their_own(shown):
    data = shown[1]["data"]["whole_records"]
    assert set(data["test_error"]) == {
        "newton", "logistic_pooled", "best_single_party", "median_single_party", "majority",
    }  # fmt: skip
    assert shown[1]["data"]["whole_records_left_out"] is None
    assert (data["parties"], data["rows"], data["test_rows"]) == (4, 16_000, 4_000)
    assert data["rows"] == sum(data["rows_by_party"].values())
    assert len(set(data["rows_by_party"].values())) == 4
    assert data["query"] == {
        "estimator": "newton", "coordinates": 18, "rounds": 8, "attempts": 8, "epsilon": 1.0, "delta": 1e-6,
    }  # fmt: skip
    assert data["warning"] is None
    # Four ciphertexts of moments and one of each gradient, of 768 bytes.
    assert data["upload_bytes_per_party"] == 11 * 768
    assert data["seconds"] == pytest.approx(sum(data["seconds_by_phase"].values()))


@pytest.mark.more
def test_whole_records_cost_less_than_a_hospital_alone(shown):
    """Newton: 0.2085 on average over the noise, with a standard deviation of 0.0018; the others see the same rows."""
    errors = shown[1]["data"]["whole_records"]["test_error"]
    assert errors["logistic_pooled"] == pytest.approx(0.206, abs=0.002)
    assert errors["best_single_party"] == pytest.approx(0.224, abs=0.002)
    assert errors["logistic_pooled"] - 0.008 < errors["newton"] < errors["logistic_pooled"] + 0.014
    assert errors["newton"] < errors["best_single_party"] < errors["median_single_party"] < errors["majority"]


@pytest.mark.more
def test_the_statement_of_whole_records_is_of_all_answers_that_were_given(shown):
    data = shown[1]["data"]["whole_records"]
    privacy = data["privacy"]
    assert (privacy["unit"], privacy["scope"], privacy["delta"]) == ("one record", "record", 1e-6)
    places = (shown[0] / "kept/whole-records/federation/members/learner/releases").iterdir()
    releases = [Release.load(place) for place in places]
    assert len(releases) == 8
    cost = composed_privacy(releases, Fraction(1, 10**6))
    assert privacy["epsilon"] == pytest.approx(cost.epsilon, rel=1e-9)
    # A query is planned with more noise if a node has not yet stated that it follows the cohort.
    assert 0.81 < privacy["epsilon"] < 0.8566
    assert 0.999 < privacy["epsilon_if_others_collude"] <= 1
    assert privacy["colluding_parties"] == 1
    assert all(
        "counts all but 1 party" in " ".join(release.statement.sentences())
        for release in releases
        if release.query.noise_of_cohort
    )


@pytest.mark.more
def test_models_are_compared_with_rows_that_are_pooled_and_apart(shown):
    """Mean-variance: 0.103 on average over 100 draws of 250 rados, with a standard deviation of 0.014."""
    errors = shown[1]["data"]["test_error"]
    assert errors["logistic_pooled"] == pytest.approx(0.0724, abs=0.006)
    assert errors["best_single_party"] == pytest.approx(0.128, abs=0.01)
    assert errors["median_single_party"] > errors["best_single_party"]
    assert 0.45 < errors["majority"] < 0.55
    assert 0.048 < errors["mean_variance"] < 0.175
    assert 0.048 < errors["radoboost"] < 0.25


@pytest.mark.more
def test_the_privacy_statement_is_the_exact_one(shown):
    privacy = shown[1]["data"]["privacy"]
    assert privacy["scope"] == "marginal"
    assert "pixel_3_4_dark" in privacy["unit"]
    assert privacy["epsilon"] == pytest.approx(3.97889, abs=1e-5)
    assert privacy["delta"] == pytest.approx(1e-6, rel=1e-9)
    assert privacy["epsilon_if_others_collude"] == pytest.approx(13.48606, abs=1e-5)
    assert privacy["theorem_epsilon"] == RADOS * DIGITS_EPSILON_PER_RADO


@pytest.mark.slow
def test_as_make_demo_runs_it_the_model_is_better_than_what_one_party_has(tmp_path):
    """Mean-variance: 0.086 on average over signatures, 0.109 the worst of 150 draws; pooled 0.072, best party 0.128."""
    data = demo_in(tmp_path)[1]["data"]
    assert data["rados"] == {"n": 1000, "d": 65, "unit": "2^-15"}
    assert data["test_error"]["mean_variance"] < data["test_error"]["best_single_party"]
    assert 8.5 < data["privacy"]["epsilon"] < 9.2
    assert 32 < data["privacy"]["epsilon_if_others_collude"] < 34


@pytest.mark.more
def test_progress_was_printed(shown):
    lines = shown[2].splitlines()
    for words in ("mutual TLS", "4 of 4 answered", "0 refused", "4 ready", "chunks uploaded", "complete"):
        assert any(words in line for line in lines), words
    assert sum(line.startswith("round ") for line in lines) == 8


@pytest.mark.more
@pytest.mark.parametrize("part", ["whole-records", "rados"])
def test_keys_are_large(shown, part):
    answer = json.loads((shown[0] / "kept" / part / "logs" / "keygen.json").read_text())
    assert answer["data"]["bits"] == 3072


@pytest.mark.more
def test_hospitals_leave_no_record_unprotected(shown):
    policy = Policy.load(shown[0] / "kept/whole-records/federation/members/west/policy.toml")
    assert policy.designs == ("moments", "gradient")
    assert not policy.allow_unprotected
    assert policy.limits.unbounded_queries == 0


@pytest.mark.more
def test_the_policy_for_rados_says_that_it_is_a_demonstration(shown):
    kept = shown[0] / "kept" / "rados" / "federation" / "members"
    text = (kept / "west" / "policy.toml").read_text()
    assert "DEMONSTRATION" in text
    policy = Policy.load(kept / "west" / "policy.toml")
    assert policy.designs == ("dp-feat",)
    assert policy.allow_unprotected


@pytest.mark.more
@pytest.mark.parametrize("part", ["whole-records", "rados"])
@pytest.mark.parametrize("name", ["coordinator", "west", "north", "east", "south"])
def test_nodes_end_when_they_are_asked_to(shown, part, name):
    log = shown[0] / "kept" / part / "logs" / f"{name}.log"
    assert '"stopped"' in log.read_text(), last_lines(log)


@pytest.mark.more
def test_no_process_is_left(shown):
    wait_until(lambda: processes_about(shown[0]) == [], what="the end of what the demo started")


@pytest.mark.more
@pytest.mark.parametrize(
    ("command", "count", "has", "forbidden"),
    [
        (
            "party-start",
            8,
            ("parties.node", "dpcore.paillier.obfuscation"),
            ("coordinator", "learner", "sklearn", "ray", "phe", "Crypto", "dpcore.paillier.secret"),
        ),
        (
            "coordinator-start",
            2,
            ("coordinator.server",),
            (
                "parties",
                "learner",
                "sklearn",
                "ray",
                "phe",
                "Crypto",
                "dpcore.paillier.secret",
                "dpcore.paillier.obfuscation",
            ),
        ),
        ("learner-query", 1, ("learner.session", "dpcore.paillier.secret"), ("parties", "coordinator", "ray")),
        ("learner-train", 3, ("learner.training", "sklearn"), ("parties", "coordinator", "ray")),
    ],
)
def test_what_each_role_had_loaded_when_its_work_was_done(apart, command, count, has, forbidden):
    records = list((apart / "modules").glob(f"{command}.*"))
    assert len(records) == count, sorted(record.name for record in (apart / "modules").iterdir())
    for record in records:
        modules = set(record.read_text().splitlines())
        assert set(has) <= modules
        assert not [name for name in forbidden if name in modules]


def test_of_the_users_own_file_without_anything_boolean_plain_rados_are_planned(tmp_path):
    data, schema, said = own_table(tmp_path / "own.csv"), Schema.from_toml(SCHEMA), []
    options = DemoOptions(data=data, schema=schema, parties=2, rados=100)
    shared = Shared.of(own_file(tmp_path / "data", data, schema, 2, options.split))
    plan = plan_rados(shared, options, said.append)
    assert (plan.sensitive, plan.truncation, plan.rados) == (None, None, 100)
    assert "plain" in plan.policy.designs
    assert plan.policy.allow_unprotected
    assert any("their design is plain" in sentence for sentence in said)
    assert why_not(shared) is None


def test_without_a_schema_one_is_drafted_by_the_rule_of_schema_infer(tmp_path, capsys):
    data = own_table(tmp_path / "own.csv", rows=20)
    assert run(["demo", "--data", str(data), "--parties", "4", "--split", "iid"]) == 4
    said = capsys.readouterr().err
    # The draft reads; only the rows are too few to go on.
    assert "rows are too few for 4 parties" in said
    schema, notes = infer(data)
    assert notes
    assert all(note in said for note in notes)
    assert _schema(Output(as_json=False, debug=False), DemoCommandOptions(data=data)) == schema
    label = schema.label
    options = DemoCommandOptions(data=data, label=label.column, positive=tuple(label.positive))
    stated = _schema(Output(as_json=False, debug=False), options)
    assert (stated.features, stated.label) == (schema.features, label)
    assert run(["demo", "--label", "y"]) == 4
    assert "leave them out" in capsys.readouterr().err


def test_the_made_up_patients_are_written_for_other_commands(tmp_path, capsys):
    file = tmp_path / "patients.csv"
    assert run(["demo", "--write-data", str(file), "--format", "json"]) == 0
    found = json.loads(capsys.readouterr().out)["data"]
    assert check(patients_schema(), file).rows == 20_000
    assert (found["label"], found["positive"]) == ("back_within_30_days", ["yes"])
    assert run(["demo", "--write-data", str(file)]) == 4
    assert "already exists" in capsys.readouterr().err


@pytest.mark.slow
def test_the_users_own_file_without_anything_boolean(tmp_path):
    """The whole demo on it; the plan is tested above, the report in test_demo_report.py."""
    data = own_table(tmp_path / "own.csv")
    (tmp_path / "own.toml").write_text(SCHEMA)
    result = subprocess.run(
        [sys.executable, "-m", "radofed", "demo", "--data", str(data), "--schema", str(tmp_path / "own.toml"),
         "--parties", "2", "--rados", "100"],
        capture_output=True, text=True, check=False, timeout=HANG_S,
    )  # fmt: skip
    assert result.returncode == 0, result.stderr[-5000:]
    assert "their design is plain" in result.stderr
    words = " ".join(result.stdout.split())
    assert "Whole records protected: test error on 80 held-out rows" in words
    assert "8 encrypted sums of 2 parties, with noise" in words
    assert "against the learner alone, and at most 1.0000 if the coordinator colludes with the learner" in words
    assert "Plain rados: test error on 80 held-out rows" in words
    assert "mean-variance" in words
    assert "No differential privacy is claimed" in words
    assert "Both parts queried the same rows" in words


@contextmanager
def running_demo(temporary):
    """A demo whose coordinator and two parties run, with its temporary files under a directory of the test's."""
    with subprocess.Popen(
        [sys.executable, "-m", "radofed", "demo", "--format", "json", "--parties", "2"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=os.environ | {"TMPDIR": str(temporary)},
        start_new_session=True,
    ) as process:  # fmt: skip
        for line in process.stderr:
            if b"mutual TLS" in line:
                break
        # In the background: a full pipe must not keep the demo from ending.
        threading.Thread(target=process.stderr.read, daemon=True).start()
        wait_until(lambda: len(processes_about(temporary)) >= 3, what="the nodes")
        yield process


@pytest.mark.more
def test_everything_ends_with_the_demo(tmp_path):
    with running_demo(tmp_path) as process:
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG_S) == 1
        assert json.loads(process.stdout.read())["error"]["code"] == "INTERRUPTED"
    wait_until(lambda: processes_about(tmp_path) == [], what="the end of what the demo started")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_a_demo_that_is_killed_leaves_no_process(tmp_path):
    with running_demo(tmp_path) as process:
        process.kill()
        process.wait(HANG_S)
    wait_until(lambda: processes_about(tmp_path) == [], what="the children's end")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_polite_signals_interrupt(number):
    before = signal.getsignal(number)
    with pytest.raises(KeyboardInterrupt), ended_by_signals():
        os.kill(os.getpid(), number)
        time.sleep(10)
    assert signal.getsignal(number) == before


class TestChildren:
    @pytest.mark.more
    def test_one_that_ends_early_is_named_with_its_log(self, tmp_path):
        with Children(tmp_path) as children:
            children.start("north", "party", "start", "--config", "nowhere.toml")
            with pytest.raises(ChildError, match="north ended early with exit code 4"):
                wait_for("coordinator", lambda: False, children, HANG_S)
            assert "nowhere.toml" in children.logs_of_all()

    def test_one_that_is_not_ready_in_time(self, tmp_path):
        with Children(tmp_path) as children, pytest.raises(ChildError, match="not ready within"):
            wait_for("coordinator", lambda: False, children, 0.2)

    @pytest.mark.more
    def test_a_command_that_fails_says_why(self, tmp_path):
        with Children(tmp_path) as children, pytest.raises(ChildError, match=r"failed: .*nowhere\.toml"):
            children.run("keygen", "learner", "keygen", "--config", "nowhere.toml")

    @pytest.mark.more
    def test_a_node_that_ends_ends_what_waits_for_it(self, tmp_path):
        """The learner would look for its coordinator for a minute; the party's end is noticed at once."""
        made = provision(
            tmp_path / "f", federation="t", coordinator_address="127.0.0.1:1", parties=["a", "b"], learners=["l"]
        )
        with Children(tmp_path / "logs") as children:
            children.start("north", "party", "start", "--config", "nowhere.toml")
            start = time.monotonic()
            with pytest.raises(ChildError, match="north ended early"):
                children.run("learner", "learner", "list", "--config", str(made.of(Role.LEARNER)[0].config))
            assert time.monotonic() - start < 30
        wait_until(lambda: processes_about(tmp_path) == [], what="the end of what the demo started")


class TestTables:
    def test_digits(self, tmp_path):
        data = digits(tmp_path / "d", 4)
        assert tuple(data.parties) == ("north", "south", "east", "west")
        assert data.schema.boolean_coordinates == ("pixel_3_4_dark",)
        assert data.schema.d == 65
        sizes = [len(read_xy([file], data.schema)[1]) for file in data.parties.values()]
        assert sum(sizes) + len(read_xy([data.test], data.schema)[1]) == 1797
        assert sizes == sorted(sizes, reverse=True)
        assert sizes[0] > 2.5 * sizes[3]

    def test_the_split_is_the_same_every_time_and_shares_no_row(self, tmp_path):
        first, second = digits(tmp_path / "1", 3), digits(tmp_path / "2", 3)
        texts = [file.read_text() for file in (*first.parties.values(), first.test)]
        assert texts == [file.read_text() for file in (*second.parties.values(), second.test)]
        rows = [row for text in texts for row in text.splitlines()[1:]]
        assert len(rows) == 1797

    def test_parties_hold_mostly_their_own_digits(self, tmp_path):
        """Party 0 of 4 owns digits 0 to 3: about as many even as odd ones, and OWN_SHARE of them all."""
        from sklearn.datasets import load_digits

        data = digits(tmp_path / "d", 4)
        target = {tuple(row): digit for row, digit in zip(*load_digits(return_X_y=True), strict=True)}
        lines = data.parties["north"].read_text().splitlines()[1:]
        held = [target[tuple(float(cell) for cell in line.split(",")[:-1])] for line in lines]
        share = np.mean([digit < 4 for digit in held])
        expected = 0.4 * OWN_SHARE / (0.4 * OWN_SHARE + 0.6 * (1 - OWN_SHARE) / 3)
        assert share == pytest.approx(expected, abs=0.03)

    @pytest.mark.parametrize("parties", [2, 3, 10, 30, 50])
    def test_every_party_has_rows_enough(self, tmp_path, parties):
        """The first party has at most about four times the rows of the last, whatever their number."""
        data = digits(tmp_path / "d", parties)
        sizes = [len(read_xy([file], data.schema)[1]) for file in data.parties.values()]
        assert len(sizes) == parties
        assert min(sizes) > 1438 / parties / 4
        assert max(sizes) < 1438 / parties * 2.2

    @pytest.mark.parametrize(("split", "skewed"), [("iid", False), ("label-skew", True)])
    def test_own_file(self, tmp_path, split, skewed):
        schema = Schema.from_toml(SCHEMA)
        data = own_file(tmp_path / "d", own_table(tmp_path / "own.csv", 3000), schema, 3, split)
        assert tuple(data.parties) == party_names(3) == ("party-1", "party-2", "party-3")
        labels = [read_xy([file], schema)[1] for file in data.parties.values()]
        assert sum(len(part) for part in labels) == 2400
        positive = [float((part > 0).mean()) for part in labels]
        assert (max(positive) - min(positive) > 0.3) is skewed

    @pytest.mark.parametrize("separator", [";", "\t", "|"])
    def test_own_file_with_another_separator(self, tmp_path, separator):
        usual = own_table(tmp_path / "own.csv")
        other = tmp_path / "other.csv"
        other.write_text(usual.read_text().replace(",", separator))
        schema = Schema.from_toml(SCHEMA)
        first, second = (own_file(tmp_path / file.stem, file, schema, 2, "iid") for file in (usual, other))
        assert all(first.parties[name].read_bytes() == file.read_bytes() for name, file in second.parties.items())

    def test_own_parquet_file_keeps_its_types(self, tmp_path):
        import pyarrow.csv
        import pyarrow.parquet

        table = pyarrow.csv.read_csv(own_table(tmp_path / "own.csv"))
        pyarrow.parquet.write_table(table, tmp_path / "own.parquet")
        data = own_file(tmp_path / "d", tmp_path / "own.parquet", Schema.from_toml(SCHEMA), 2, "iid")
        part = pyarrow.parquet.read_table(data.parties["party-1"])
        assert part.schema == table.schema

    def test_too_few_rows(self, tmp_path):
        with pytest.raises(ConfigurationError, match="too few"):
            own_file(tmp_path / "d", own_table(tmp_path / "own.csv", 20), Schema.from_toml(SCHEMA), 4, "iid")

    @pytest.mark.more
    def test_a_party_of_one_class_has_a_baseline_too(self, tmp_path):
        data = digits(tmp_path / "d", 4)
        lines = data.parties["west"].read_text().splitlines()
        data.parties["west"].write_text("\n".join(line for line in lines if not line.endswith("even")) + "\n")
        found = baselines(data)
        assert found.best_single_party < found.median_single_party < 0.5

    @pytest.mark.parametrize("options", [{"data": Path("x")}, {"keep": Path()}])
    def test_options_that_make_no_sense(self, options):
        with pytest.raises(ConfigurationError):
            DemoOptions(**options)

    @pytest.mark.parametrize(
        ("options", "says"),
        [
            ({"sensitive": "nope"}, "choose a boolean or threshold feature of the schema: pixel_3_4_dark"),
            ({"sensitive": "pixel_0_0"}, "pixel_3_4_dark"),
            ({"parties": 50}, "lower --parties or --rados"),
        ],
    )
    def test_what_cannot_be_shown_is_said_before_anything_starts(self, tmp_path, options, says):
        with pytest.raises(ConfigurationError, match=says):
            run_demo(DemoOptions(keep=tmp_path / "kept", **options), lambda sentence: None)
        assert [path.name for path in (tmp_path / "kept").glob("*/*")] == ["data"]

    def test_small_parties_draw_without_truncation(self):
        said = []
        assert truncation_for(DemoOptions(), 179, said.append) == DIGITS_EPSILON_PER_RADO
        assert said == []
        assert truncation_for(DemoOptions(), 60, said.append) is None
        assert "without truncation" in said[0]
        asked = DemoOptions(epsilon_per_rado=Fraction(3))
        assert truncation_for(asked, 60, said.append) == 3
