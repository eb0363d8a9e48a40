"""The `rado` command as people and programs meet it: options, one JSON object, exit codes."""

import errno
import json
import os
import subprocess
import sys
from importlib.metadata import version as installed_version

import pytest
import yaml
from pydantic import TypeAdapter
from rich.console import Group

from dpcore.errors import ConfigurationError, DataError, PlanError, RadofedError, SlotOverflowError
from dpcore.evaluation.options import Costs
from dpcore.records.schema import Schema
from parties import policy
from parties.data.schema_draft import parsed, parsed_weight
from radobase.configuration import split_target
from radobase.failure import Failure
from radobase.options import decimal_number, named_edges
from radofed.cli.entry_point import run
from radofed.cli.framework import InterruptedCommandError
from radofed.cli.output import Output, Result, json_ready
from tests.waiting import HANG_S
from wire.errors import Code, ConnectionLostError, TimedOutError, WireError

TABLE = "age,smoker,ill\n" + "".join(
    f"{20 + 7 * i % 31}.5,{'yes' if i % 3 else 'no'},{'sick' if i % 2 else 'well'}\n" for i in range(30)
)


def rado(capsys, *arguments):
    """Exit code, standard output, standard error."""
    code = run(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def rado_json(capsys, *arguments):
    code, out, _ = rado(capsys, *arguments, "--format", "json")
    found = json.loads(out)
    assert found["schema_version"] == 1
    assert out.count("\n") == 1
    return code, found


@pytest.fixture
def table(tmp_path):
    path = tmp_path / "table.csv"
    path.write_text(TABLE)
    return path


class TestUsage:
    @pytest.mark.parametrize(
        "arguments",
        [
            ["nonsense"],
            ["--nonsense"],
            ["party", "start"],
            ["party", "start", "--config"],
            ["schema", "infer", "f", "--format", "xml"],
            ["learner", "query", "--config", "x", "--schema", "y", "--rados", "many"],
        ],
    )
    def test_wrong_command_lines_end_with_4(self, capsys, arguments):
        code, out, err = rado(capsys, *arguments)
        assert code == 4
        assert out == ""
        assert err.startswith("rado: ")
        assert "Traceback" not in err

    @pytest.mark.parametrize("arguments", [["party", "start"], ["nonsense"]])
    def test_in_json_too(self, capsys, arguments):
        code, found = rado_json(capsys, *arguments)
        assert code == 4
        assert found["status"] == "error"
        assert found["error"]["code"] == "USAGE"

    def test_a_group_alone_shows_its_commands(self, capsys):
        code, _, err = rado(capsys, "party")
        assert code == 4
        assert "check" in err
        assert "start" in err

    def test_help_and_version(self, capsys):
        code, out, _ = rado(capsys, "--help")
        assert code == 0
        for name in ("demo", "schema", "provision", "party", "coordinator", "learner"):
            assert name in out
        assert rado(capsys, "--version")[:2] == (0, f"rado {installed_version('radofed')}\n")

    @pytest.mark.parametrize(
        "path",
        [
            "demo", "schema infer", "schema check", "provision init", "party check", "party start",
            "coordinator start", "coordinator status", "learner keygen", "learner query", "learner list",
            "learner send", "learner status", "learner cancel", "learner fetch", "learner train", "learner predict",
        ],
    )  # fmt: skip
    def test_every_command_has_a_format(self, capsys, path):
        code, out, _ = rado(capsys, *path.split(), "--help")
        assert code == 0
        assert "--format" in out
        assert "text|json" in out


class TestExitCodes:
    @pytest.mark.parametrize(
        ("error", "code", "exit_code"),
        [
            (ConfigurationError("x"), "CONFIGURATION", 4),
            (DataError("x"), "DATA", 4),
            (PlanError("x"), "PLAN", 6),
            (SlotOverflowError(needed_bits=9, available_bits=8, remedy="x"), "SLOT_OVERFLOW", 4),
            (ConnectionLostError("host:1", "refused"), "CONNECTION_LOST", 2),
            (TimedOutError("x"), "TIMED_OUT", 3),
            (WireError(Code.COHORT_TOO_SMALL), "COHORT_TOO_SMALL", 6),
            (WireError(Code.SIGNATURE_INVALID), "SIGNATURE_INVALID", 2),
            (WireError(Code.QUERY_EXPIRED), "QUERY_EXPIRED", 3),
            (OSError(28, "No space left on device", "/x"), "FILE", 1),
            (KeyboardInterrupt(), "INTERRUPTED", 1),
            (ModuleNotFoundError("No module named 'Crypto'", name="Crypto.Math"), "EXTRA_MISSING", 4),
            (ModuleNotFoundError("No module named 'scipy'", name="scipy.special"), "EXTRA_MISSING", 4),
            (ModuleNotFoundError("No module named 'ours'", name="ours"), "BUG", 5),
            (ValueError("x"), "BUG", 5),
        ],
    )
    def test_what_an_error_means(self, error, code, exit_code):
        failure = Failure.of(error)
        assert (failure.code, failure.exit_code) == (code, exit_code)
        assert failure.message

    @pytest.mark.parametrize(
        ("number", "says"),
        [
            (errno.EROFS, "/x: Read-only file system; mount it for writing"),
            (errno.ENOSPC, "/x: No space left on device; free space there"),
            (errno.EACCES, "/x: Permission denied; correct its owner and mode"),
            (errno.EISDIR, "/x: Is a directory"),
        ],
    )
    def test_a_fault_of_a_file_says_what_to_do(self, number, says):
        assert Failure.of(OSError(number, os.strerror(number), "/x")).message.startswith(says)

    @pytest.mark.parametrize(
        ("arguments", "says"),
        [
            (["learner", "survival", "--config", "c.toml"], "a query that was sent goes on, and parties charge it"),
            (["learner", "survival", "--config=c.toml"], "`rado learner list` names it"),
            (["learner", "predict", "model.json"], "interrupted\n"),
            (["party", "check", "--config", "c.toml"], "interrupted\n"),
        ],
    )
    def test_who_interrupts_a_learner_is_told_that_the_query_goes_on(self, arguments, says, capsys, monkeypatch):
        def stopped():
            raise InterruptedCommandError

        monkeypatch.setattr("radofed.cli.entry_point.made_command", stopped)
        code, _, err = rado(capsys, *arguments)
        assert code == 1
        assert says in err

    def test_an_absent_extra_is_named(self):
        assert "deploy/install.py learner" in Failure.of(ModuleNotFoundError(name="sklearn")).message

    @pytest.mark.parametrize("debug", [False, True])
    def test_a_bug_is_one_sentence_unless_asked(self, capsys, monkeypatch, table, debug):
        def broken(*_args, **_options):
            raise ZeroDivisionError("boom")

        monkeypatch.setattr("parties.data.schema_draft.infer_shared", broken)
        arguments = ["schema", "infer", str(table)] + ["--debug"] * debug
        code, out, err = rado(capsys, *arguments)
        assert (code, out) == (5, "")
        assert ("Traceback" in err) == debug
        assert "ZeroDivisionError: boom" in err
        assert "bug" in err

    @pytest.mark.more
    def test_a_reader_that_went_away_is_no_bug(self, table):
        pipe = f"{sys.executable} -m radofed schema infer {table} | true; echo ${{PIPESTATUS[0]}}"
        result = subprocess.run(["bash", "-c", pipe], capture_output=True, text=True, check=True)
        assert result.stdout.strip() in ("0", "1")
        assert "Traceback" not in result.stderr
        assert "BrokenPipe" not in result.stderr


class TestSchema:
    def test_infer_then_check(self, capsys, table, tmp_path):
        drafted = tmp_path / "schema.toml"
        code, found = rado_json(capsys, "schema", "infer", str(table), "--positive", "sick", "--output", str(drafted))
        assert (code, found["status"]) == (0, "ok")
        schema = Schema.from_toml(drafted.read_text())
        assert found["data"]["digest"] == schema.digest.hex()
        assert schema.label.positive == ("sick",)
        code, found = rado_json(capsys, "schema", "check", str(drafted), str(table))
        assert code == 0
        assert found["data"]["rows"] == 30
        assert found["data"]["boolean_coordinates"] == ["smoker"]

    def test_a_draft_on_standard_output_is_a_schema(self, capsys, table):
        code, out, _ = rado(capsys, "schema", "infer", str(table), "--name", "trial")
        assert code == 0
        assert Schema.from_toml(out).name == "trial"

    def test_drafts_from_files_with_other_names_have_one_digest(self, capsys, table, tmp_path):
        other = tmp_path / "st-marys-2024.csv"
        other.write_bytes(table.read_bytes())
        drafts = [rado_json(capsys, "schema", "infer", str(file))[1]["data"] for file in (table, other)]
        assert len({draft["digest"] for draft in drafts}) == 1
        assert Schema.from_toml(drafts[0]["schema"]).name == "records"

    def test_neither_the_ids_nor_the_epochs_of_rows_are_features(self, capsys, tmp_path):
        path = tmp_path / "visits.csv"
        rows = [f"v{n},2026-{10 + n % 3},{20 + n % 9}.5,{'yes' if n % 2 else 'no'}" for n in range(30)]
        path.write_text("\n".join(["visit,month,age,ill", *rows]) + "\n")
        drafted = "schema", "infer", str(path), "--positive", "yes"
        data = rado_json(capsys, *drafted, "--id-column", "visit", "--epoch-column", "month")[1]["data"]
        assert [feature.column for feature in Schema.from_toml(data["schema"]).features] == ["age"]
        assert "'month' is left out: it holds the epochs of rows, and no feature." in data["notes"]
        unnamed = rado_json(capsys, *drafted)[1]["data"]
        assert {"month", "age"} <= {feature.column for feature in Schema.from_toml(unnamed["schema"]).features}
        code, _, err = rado(capsys, *drafted, "--id-column", "month", "--epoch-column", "month")
        assert code == 4
        assert "'month' is named for ids and for epochs" in err

    def test_a_draft_overwrites_nothing(self, capsys, table, tmp_path):
        (tmp_path / "mine.toml").write_text("precious")
        code, _, err = rado(capsys, "schema", "infer", str(table), "--output", str(tmp_path / "mine.toml"))
        assert code == 4
        assert "already exists" in err
        assert (tmp_path / "mine.toml").read_text() == "precious"

    def test_what_is_wrong_with_a_row_is_named(self, capsys, table, tmp_path):
        drafted = tmp_path / "schema.toml"
        rado(capsys, "schema", "infer", str(table), "--output", str(drafted))
        drafted.write_text(drafted.read_text().replace('unreadable = "zero-vector"', 'unreadable = "refuse"'))
        table.write_text(TABLE.replace("49.5", "old"))
        code, found = rado_json(capsys, "schema", "check", str(drafted), str(table))
        assert code == 4
        assert found["error"]["code"] in ("DATA", "CELL")
        assert "line 15" in found["error"]["message"]
        assert "'age'" in found["error"]["message"]

    def test_a_schema_that_is_absent(self, capsys, tmp_path):
        code, _, err = rado(capsys, "schema", "check", str(tmp_path / "none.toml"))
        assert code == 4
        assert "No such file" in err


class TestProvision:
    def test_init_prints_what_to_hand_to_whom(self, capsys, tmp_path):
        arguments = ["provision", "init", "--federation", "trial", "--directory", str(tmp_path / "x")]
        arguments += ["--coordinator", "rado.example.org:7443", "--party", "north=120", "--party", "south"]
        code, found = rado_json(capsys, *arguments)
        assert code == 0
        data = found["data"]
        assert [(m["role"], m["name"]) for m in data["members"]] == [
            ("coordinator", "coordinator"),
            ("party", "north"),
            ("party", "south"),
            ("learner", "learner"),
        ]
        assert data["members"][0]["fingerprint"] is None
        code, _, err = rado(capsys, *arguments)
        assert code == 4
        assert "not empty" in err

    def test_port_zero_cannot_be_dialled(self, capsys, tmp_path):
        code, _, err = rado(
            capsys, "provision", "init", "--federation", "t", "--directory", str(tmp_path / "x"),
            "--coordinator", "host:0", "--party", "north",
        )  # fmt: skip
        assert code == 4
        assert "port 0" in err

    def test_rows_that_are_no_number(self, capsys, tmp_path):
        code, _, err = rado(
            capsys, "provision", "init", "--federation", "t", "--directory", str(tmp_path / "x"),
            "--coordinator", "h:1", "--party", "north=many",
        )  # fmt: skip
        assert code == 4
        assert "north=1200" in err


class TestLearner:
    @pytest.fixture
    def config(self, capsys, tmp_path):
        rado(
            capsys, "provision", "init", "--federation", "t", "--directory", str(tmp_path / "x"),
            "--coordinator", "127.0.0.1:1", "--party", "a", "--party", "b", "--party", "c",
        )  # fmt: skip
        return str(tmp_path / "x" / "members" / "learner" / "learner.toml")

    def test_keygen_once(self, capsys, config):
        code, found = rado_json(capsys, "learner", "keygen", "--config", config, "--bits", "2048")
        assert (code, found["data"]["bits"], found["data"]["short_opening"]) == (0, 2048, False)
        code, _, err = rado(capsys, "learner", "keygen", "--config", config)
        assert code == 4
        assert "never overwritten" in err

    def test_a_key_that_is_too_small(self, capsys, config):
        assert rado(capsys, "learner", "keygen", "--config", config, "--bits", "1024")[0] == 4

    @pytest.mark.parametrize("text", ["xyz", "12", "A" * 64])
    def test_an_id_that_is_none(self, capsys, config, text):
        code, _, err = rado(capsys, "learner", "cancel", text, "--config", config)
        assert code == 4
        assert "is not a query's id" in err

    @pytest.mark.parametrize("option", ["--delta", "--epsilon-per-rado"])
    def test_numbers_are_exact_or_refused(self, capsys, config, tmp_path, option):
        (tmp_path / "s.toml").write_text(
            'schema_version = 1\nname = "s"\n[label]\ncolumn = "y"\npositive = ["1"]\n'
            '[[features]]\nname = "b"\ntype = "boolean"\ntrue = ["1"]\nfalse = ["0"]\n'
        )
        code, _, err = rado(
            capsys, "learner", "query", "--config", config, "--schema", str(tmp_path / "s.toml"), "--rados", "5",
            "--sensitive", "b", option, "small",
        )  # fmt: skip
        assert code == 4
        assert "is not a number" in err

    def test_a_model_that_is_none(self, capsys, table):
        assert rado(capsys, "learner", "predict", str(table), str(table))[0] == 4

    def test_a_release_that_is_none(self, capsys, tmp_path):
        assert rado(capsys, "learner", "train", str(tmp_path), "--output", str(tmp_path / "m"))[0] == 4


def test_a_warning_is_one_line_without_a_place_in_the_source():
    code = (
        "import warnings\nfrom radofed.cli import entry_point\n"
        "entry_point.run = lambda arguments: warnings.warn('most rows are empty', stacklevel=1) or 0\n"
        "entry_point.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=HANG_S, check=True)
    assert done.stderr == "Warning: most rows are empty\n"


class TestOutput:
    def test_text_and_json_go_their_ways(self, capsys):
        assert Output(as_json=False, debug=False).finish(Result({"a": 1}, "words")) == 0
        captured = capsys.readouterr()
        assert (captured.out, captured.err) == ("words\n", "")
        assert Output(as_json=True, debug=False).finish(Result({"a": 1}, "words", exit_code=1)) == 1
        captured = capsys.readouterr()
        assert json.loads(captured.out) == {"schema_version": 1, "status": "ok", "data": {"a": 1}}
        assert captured.err == ""

    @pytest.mark.parametrize(
        "arguments",
        [
            ("plan", "--design", "dp-feat", "--rows", "300", "--parties", "3", "--rados", "3"),
            ("party", "check", "-c", "x"),
        ],
    )
    def test_yaml_is_the_same_object(self, capsys, arguments):
        """Also of an error, and with what a learner wrote."""
        found = []
        for name, read in (("json", json.loads), ("yaml", yaml.safe_load)):
            run([*arguments, "--format", name])
            found.append(read(capsys.readouterr().out))
        assert found[0] == found[1]
        assert found[0]["schema_version"] == 1

    def test_yaml_that_is_not_installed_runs_nothing(self, capsys, monkeypatch, tmp_path):
        monkeypatch.setitem(sys.modules, "yaml", None)
        made = tmp_path / "f"
        command = ["provision", "create", str(made), "--federation", "clinics", "--format", "yaml"]
        assert run(command) == 4
        assert "deploy/install.py report" in capsys.readouterr().err
        assert not made.exists()

    def test_everything_becomes_json(self, tmp_path):
        found = json_ready({"b": b"\x01\xff", "p": tmp_path, "f": float("inf"), "n": float("nan"), "t": (1, 2.5, None)})
        assert found == {"b": "01ff", "p": str(tmp_path), "f": None, "n": None, "t": [1, 2.5, None]}
        json.dumps(found, allow_nan=False)

    def test_names_of_files_are_no_markup(self, capsys):
        Output(as_json=False, debug=False).show(Group("kept in /tmp/[bold]x :warning:"))
        assert "/tmp/[bold]x :warning:" in capsys.readouterr().out

    @pytest.mark.more
    def test_a_stream_that_cannot_show_a_character(self):
        code = (
            "import sys; from radofed.cli import main; sys.argv = ['rado', 'party', 'start', '-c', 'm\u00fc']; main()"
        )
        environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
        result = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, env=environment)
        assert result.returncode == 4
        assert rb"m\xfc" in result.stderr

    @pytest.mark.parametrize(
        ("arguments", "as_json"),
        [
            (["demo", "--format", "json"], True),
            (["demo", "--format=json"], True),
            (["demo", "--format", "text"], False),
            (["demo", "json"], False),
            (["schema", "infer", "--format=jsonl"], False),
        ],
    )
    def test_the_format_is_known_before_arguments_are_parsed(self, arguments, as_json):
        assert Output.of_arguments(arguments).as_json is as_json


@pytest.mark.parametrize("text", ["1_0", "nan", "inf", "1e999", "1e-999", "1,5", "", "\u0663", "0x10"])
def test_a_number_that_is_not_written_in_digits_with_a_point_is_refused(text, capsys):
    """1_0 was read as 10, and nan went through."""
    assert run(["learner", "statistic", "y == 1", "--epsilon", "1", f"--timeout-s={text}"]) == 4
    assert "write digits with a point, such as 0.5 or 1e-6" in capsys.readouterr().err


@pytest.mark.parametrize(("text", "value"), [("0.5", 0.5), ("1e-6", 1e-6), ("+3.", 3.0), (".25", 0.25), ("-2E3", -2e3)])
def test_decimal_numbers_are_read(text, value):
    assert decimal_number(text) == value


@pytest.mark.parametrize(
    ("read", "text"),
    [
        (named_edges, "age={}0,50,90"),
        (named_edges, "age=0:{}:4"),
        (parsed, "age=0:{}"),
        (parsed_weight, "w={}"),
        (TypeAdapter(policy.Exact).validate_python, "{}"),
        (split_target, "example.org:{}"),
        (Costs.parse, "false-negative={}:false-positive=1"),
    ],
)
def test_digits_of_other_scripts_are_refused_wherever_numbers_are_read(read, text):
    """Python reads them as numbers, in silence."""
    read(text.format(9))
    with pytest.raises((RadofedError, ValueError)):
        read(text.format("\u0669"))


def test_drafts_of_parties_are_compared(capsys, tmp_path):
    text = 'schema_version = 1\nname = "s"\n[label]\ncolumn = "y"\npositive = ["1"]\n[[features]]\nname = "dose"\n'
    text += 'type = "real"\nlower = {}\nupper = {}\n'
    for name, bounds in {"a": (0, 9.5), "b": (0, 9500), "c": (0, 9.5)}.items():
        (tmp_path / f"{name}.toml").write_text(text.format(*bounds))
    files = [str(tmp_path / f"{name}.toml") for name in "abc"]
    assert run(["schema", "compare", *files, "--format", "json"]) == 0
    other, same = json.loads(capsys.readouterr().out)["data"]["others"]
    assert "near a factor of 1,000" in other["units"][0]
    assert other["fields"] == ["features.dose.upper: 9.5 and 9500.0"]
    assert (same["units"], same["fields"]) == ([], [])
    assert run(["schema", "compare", *files]) == 0
    assert "warning: 'dose' may be in two units" in " ".join(capsys.readouterr().out.split())
