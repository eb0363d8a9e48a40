"""The page: well formed, without scripts, with every figure; and honest about what is missing."""

import json
import re
from dataclasses import replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

import pytest

from dpcore.accounting.odds import chance_after
from dpcore.evaluation.evaluation import MEASURED
from dpcore.evaluation.intervals import ANYTHING, Interval
from dpcore.numbers.rationals import lower_digits, lower_percent, upper_digits, upper_percent
from dpcore.queries.statement import PrivacyStatement
from learner.report.page import MOST_DRAWN, document
from learner.report.sentences import BANDS, NO_BANDS, assumptions, not_protected, registry_entry
from learner.requests import MomentsRequest
from learner.shapes import shapes_of
from learner.studies import load_study
from tests.html_page import Page, check_that_it_can_be_followed, check_that_it_loads_nothing
from tests.learner.report.report_world import BACKWARDS, HTML, ROWS, SCHEMA, table
from tests.learner.shapes.mapped import model

THREAT_MODEL = Path(__file__).resolve().parents[3] / "docs/threat-model-details.md"


@pytest.fixture(scope="module")
def own(tmp_path_factory):
    file = tmp_path_factory.mktemp("own") / "own.csv"
    file.write_text(table(500, 8))
    return file


@pytest.fixture(scope="module")
def report(reported, own):
    return reported.report(reported.model, releases=tuple(reported.releases), test=own)


@pytest.fixture(scope="module")
def newton(reported):
    return reported.report(reported.newton, releases=tuple(reported.answers))


def words(report) -> str:
    return Page(document(report).saved()).words


def test_every_page_loads_nothing_and_can_be_followed(reported, report, newton):
    for each in (report, newton, reported.report(reported.newton), reported.report(reported.answers[1])):
        text = document(each).saved()
        check_that_it_loads_nothing(text)
        check_that_it_can_be_followed(text)
    assert len(Page(document(report).saved()).named("svg")) == 5


def test_text_of_categories_is_text(report):
    text = document(report).saved()
    assert HTML not in text
    assert BACKWARDS not in text
    assert HTML in Page(text).words
    assert "left\\u202etfel instead of east" in Page(text).words
    assert not [character for character in text if not character.isprintable() and character != "\n"]


def test_a_purpose_is_the_learner_s_text(reported, tmp_path):
    request = MomentsRequest(SCHEMA, epsilon=Fraction(1), purpose=HTML)
    reported.asked(request).save(tmp_path / "release")
    text = document(made := reported.report(tmp_path / "release")).saved()
    assert HTML not in text
    assert f"As the learner states it in signed queries, which nothing checks: {HTML} (1 query)." in Page(text).words
    assert (made.purposes, made.without_purpose) == (((HTML, 1),), 0)
    assert "No query whose words are kept states a purpose." in words(reported.report(reported.answers[1]))


def test_a_study_is_the_learner_s_text(reported, tmp_path):
    file = tmp_path / "study.toml"
    texts = {"purpose": HTML, "organisation": f"{HTML} 2", "person_in_charge": "<b>Ada</b>", "protocol_number": "<i>17"}
    lines = [f"{name} = {json.dumps(text)}" for name, text in texts.items()]
    file.write_text("\n".join([*lines, "begins = 2026-01-01", "ends = 2099-12-31"]))
    directory = tmp_path / "of-a-study"
    reported.asked(MomentsRequest(SCHEMA, epsilon=Fraction(1), study=file)).save(directory)
    found = reported.report(directory)
    assert found.to_dict()["studies"] == [load_study(file).to_dict() | {"queries": 1}]
    assert registry_entry(found)["deployment"]["product"]["studies"] == [load_study(file).to_dict()]
    text = document(found).saved()
    assert not any(written in text for written in texts.values())
    assert "&lt;i&gt;17" in text
    assert "The learner states it; nothing checks it." in text
    assert "No query names a study." in document(reported.report(reported.releases[0])).saved()


def test_the_answers_come_first(report, newton):
    start = words(report).split("Answers, in the order")[0]
    statement = report.statement
    assert "learner asked. 3 parties answered with 12,000 rows: ada, bo, cy." in start
    assert "1 query was answered" in start
    assert "moments with records clipped" in start
    # A term is explained where it first stands.
    assert "Moments: for each column its mean" in start
    for epsilon in (statement.epsilon, statement.epsilon_if_others_collude):
        assert f"at most {chance_after(0.5, epsilon, statement.delta).of_100()}" in start
    assert "at most 0.0001 (1 in 10,000)" in start
    assert f", about {100 * report.measured[0].figures.error.estimate:.1f} %" in start
    assert "It was not measured for this report." in words(newton)
    assert "3 queries were answered" in words(newton)


def test_every_figure_is_there(report):
    found = words(report)
    for answer in report.answers:
        for name, rows in answer.rows.items():
            assert f"{name} {rows:,}" in found
        for text in (answer.query_id, answer.digest, answer.asked.words):
            assert text in found
    for member in report.members:
        assert member.fingerprint in found
    for sentence in report.statement.sentences():
        assert sentence in found
    for row in report.coefficients[0].rows:
        assert f"{row.value:.4g}" in found
        for low, high in (row.noise, row.both):
            assert f"{lower_digits(low, 4)} to {upper_digits(high, 4)}" in found
    for chance in report.chances:
        assert (
            f"{chance.before} {chance.alone} {chance.colluding}" in re.sub(r"\s+", " ", found) or chance.alone in found
        )
    figures = report.measured[0].figures
    for part in (figures.error, figures.auc, figures.precision):
        low, high = part.on_distribution.lower, part.on_distribution.upper
        assert f"{lower_percent(low, 1)} % to {upper_percent(high, 1)} %" in found
    for digest in (report.digest, report.schema_digest, report.seed, report.model.release_digest.hex()):
        assert digest in found
    assert "rado learner train RELEASE --estimator moments-discriminant --output again.json" in found
    assert "it gives the same coefficients" in found
    assert "The signatures were not verified for this report" in found


@pytest.mark.more
def test_what_the_evaluation_does_not_measure_is_named_so(report):
    (measured,) = report.measured
    figures = measured.figures
    everything = f"Area under the ROC curve{100 * figures.auc.estimate:.1f} %"
    assert figures.area_in_words() in words(report)
    assert everything in words(report)
    observed = replace(figures.calibration[0].observed, on_rows=ANYTHING, on_distribution=None)
    bins = (replace(figures.calibration[0], observed=observed), *figures.calibration[1:])
    figures = replace(figures, auc_half_width=2 * MEASURED, calibration=bins)
    found = words(replace(report, measured=(replace(measured, figures=figures),)))
    assert everything not in found
    assert "Area under the ROC curvenot measured" in found
    assert "ROC curve. The area under the ROC curve cannot be measured at this epsilon" in found
    assert figures.calibration_in_words() in found
    assert re.search(r"0\.0 % to 10\.0 %\d+not measured0\.0 % to 100\.0 %", found)


def test_bins_of_the_calibration_meet(report):
    """Their edges are what was asked, and no bounds: rounded outwards, neighbours would overlap."""
    (measured,) = report.measured
    edges = (0.0, 0.12345, 0.56789, 1.0)
    bins = tuple(
        replace(bin_, predicted=Interval(*ends))
        for bin_, ends in zip(measured.figures.calibration, pairwise(edges), strict=False)
    )
    found = words(replace(report, measured=(replace(measured, figures=replace(measured.figures, calibration=bins)),)))
    assert all(f"{said} %" in found for said in ("0.0 % to 12.3", "12.3 % to 56.8", "56.8 % to 100.0"))


def test_own_rows_are_said_to_be_unprotected(report):
    assert "These rows are not protected by this report's statement" in words(report)


def test_a_model_without_its_releases_says_what_is_missing(reported):
    report = reported.report(reported.newton)
    found = words(report)
    assert "no --release and no --config was given" in found
    assert "Give them with --release DIRECTORY" in found
    assert "is the value plus and minus 1.96 standard deviations" in found
    assert "No plot of epsilon is drawn: the releases are not here." in found
    for sentence in report.statement.sentences():
        assert sentence in found
    assert "Interval for the noise. Made" not in found


def test_a_release_has_no_model(reported):
    found = words(reported.report(reported.answers[1]))
    assert "Report on the release newton-1" in found
    assert "The model's coefficients" not in found
    assert "How good" not in found
    assert "the gradient of the logistic loss" in found
    assert "A loss: a measure of how badly" in found


def test_without_a_bound_no_chance_is_claimed(report):
    nothing = PrivacyStatement("one record", "none", None, None, None, None, (), ("Rows can be read.",))
    found = words(replace(report, statement=nothing, chances=(), exceptions=None, curves=()))
    assert "There is no limit: nothing bounds what was released about a row." in found
    assert "No plot of epsilon is drawn: nothing is bounded." in found
    assert "Rows can be read." in found
    assert "Chance of a guess" not in found
    assert "at most" not in found.split("Who took part, and what was asked")[0]


@pytest.mark.more
def test_a_bound_for_less_than_a_row_is_no_chance_of_a_row(report):
    less = replace(report.statement, unit="one record's value of 'age'", scope="marginal")
    found = words(replace(report, statement=less, chances=()))
    assert "Only one record's value of 'age' is covered, not a whole row" in found
    assert "Such sums can reveal rows." in found
    assert "Such sums can reveal rows." not in words(report)
    assert "No chance of a guess about a whole row is stated" in found


def test_each_claim_is_in_the_threat_model(report):
    text = THREAT_MODEL.read_text()
    sources = ", ".join(each.source for each in (*assumptions(report), *not_protected(report))).split(", ")
    assert len(sources) >= 8
    for source in sources:
        heading = rf"^### {source}\." if source.startswith("P") else rf"^###? {re.escape(source)}\.? "
        assert re.search(heading, text, re.MULTILINE), source


def test_the_registry_has_the_figures_and_every_actor(report, newton):
    fields = registry_entry(report)["deployment"]
    assert fields["privacy_loss"]["privacy_parameters"] == {
        "epsilon": report.statement.epsilon_if_others_collude,
        "delta": report.statement.delta,
    }
    assert fields["product"]["data_curators"] == list(ROWS)
    actors = {actor["name"]: actor for actor in fields["model"]["actors"]}
    assert set(actors) == {*ROWS, "coordinator", "learner"}
    assert all(actor["trust"] for actor in actors.values())
    assert fields["dp_flavor"]["unprotected_quantities"]
    assert fields["accounting"]["attempts_that_may_have_a_total"] == sum(answer.attempts for answer in report.answers)
    assert "Corollary 2" in registry_entry(newton)["deployment"]["accounting"]["composition"]
    nothing = PrivacyStatement("one record", "none", None, None, None, None, (), ())
    bare = registry_entry(replace(report, statement=nothing, chances=()))["deployment"]
    assert (bare["dp_flavor"]["name"], bare["dp_flavor"]["output_measure"]) == ("None", None)


def test_a_model_with_curves_has_shapes_in_place_of_coefficients(reported, tmp_path):
    made = model(covariance=True)
    made.save(tmp_path / "curves.json")
    report = reported.report(tmp_path / "curves.json")
    text = document(report).saved()
    check_that_it_loads_nothing(text)
    page = check_that_it_can_be_followed(text)
    assert "The model's shapes" in page.words
    assert "The model's coefficients" not in page.words
    assert "Columns and pairs, by size" in page.words
    for shape in report.shapes[0].ranked:
        assert f"{shape.title}{shape.size:.3f}" in page.words
    assert [svg["aria-labelledby"] for svg in page.named("svg")] == [
        f"shape-{place}-title shape-{place}-words" for place in range(1, MOST_DRAWN + 1)
    ]
    assert "These are the 6 largest shapes." in page.words
    for sentence in BANDS:
        assert sentence in page.words
    assert NO_BANDS in words(replace(report, shapes=(shapes_of(model()),)))
    assert len(report.to_dict()["shapes"]["ranking"]) == 7
    assert reported.report(reported.newton).to_dict()["shapes"] is None
