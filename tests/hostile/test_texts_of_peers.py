"""Texts that a peer chooses control no terminal and add no line, wherever they are shown: each medium, each field."""

import ast
import json
import logging
import sys
import warnings
from pathlib import Path

import grpc
import pytest
import yaml
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from dpcore.errors import ConfigurationError
from radobase.logs import BoundedLines, JsonLines
from radobase.presentation.page import _finalized, environment
from radobase.printing import columns, in_lines, json_text
from radofed.cli import entry_point
from radofed.cli.output import Output, Result, wrapped
from tests.federation.setting import Setting
from tests.learner.test_learner_commands import Learner
from wire.errors import Code, WireError
from wire.status import PartyProgress, PartyState, Phase, QueryStatus
from wire.transport import translate

pytestmark = pytest.mark.more

ROOT = Path(__file__).resolve().parents[2]
FORGED = "forged line"
HOSTILE = (
    f"a\n{FORGED}\r{FORGED}\x0b\x1b[2J\x9b2J\x7f\u0085{FORGED}\u2028{FORGED}"
    "\u202e\u2066\u200b\u2060\ufeff[bold]b[/bold]\t"
)


def safe(text: str, lines: int | None = None) -> bool:
    """Whether text for a terminal, of so many lines, has none of what HOSTILE brings."""
    rows = text.removesuffix("\n").split("\n")
    forged = any(row.strip().startswith(FORGED) for row in rows)
    return all(row.isprintable() for row in rows) and not forged and lines in (None, len(rows))


def test_what_is_hostile_is_found():
    assert not any(map(safe, (HOSTILE, *set(HOSTILE) - set("\n[]") - {c for c in HOSTILE if c.isprintable()})))
    assert safe("a\nb", 2)
    assert not safe("a\nb", 1)


@pytest.fixture
def learner_world(tmp_path, learner_key):
    setting = Setting(tmp_path, learner_key)
    yield setting
    setting.stub.stop()


@pytest.mark.parametrize("text", [HOSTILE, in_lines([HOSTILE])], ids=["line", "lines"])
def test_results_notes_and_errors(capsys, text):
    for output in (Output(as_json=False, debug=True), Output(as_json=True, debug=True)):
        output.note(text)
        output.show(text)
        output.finish(Result({"found": HOSTILE, HOSTILE: [HOSTILE]}, text))
        printed = capsys.readouterr()
        assert safe(printed.out)
        assert safe(printed.err)
        assert "[bold]" in printed.err
        try:
            raise ConfigurationError(HOSTILE)
        except ConfigurationError as error:
            output.fail(error)
        printed = capsys.readouterr()
        assert safe(printed.out)
        assert safe(printed.err.replace("    ", ""))


def test_tables(capsys):
    Output(as_json=False, debug=False).show(wrapped((HOSTILE,), [(HOSTILE,)], HOSTILE))
    # A long cell wraps, in the program's own table.
    shown = capsys.readouterr().out
    assert all(row.isprintable() for row in shown.split("\n"))
    assert "[bold]b[/bold]" in "".join(shown.split())
    assert safe(in_lines(columns((HOSTILE,), [(HOSTILE,)])), 2)


def test_yaml_and_json_for_people(capsys):
    Output(as_json=True, as_yaml=True, debug=False).finish(Result({"found": HOSTILE, "umlaut": "ä"}))
    shown = capsys.readouterr().out
    assert safe(shown)
    assert yaml.safe_load(shown)["data"] == {"found": HOSTILE, "umlaut": "ä"}
    Output(as_json=True, as_yaml=True, debug=False).finish(Result({"umlaut": "ä"}))
    assert "ä" in capsys.readouterr().out
    text = json_text({HOSTILE: ["ä", HOSTILE, "\U000e0001"]}, indent=1)
    assert safe(text)
    assert "ä" in text
    assert json.loads(text) == {HOSTILE: ["ä", HOSTILE, "\U000e0001"]}


def test_warnings(capsys, monkeypatch):
    monkeypatch.setattr(warnings, "formatwarning", entry_point._line_of_warning)
    monkeypatch.setattr(warnings, "showwarning", lambda *a: sys.stderr.write(warnings.formatwarning(*a[:4])))
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn(HOSTILE, stacklevel=1)
    assert safe(capsys.readouterr().err, 1)


def test_logs(capsys):
    record = logging.LogRecord("node", logging.WARNING, "", 0, HOSTILE, None, None)
    record.fields = {"peer": HOSTILE, HOSTILE: [HOSTILE]}
    try:
        raise ValueError(HOSTILE)
    except ValueError:
        record.exc_info = sys.exc_info()
    assert safe(JsonLines().format(record), 1)
    BoundedLines(sys.stderr).emit(record)
    assert safe(capsys.readouterr().err, 1)


def test_pages():
    assert _finalized(HOSTILE).isprintable()
    page = environment("radofed.console").from_string("{{ text }}").render(text=f"<b>{HOSTILE}")
    assert page.isprintable()
    assert "<b>" not in page


class Failure(grpc.RpcError):
    def __init__(self, status, code):
        self._status, self._code = status, code

    def code(self):
        return self._status

    def details(self):
        return HOSTILE

    def trailing_metadata(self):
        return (("rado-code", self._code),)


@pytest.mark.parametrize("code", [*Code, HOSTILE], ids=lambda code: str(code)[:20].split("\n")[0])
@pytest.mark.parametrize("status", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED])
def test_details_of_a_failed_call(status, code):
    error, _ = translate(Failure(status, code), "coordinator:7443")
    assert safe(str(error), 1)


def string_fields(message: Message, path: tuple[object, ...] = ()):
    """A path to each text of a message, as far as it is filled, and to each list of texts."""
    for field in message.DESCRIPTOR.fields:
        value = getattr(message, field.name)
        if field.type == FieldDescriptor.TYPE_STRING:
            yield (*path, field.name)
        elif field.type == FieldDescriptor.TYPE_MESSAGE and field.is_repeated:
            for index, each in enumerate(value):
                yield from string_fields(each, (*path, field.name, index))
        elif field.type == FieldDescriptor.TYPE_MESSAGE and message.HasField(field.name):
            yield from string_fields(value, (*path, field.name))


def spoiled(message: Message, path: tuple[object, ...]) -> Message:
    *outer, last = path
    for step in outer:
        message = message[step] if isinstance(step, int) else getattr(message, step)
    if message.DESCRIPTOR.fields_by_name[last].is_repeated:
        getattr(message, last).append(HOSTILE)
    else:
        setattr(message, last, HOSTILE)
    return message


COMMANDS = (("status",), ("list",), ("fetch",), ("history",), ("members",))


@pytest.mark.variants(1)
@pytest.mark.parametrize("phase", [Phase.ANSWERING, Phase.FAILED, Phase.LOST])
def test_every_text_of_a_coordinator_s_answers(learner_world, capsys, tmp_path, phase):
    learner, stub = Learner(learner_world, capsys, tmp_path), learner_world.stub
    stub.parties = (PartyProgress("ada", PartyState.REFUSED, Code.UNAVAILABLE), PartyProgress("bo", PartyState.SILENT))
    stub.phases, stub.code, stub.detail = [phase], Code.COHORT_TOO_SMALL, "Silent: bo."
    learner.query("--timeout-s", "0.2")
    (query_id,) = learner.asked
    seen: set[tuple[str, tuple[object, ...]]] = set()
    stub.spoil = lambda response: (
        [seen.add((type(response).__name__, path)) for path in string_fields(response)] and (response)
    )
    run = lambda: [  # noqa: E731 - run for each field
        learner(*command, *([query_id] if command[0] in {"status", "fetch"} else []), *more)
        for command in COMMANDS
        for more in (("--timeout-s", "0.2") if command[0] == "fetch" else (),)
    ]
    run()
    assert len(seen) >= 12
    for kind, path in sorted(seen, key=str):

        def spoil(response, kind=kind, path=path):
            if type(response).__name__ == kind:
                spoiled(response, path)
            return response

        stub.spoil = spoil
        for _, out, err in run():
            assert safe(out), (kind, path)
            assert safe(err), (kind, path)


@pytest.mark.parametrize("path", [("code",), ("parties", 0, "party"), ("parties", 0, "code")], ids=str)
def test_names_and_codes_of_a_status_are_refused(path):
    """They are shown in tables and lists of names. A detail is a sentence, and becomes one line."""
    parties = (PartyProgress("ada", PartyState.REFUSED, Code.UNAVAILABLE),)
    status = QueryStatus(bytes(32), 1, Phase.FAILED, parties, "A_CODE_OF_A_LATER_VERSION", HOSTILE, 1, 1, 1)
    assert safe(QueryStatus.from_proto(status.to_proto()).detail, 1)
    message = status.to_proto()
    spoiled(message, path)
    with pytest.raises(WireError, match="not well formed"):
        QueryStatus.from_proto(message)


@pytest.mark.variants(2)
@pytest.mark.parametrize("method", ["WatchQuery", "FetchTotal", "FetchRoster", "FetchFeatures", "SubmitQuery"])
def test_the_words_of_a_coordinator_s_errors(learner_world, capsys, tmp_path, method):
    learner, stub = Learner(learner_world, capsys, tmp_path), learner_world.stub
    stub.worded = lambda sentence: f"{sentence} {HOSTILE}"
    stub.fail[method] = Code.QUERY_INVALID
    for _, out, err in (learner.query("--timeout-s", "1"), learner.query("--timeout-s", "1", "--format", "json")):
        assert safe(out)
        assert safe(err)


def test_no_command_prints_past_the_place_that_escapes():
    """Every text for people goes through Output, and every text of several lines through `in_lines`.

    commands.py prints the version.
    """
    found = []
    for path in (*ROOT.glob("radofed/cli/**/*.py"), *ROOT.glob("radofed/demo/*.py"), *ROOT.glob("parties/**/*.py")):
        if path.name == "output.py":
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                joins = called == "'\\n'.join" and path.is_relative_to(ROOT / "radofed/cli")
                prints = called in {"print", "typer.echo", "sys.stdout.write", "sys.stderr.write", "typer.prompt"}
                escaped = bool(node.args) and ast.unparse(node.args[0]).startswith("printable(")
                if joins or (prints and not escaped and path.name != "commands.py"):
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} {called}")
    assert found == []
