"""`rado party report`, as a person runs it beside a party."""

import json
import stat
import subprocess
import sys

import pytest
import yaml

from radofed.cli.entry_point import run
from tests.parties.report.report_world import ada_at, answer, statistic, without_noise

pytestmark = pytest.mark.usefixtures("small_comb")


@pytest.fixture
def party(world, tmp_path):
    """A party's directory, with one answer and one refusal. Its databases stay open, as a running node's."""
    directory = tmp_path / "ada"
    directory.mkdir()
    ada = ada_at(world, directory)
    answer(ada, statistic(world))
    ada.go(world.ask(without_noise(world)))
    yield directory
    ada.history.database.close()
    ada.ledger.database.close()


def report(directory, *more: str) -> list[str]:
    return ["party", "report", "--config", str(directory / "party.toml"), "--from", "2020-01-01", *more]


def test_it_writes_a_page_and_a_registry_entry(party, tmp_path, capsys):
    page, registry = tmp_path / "report.html", tmp_path / "entry.yaml"
    assert run(report(party, "--output", str(page), "--registry", str(registry))) == 0
    assert f"wrote {page}\nwrote {registry}\n" in capsys.readouterr().out
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert yaml.safe_load(registry.read_text())["deployment"]["privacy_loss"]["privacy_unit"] == "Record-level"
    # Predicates may name people.
    assert stat.S_IMODE(page.stat().st_mode) == stat.S_IMODE(registry.stat().st_mode) == 0o600


def test_without_a_file_it_prints_a_summary(party, capsys):
    assert run(report(party)) == 0
    said = capsys.readouterr().out
    assert "asked by lea: 2 queries, 1 answered" in said
    assert "more queries like the last one fit" in said
    assert "a guess about one row, 50 of 100 before: at most 95.4 of 100 within the limit" in said


def test_one_is_not_several(world, tmp_path, capsys):
    directory = tmp_path / "ada"
    directory.mkdir()
    ada = ada_at(world, directory)
    answer(ada, statistic(world))
    assert run(report(directory)) == 0
    said = capsys.readouterr().out
    assert "asked by lea: 1 query, 1 answered" in said
    assert ", 1 answer charged" in said
    ada.history.database.close()
    ada.ledger.database.close()


@pytest.mark.parametrize("name", ["-", "/dev/stdout"])
def test_a_report_is_no_standard_output(party, tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    assert run(report(party, "--output", name)) == 4
    assert f"{name}: a report is a file that only its owner may read" in capsys.readouterr().err
    assert not (tmp_path / "-").exists()


def test_json_has_the_report_and_the_entry(party, capsys):
    assert run([*report(party), "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert data["report"]["count"] == 2
    assert data["registry"]["tier"] == 3
    assert data["files"] == []


def test_it_ends_before_the_last_moment(party, capsys):
    assert run([*report(party, "--to", "2020-02-01"), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["report"]["count"] == 0
    assert run(report(party, "--to", "2020-02-01")) == 0
    assert "no query in this period" in capsys.readouterr().out


@pytest.mark.variants(1)
@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--to", "2019-01-01"), "the period is empty"),
        (("--to", "2020-01-01"), "the period is empty"),
        (("--to", "soon"), "'soon' is no date"),
    ],
)
def test_a_period_that_is_none(party, tmp_path, capsys, more, said):
    page = tmp_path / "report.html"
    assert run(report(party, *more, "--output", str(page))) == 4
    assert said in capsys.readouterr().err
    assert not page.exists()


@pytest.mark.variants(1)
@pytest.mark.parametrize("option", ["--output", "--registry"])
def test_no_file_is_overwritten(party, tmp_path, capsys, option):
    (tmp_path / "there").write_text("signed")
    assert run(report(party, option, str(tmp_path / "there"))) == 4
    assert "already exists; give another file" in capsys.readouterr().err
    assert (tmp_path / "there").read_text() == "signed"
    assert run(report(party, option, str(tmp_path / "away" / "new"))) == 4
    assert "not a directory; make it first" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["history.sqlite", "ledger.sqlite"])
def test_a_damaged_database_is_named_and_nothing_is_written(world, tmp_path, capsys, name):
    directory = tmp_path / "ada"
    directory.mkdir()
    ada = ada_at(world, directory)
    answer(ada, statistic(world))
    ada.history.database.close()
    ada.ledger.database.close()
    (directory / name).write_bytes(b"not a database" * 500)
    page = tmp_path / "report.html"
    assert run(report(directory, "--output", str(page))) != 0
    said = capsys.readouterr().err
    assert name in said
    assert "bug" not in said
    assert not page.exists()


@pytest.mark.more
def test_without_the_extra_it_says_how_to_install_it(party, tmp_path):
    page = tmp_path / "report.html"
    program = (
        "import sys; sys.modules['jinja2'] = None\nfrom radofed.cli.entry_point import run\nsys.exit(run(sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, *report(party, "--output", str(page))]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ended.returncode == 4
    assert "python deploy/install.py report" in ended.stderr
    assert not page.exists()
    # The summary needs nothing more than a party has.
    assert subprocess.run(command[:-2], capture_output=True, check=False).returncode == 0
