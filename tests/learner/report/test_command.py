"""`rado learner report`, as a person runs it beside a learner."""

import json
import shutil
import stat

import pytest
import yaml

from radofed.cli.entry_point import run
from tests.learner.report.report_world import table


def report(subject, *more) -> list[str]:
    return ["learner", "report", *map(str, (subject, *more))]


@pytest.mark.more
def test_it_writes_a_page_and_a_registry_entry(reported, tmp_path, capsys):
    page, registry = tmp_path / "report.html", tmp_path / "entry.yaml"
    own = tmp_path / "own.csv"
    own.write_text(table(200, 8))
    options = ("--release", reported.releases[0], "--test", own, "--output", page, "--registry", registry)
    assert run(report(reported.model, *options)) == 0
    said = capsys.readouterr().out
    assert f"wrote {page}\nwrote {registry}\n" in said
    assert "1 answer of ada, bo, cy, 12000 rows, asked by learner" in said
    assert "% of own rows" in said
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert yaml.safe_load(registry.read_text())["deployment"]["privacy_loss"]["privacy_unit"] == "Record-level"
    assert stat.S_IMODE(page.stat().st_mode) == stat.S_IMODE(registry.stat().st_mode) == 0o600


def test_json_has_the_report_and_the_entry(reported, capsys):
    releases = [text for place in reported.answers for text in ("--release", place)]
    assert run([*report(reported.newton, *releases), "--format", "json"]) == 0
    data = json.loads(capsys.readouterr().out)["data"]
    assert len(data["report"]["answers"]) == 3
    assert data["registry"]["tier"] == 3
    assert data["files"] == []
    assert data["report"]["coefficients"]["rows"][0]["column"] == "intercept"


def test_a_release_and_a_model_whose_release_is_gone(reported, capsys):
    assert run(report(reported.releases[0])) == 0
    assert "1 answer of ada, bo, cy" in capsys.readouterr().out
    assert run(report(reported.model)) == 0
    assert "who took part is not known: no --release and no --config" in capsys.readouterr().out


def test_what_does_not_belong_together_is_refused(reported, tmp_path, capsys):
    first, second = reported.answers[:2]
    (tmp_path / "text.json").write_text("{}")
    own = tmp_path / "own.csv"
    own.write_text(table(50, 8))
    changed = tmp_path / "changed"
    shutil.copytree(reported.releases[0], changed)
    text = (changed / "release.json").read_text()
    (changed / "release.json").write_text(text.replace('"attempt": 1', '"attempt": 2'))
    for arguments, says in (
        ((tmp_path / "away.json",), "does not exist; give a model's file or a release's directory"),
        ((tmp_path / "text.json",), "not a model of radofed"),
        ((tmp_path,), "release.json"),
        ((changed,), "was changed"),
        ((reported.newton, "--release", second, "--release", first), "in the order in which they were asked"),
        ((reported.model, "--release", first), "was not trained on these releases"),
        ((reported.releases[0], "--release", first), "give the model's file, or leave it out"),
        ((reported.releases[0], "--test", own), "give the model's file"),
        ((reported.model, "--evaluation", own), "rado learner evaluate MODEL"),
        ((reported.model, "--option", "shrinkage"), "write NAME=VALUE"),
    ):
        page = tmp_path / "page.html"
        assert run(report(*arguments, "--output", page)) != 0, arguments
        said = capsys.readouterr().err
        assert says in said, said
        assert "bug" not in said
        assert not page.exists()


@pytest.mark.parametrize("option", ["--output", "--registry"])
def test_no_file_is_overwritten(reported, tmp_path, capsys, option):
    (tmp_path / "there").write_text("signed")
    assert run(report(reported.model, option, tmp_path / "there")) == 4
    assert "already exists; give another file" in capsys.readouterr().err
    assert (tmp_path / "there").read_text() == "signed"
