"""The learner's study: of its configuration or of a file, in every query, and on the days of the study only."""

import json
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from fractions import Fraction

import pytest

from dpcore.errors import ConfigurationError
from learner.config import LearnerConfig
from learner.connecting import connect
from learner.federation import Federation
from learner.history import AskedBeforeError
from learner.journal import SessionSource
from learner.release import Release
from learner.requests import MomentsRequest
from learner.studies import load_study
from radofed.cli.entry_point import run
from tests.federation.material import STAYS as SCHEMA
from tests.wire.every_query import STUDY
from wire.errors import Code, WireError
from wire.features import Feature
from wire.query import Query
from wire.status import Phase

TEXT = """protocol_number = "EK 2026/17"
purpose = "Which patients come back within a month?"
organisation = "University of Chur"
person_in_charge = "Dr. Ada Meier"
begins = 2026-01-01
ends = "2099-12-31"
"""
OTHER = TEXT.replace("/17", "/18")
REQUEST = MomentsRequest(SCHEMA, epsilon=Fraction(1))


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "study.toml"
    path.write_text(TEXT)
    return path


@pytest.fixture
def configured(setting):
    """learner.toml has a study."""
    with setting.config_file.open("a") as file:
        file.write(f"\n[study]\n{TEXT}")
    return setting


def test_a_study_is_read_from_a_file_and_from_the_configuration(file, configured):
    assert load_study(file) == STUDY
    assert LearnerConfig.load(configured.config_file).study.study() == STUDY
    with connect(configured.config_file, schema=SCHEMA, progress=False) as federation:
        assert federation.session.study == STUDY


ODD = {
    "write a date, such as 2026-11-01": ("2026-01-01", "2026-01-01T12:00:00"),
    "not before its first": ("2026-01-01", "2100-01-01"),
    "purpose of a study has 1 to 200 printable": ("Which patients", "Which\\u202epatients"),
    "'organisation' is missing": ("organisation", "# organisation"),
    "unknown key 'organization'; did you mean 'organisation'": ("organisation", "organization"),
}


@pytest.mark.parametrize("sentence", ODD)
@pytest.mark.more
def test_a_file_that_is_no_study_is_refused_with_what_to_do(file, sentence):
    file.write_text(TEXT.replace(*ODD[sentence], 1))
    with pytest.raises(ConfigurationError, match=sentence):
        load_study(file)


def test_every_query_states_the_configured_study_or_that_of_the_command(configured, file):
    file.write_text(OTHER)
    with configured.session() as session:
        session.config = LearnerConfig.load(configured.config_file)
        for request, number in ((REQUEST, "EK 2026/17"), (replace(REQUEST, study=file), "EK 2026/18")):
            for question in (False, True):
                query = session.plan(request, question=question).query
                assert (query.study.protocol_number, Feature.STUDY in query.features) == (number, True)
        said = " ".join(session.plan(REQUEST).sentences())
        assert 'Study, as it is shown to the parties: "EK 2026/17", "Which patients come back' in said
        assert f"digest {STUDY.digest.hex()}" in said


def test_without_one_a_query_names_none(setting):
    with setting.session() as session:
        query = session.plan(REQUEST).query
        assert (query.study, Feature.STUDY in query.features) == (None, False)


def test_nothing_is_sent_before_a_study_begins_or_after_it_ended(setting, file):
    for text, sentence in (
        (TEXT.replace("2099", "2026").replace("2026-12-31", "2026-01-02"), "It ended on 2026-01-02"),
        (TEXT.replace("2026-01-01", "2099-01-01"), "It begins on 2099-01-01"),
    ):
        file.write_text(text)
        with setting.session() as session, pytest.raises(WireError, match=sentence) as caught:
            session.plan(replace(REQUEST, study=file))
        assert caught.value.code is Code.STUDY_DATES
    assert setting.stub.submitted == []


def test_a_plan_warns_if_the_study_ends_before_the_query_expires(setting, file):
    tomorrow = datetime.now(UTC).date() + timedelta(days=1)
    with setting.session() as session:
        for ends, warned in ((date(2099, 12, 31), False), (tomorrow, True)):
            file.write_text(TEXT.replace("2099-12-31", str(ends)))
            said = " ".join(session.plan(replace(REQUEST, study=file, expires_after_s=3 * 86_400)).sentences())
            assert (f"the study ends on {ends}, before the query expires" in said) == warned


def test_a_coordinator_that_does_not_know_studies_is_not_asked(configured):
    """The study is not left out in silence."""
    configured.stub.own_features = tuple(name for name in configured.stub.own_features if name != Feature.STUDY)
    with configured.session() as session:
        session.config = LearnerConfig.load(configured.config_file)
        with pytest.raises(WireError, match="The coordinator lacks: study") as caught:
            session.plan(REQUEST)
    assert caught.value.code is Code.FEATURE_MISSING


def test_an_answer_in_another_study_is_found_with_that_study(configured, file, capsys):
    file.write_text(OTHER)
    with configured.session() as session:
        session.config = LearnerConfig.load(configured.config_file)
        federation = Federation(SessionSource(session), SCHEMA)
        federation.statistic(["y == 1"], epsilon=Fraction(1))
        release = Release.load(session.release_directory(session.asked()[0]))
        assert release.to_json()["study"] == STUDY.to_dict()
        assert run(["learner", "privacy", str(session.release_directory(session.asked()[0])), "--delta", "1e-6"]) == 0
        assert '1 of 1 releases in study "EK 2026/17", "Which patients' in capsys.readouterr().out
        for study, said in ((str(file), True), (None, False)):
            again = Federation(SessionSource(session), SCHEMA, study=study)
            with pytest.raises(AskedBeforeError) as caught:
                again.statistic(["y == 1"], epsilon=Fraction(1))
            assert ('the same in the study "EK 2026/17", "Which' in str(caught.value)) == said


@pytest.mark.parametrize("command", ["query", "statistic", "train"])
def test_commands_take_the_file_and_history_shows_it(setting, capsys, tmp_path, file, command):
    schema = tmp_path / "schema.toml"
    schema.write_text(SCHEMA.to_toml())
    setting.stub.phases = [Phase.ANSWERING]
    shared = ["--schema", str(schema), "--epsilon", "1", "--max-rows", "10000", "--timeout-s", "0.2"]
    shared += ["--study", str(file), "--config", str(setting.config_file)]
    model = str(tmp_path / "model.json")
    asked = {
        "query": ["query", "--design", "moments"],
        "statistic": ["statistic", "y == 1"],
        "train": ["train", "--estimator", "newton", "--output", model],
    }
    assert run(["learner", *asked[command], *shared]) == 3
    # A training first asks whether all of it would be accepted.
    *_, sent = setting.stub.submitted
    assert Query.from_bytes(sent.payload).study == STUDY
    capsys.readouterr()
    assert run(["learner", "history", "--config", str(setting.config_file), "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["data"]["queries"][0]["study"] == STUDY.to_dict()
    assert run(["learner", "history", "--config", str(setting.config_file)]) == 0
    assert 'study: "EK 2026/17"' in " ".join(capsys.readouterr().out.split())
