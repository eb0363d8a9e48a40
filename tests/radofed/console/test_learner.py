"""The consoles of a learner and of a coordinator in a headless browser, with real nodes behind them."""

import json
import shlex
import shutil
from pathlib import Path

import numpy as np
import pytest

from dpcore.evaluation.options import EvaluationOptions
from dpcore.records.schema import Schema
from learner.model import Model
from learner.report.measured import OwnRows, evaluation_content
from radofed.console.learner.evaluations import EvaluationFile
from radofed.node_config import PolicyChoices
from tests.end_to_end.test_main_job import SCHEMA, table
from tests.federation.processes import ProcessFederation, rado
from tests.html_page import Page, check_that_it_loads_nothing
from tests.learner.class_models import NAMES, class_model
from tests.learner.report import test_value_report
from tests.learner.shapes.mapped import model as mapped
from tests.learner.test_class_scores import frame
from tests.learner.test_models import STATEMENT
from tests.learner.test_value_exports import model as value_model
from tests.radofed.console.consoles import console, fill
from tests.radofed.console.looking import check_page, open_page, press, saved, tabs, visiting
from tests.waiting import wait_until

ROWS = {"a": 300, "b": 280, "c": 320}
ALLOWING = PolicyChoices(designs=("moments", "gradient", "statistic"), epsilon="20", delta="1e-4")
HTML = "<img src=x onerror=alert(1)>"
WITH_HTML = SCHEMA.replace('"canaryward"]', f'"canaryward", "{HTML}"]')


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    """Three parties that run, of which a asks people about moments, and a learner with a key."""
    root = tmp_path_factory.mktemp("console")
    parties = {name: table(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    with ProcessFederation(root, parties=parties, schema=WITH_HTML, policy=ALLOWING, rows_at_least=ROWS) as federation:
        policy = federation.directory("a") / "policy.toml"
        policy.write_text(policy.read_text() + '\n[approval]\ndesigns = ["moments"]\n')
        (federation.learner.directory / "schema.toml").write_text(WITH_HTML)
        federation.start_all()
        rado("learner", "keygen", "--config", str(federation.learner.config), "--bits", "2048")
        wait_until(lambda: all('"started"' in federation.log(name) for name in ROWS), what="the parties")
        yield federation


@pytest.fixture(scope="module")
def learner(federation, browser, tmp_path_factory):
    """A page of the learner's console, and how it was opened."""
    log = tmp_path_factory.mktemp("log") / "learner"
    with console(federation.learner.config, log) as opening, visiting(browser, opening) as page:
        yield page, opening


@pytest.fixture(scope="module")
def coordinator(federation, browser, tmp_path_factory):
    """A page of the coordinator's console, and how it was opened."""
    log = tmp_path_factory.mktemp("log") / "coordinator"
    with console(federation.member("coordinator").config, log) as opening, visiting(browser, opening) as page:
        yield page, opening


own_rows = test_value_report.own


def asked(federation) -> list[dict]:
    if not (federation.learner.directory / "state").exists():
        return []
    return rado("learner", "history", "--config", str(federation.learner.config))["data"]["queries"]


def confirmation(federation, learner):
    """The page that asks whether to ask for moments."""
    page, opening = learner
    open_page(page, opening, "plan?what=moments")
    schema = str(federation.learner.directory / "schema.toml")
    rows = ",".join(map(str, ROWS.values()))
    fill(page, {"schema": schema, "party_rows": rows, "epsilon": "1", "cohort_min": "3", "answer_within_s": "300"})
    page.click("button[value=ask]")
    page.wait_for_url("**/asking/*")
    return page


def ask(federation, learner) -> str:
    """Ask for moments; returns the query's id."""
    page = confirmation(federation, learner)
    page.click("button.main")
    page.wait_for_url("**/queries/*")
    return page.url.rsplit("/", 1)[1]


def approve(federation, query_id: str) -> None:
    rado("party", "approve", query_id, "--config", str(federation.member("a").config), "--name", "Ann")


def test_from_a_plan_to_a_model(federation, learner, coordinator):
    page, opening = learner
    before = len(asked(federation))
    confirmation(federation, learner)
    text = page.inner_text("main")
    for words in ("Nothing was sent yet", "moments with records clipped", "1.0000 under collusion", "a\t300"):
        assert words in text
    check_page(page)
    # Looking asks nothing, nor does a form without the console's token.
    url = page.url
    assert page.request.get(url).ok
    origin = {"Origin": url.split(opening.root)[0]}
    assert page.request.post(url, form={"csrf": "x"}, headers=origin).status == 403
    assert len(asked(federation)) == before

    # A double click asks once.
    page.dblclick("button.main")
    # The second click ends the first one's navigation, which waiting for an address would report.
    page.locator("#live").wait_for()
    query_id = page.url.rsplit("/", 1)[1]
    page.goto(url)
    assert "This was asked" in page.inner_text("main")
    assert page.locator("main button").count() == 0
    assert len(asked(federation)) == before + 1

    open_page(page, opening, f"queries/{query_id}")
    page.wait_for_selector("text=waiting for a decision at a")
    assert "a\twaiting for a decision there" in page.inner_text("main")
    check_page(page)
    watched, watched_opening = coordinator
    open_page(watched, watched_opening, "status")
    watched.wait_for_selector(f"tr:has-text('{query_id[:10]}'):has-text('waiting for a decision at a')")
    assert "answering" in watched.inner_text("main")
    approve(federation, query_id)

    # Both pages follow by themselves.
    page.wait_for_selector("text=Open the release")
    watched.wait_for_selector(f"tr:has-text('{query_id[:10]}'):has-text('complete')")
    (release,) = (each for each in asked(federation) if each["query_id"] == query_id)
    page.click("text=Open the release")
    text = page.inner_text("main")
    assert f"({release['privacy']['epsilon']:.4f}"[:-2] in text
    assert all(f"{party}\t{rows}" in text for party, rows in ROWS.items())
    check_page(page)

    page.select_option("#estimator", "mean-variance")
    page.fill("#option", "nothing=1")
    page.click("button.main")
    assert "mean-variance has no option 'nothing'" in page.inner_text("[role=alert]")
    assert page.input_value("#option") == "nothing=1"
    page.fill("#option", "")
    page.click("button.main")
    page.wait_for_url("**/models/*")
    assert page.locator("svg rect").count() == 8
    assert page.locator("img").count() == 0
    assert HTML in page.inner_text("table")
    check_page(page)
    with page.expect_download() as download:
        page.click(f"text={query_id[:16]}-mean-variance-1.json")
    model = json.loads(download.value.path().read_text())
    assert (model["format"], model["learner"]) == ("radofed-model", "mean-variance")
    page.click("text=Make a report")
    page.wait_for_selector("text=Save this page")
    check_page(page)
    _, report = saved(page)
    check_that_it_loads_nothing(report)
    assert query_id[:16] in report
    assert HTML not in report
    for path in ("queries", "releases", "models"):
        open_page(page, opening, f"{path}")
        assert query_id[:10] in page.inner_text("main")
        check_page(page)


def charged(federation) -> int:
    """How many attempts party a has charged."""
    found = rado("ledger", "history", "--config", str(federation.member("a").config))["data"]["queries"]
    return sum(attempt["charged"] for query in found for attempt in query["attempts"])


def plan_to_ask(federation, page, opening, what: str, **fields: str) -> None:
    """From the form to the page that asks whether to ask."""
    open_page(page, opening, f"plan?what={what}")
    fill(page, {"schema": str(federation.learner.directory / "schema.toml"), "epsilon": "1", **fields})
    press(page, "Go on to ask the parties")


def test_an_estimator_asks_after_a_confirmation_and_goes_on_after_a_restart(federation, browser, tmp_path):
    config, before = federation.learner.config, (charged(federation), len(asked(federation)))
    with console(config, tmp_path / "first") as opening, visiting(browser, opening) as page:
        plan_to_ask(federation, page, opening, "newton", rounds="2", purpose="Study 17")
        text = page.inner_text("main")
        for words in ("Nothing was sent yet", "Budget of all answers: epsilon 1 at delta 1e-6", "It asks moments",
                      "It asks the gradient", "1.0000 if the coordinator", "a\t300",
                      'Purpose, as it is shown to the parties: "Study 17".'):  # fmt: skip
            assert words in text
        check_page(page)
        assert (charged(federation), len(asked(federation))) == before
        # A double click starts one training, which waits for a person at a.
        page.dblclick("text=Ask, and train")
        page.wait_for_selector("text=waiting for a decision at a")
        assert page.url.endswith("trainings/newton-1")
        check_page(page)
        (query, *_), models = asked(federation), federation.learner.directory / "models"
        assert [each.name for each in models.glob("*.training")] == ["newton-1.training"]
        assert len(asked(federation)) == before[1] + 1
        page.click("text=Stop the training")
        press(page, "Stop it")
        approve(federation, query["query_id"])
        page.wait_for_selector("text=It was stopped before its next query")
    # It was killed, and the next one asks nothing by itself.
    with console(config, tmp_path / "second") as opening, visiting(browser, opening) as page:
        open_page(page, opening, "models")
        page.click("text=newton-1")
        assert "the console or the command that ran it has ended" in page.inner_text("main")
        check_page(page)
        assert (charged(federation), len(asked(federation))) == (before[0] + 1, before[1] + 1)
        page.dblclick("text=Go on and ask the rest")
        page.wait_for_selector("text=Open the model")
        # The first answer was read from disk.
        assert (charged(federation), len(asked(federation))) == (before[0] + 2, before[1] + 2)
        assert [each["purpose"] for each in asked(federation)[:2]] == ["Study 17"] * 2
        command = shlex.split(page.inner_text("pre.command"))
        page.click("text=Open the model")
        assert "newton" in page.inner_text("main")
        page.click("text=Make a report")
        assert query["query_id"][:12] in saved(page)[1]
    # The command that the page shows makes the same model of the same answers, and asks nothing more.
    made = Path(command[-1])
    again = made.with_name("again.json")
    shutil.copy(f"{made}.journal", f"{again}.journal")
    rado(*command[1:-1], str(again))
    assert Model.load(again).digest == Model.load(made).digest
    assert (charged(federation), len(asked(federation))) == (before[0] + 2, before[1] + 2)


def test_statistics_are_asked_after_a_confirmation(federation, learner):
    page, opening = learner
    before = len(asked(federation))
    plan_to_ask(federation, page, opening, "statistic", statistic="y == 1", tolerance="0.000001")
    assert "900 rows cannot keep a tolerance of 1e-06" in page.inner_text("[role=alert]")
    both = 'y == 1\nx["age"] >= 0'
    plan_to_ask(federation, page, opening, "statistic", statistic=both, tolerance="0.2", purpose="a\u202eb")
    assert "a purpose has 1 to 200 printable characters" in page.inner_text("[role=alert]")
    plan_to_ask(federation, page, opening, "statistic", statistic=both, tolerance="0.2", purpose="Study 18")
    assert "y == 1" in page.inner_text("ol.predicates")
    assert 'Purpose, as it is shown to the parties: "Study 18".' in page.inner_text("main")
    assert len(asked(federation)) == before
    page.click("button.main")
    page.wait_for_selector("text=Open the release")
    page.click("text=Open the release")
    # Of every row, with noise.
    share = float(page.inner_text('tr:has-text("age") td'))
    assert 0.9 < share < 1.1
    assert "All tolerances together hold with probability 0.95" in page.inner_text("main")
    check_page(page)
    assert asked(federation)[0]["purpose"] == "Study 18"
    open_page(page, opening, "queries")
    assert page.inner_text("tbody tr:first-child q") == "Study 18"
    check_page(page)


def test_an_inquiry_is_asked_after_a_confirmation_and_shown_with_its_release(federation, learner):
    """As `rado learner crosstab`, which prints the same release again."""
    page, opening = learner
    before = len(asked(federation))
    plan_to_ask(federation, page, opening, "crosstab", columns="ward\ny == 1", epsilon="2")
    text = page.inner_text("main")
    assert "Expected intervals" in text
    assert "cannot be told from an empty one" in text
    check_page(page)
    assert len(asked(federation)) == before
    page.click("button.main")
    page.wait_for_selector("text=Open the release")
    page.click("text=Open the release")
    text = page.inner_text("main")
    assert "As rado learner crosstab prints it" in text
    assert "Chi-square with noise" in text
    check_page(page)
    directory = federation.learner.directory / "releases" / page.url.rsplit("/", 1)[1]
    found = rado("learner", "crosstab", "--release", str(directory))["data"]
    assert all(sentence in text for sentence in found["sentences"])
    assert len(asked(federation)) == before + 1


def test_the_coordinator_s_pages(federation, learner, coordinator):
    query_id = ask(federation, learner)
    page, opening = coordinator
    open_page(page, opening, "status")
    page.wait_for_selector(f"text={query_id[:10]}")
    text = page.inner_text("main")
    found = rado("coordinator", "status", "--config", str(federation.member("coordinator").config))["data"]
    for words in ("SERVING", found["address"], found["roster"]["expires"], f"{found['spool_limit_bytes']:,} bytes"):
        assert words in text
    assert found["free_disk_bytes"] > 0
    assert page.locator("meter").get_attribute("max") == str(found["spool_limit_bytes"])
    assert all(f"\n{name}\t" in text for name in (*ROWS, "learner"))
    assert f"\nlearner\t{found['quotas'][0]['open_queries']} of 4\t" in text
    config = str(federation.member("coordinator").config)
    rado("coordinator", "drain", "--within", "0", "--config", config, code=3)
    page.wait_for_selector("text=Drained since")
    page.wait_for_selector("text=NO_NEW_QUERIES: an administrator drains the coordinator")
    assert rado("coordinator", "status", "--config", config)["data"]["not_ready"] == ["NO_NEW_QUERIES"]
    check_page(page)
    rado("coordinator", "undrain", "--config", config)
    page.click(f"text={query_id[:10]}")
    page.wait_for_selector("tr:has-text('pending')")
    assert query_id in page.inner_text("main")
    check_page(page)
    rado("learner", "cancel", query_id, "--config", str(federation.learner.config))
    page.wait_for_selector("text=CANCELLED")
    open_page(page, opening, f"queries/{'0' * 64}")
    assert "no such query" in page.inner_text("[role=alert]")


@pytest.mark.slow
def test_a_query_is_cancelled(federation, learner):
    page, _ = learner
    query_id = ask(federation, learner)
    page.wait_for_selector("text=waiting for a decision at a")
    page.click("text=Cancel the query")
    page.click("text=Cancel it")
    page.wait_for_selector("text=CANCELLED")
    (found,) = (each for each in asked(federation) if each["query_id"] == query_id)
    assert found["outcome"].startswith("ended: CANCELLED")


@pytest.mark.slow
def test_the_next_console_follows_what_the_last_one_asked(federation, browser, tmp_path):
    config = federation.learner.config
    with console(config, tmp_path / "first") as opening, visiting(browser, opening) as page:
        query_id = ask(federation, (page, opening))
        page.wait_for_selector("text=waiting for a decision at a")
    # It was killed.
    with console(config, tmp_path / "second") as opening, visiting(browser, opening) as page:
        open_page(page, opening, f"queries/{query_id}")
        page.wait_for_selector("text=waiting for a decision at a")
        approve(federation, query_id)
        page.wait_for_selector("text=Open the release")


@pytest.mark.slow
def test_a_coordinator_that_does_not_run(federation, learner, coordinator):
    page, opening = learner
    query_id = ask(federation, learner)
    page.wait_for_selector("text=waiting for a decision at a")
    federation.stop("coordinator")
    watched, watched_opening = coordinator
    open_page(watched, watched_opening, "status")
    assert "The coordinator does not run" in watched.inner_text("[role=alert]")
    # What it stored is shown.
    assert query_id[:10] in watched.inner_text("main")
    open_page(page, opening, "plan?what=moments")
    # The form knows the rows that the roster states, and the newest query's schema.
    assert page.input_value("#party_rows") == ",".join(map(str, ROWS.values()))
    fill(page, {"epsilon": "1"})
    page.click("button[value=ask]")
    assert "no connection to 127.0.0.1" in page.inner_text("[role=alert]")
    assert asked(federation)[0]["query_id"] == query_id
    federation.start("coordinator")


@pytest.mark.slow
def test_a_query_that_was_not_sent_is_sent_when_a_person_says_so(federation, browser, tmp_path):
    config = federation.learner.config
    with console(config, tmp_path / "first") as opening, visiting(browser, opening) as page:
        confirmation(federation, (page, opening))
        federation.stop("coordinator")
        page.click("button.main")
        page.wait_for_selector("text=trying to reach the coordinator")
        query_id = page.url.rsplit("/", 1)[1]
    federation.start("coordinator")
    # Without scripts, a page is brought up to date by loading it again.
    with (
        console(config, tmp_path / "second") as opening,
        visiting(browser, opening, java_script_enabled=False) as page,
    ):
        open_page(page, opening, f"queries/{query_id}")
        assert "never acknowledged" in page.inner_text("main")
        press(page, "Send it and follow it")

        def waits() -> bool:
            page.reload()
            return "waiting for a decision at a" in page.inner_text("main")

        wait_until(waits, what="the query at a")
        page.click("text=Cancel the query")
        press(page, "Cancel it")
        wait_until(lambda: page.reload() and "CANCELLED" in page.inner_text("main"), what="the end")


def test_a_model_with_curves_shows_its_shapes(federation, learner):
    page, opening = learner
    models = federation.learner.directory / "models"
    models.mkdir(exist_ok=True)
    mapped().save(models / "curves-1.json")
    open_page(page, opening, "models/curves-1")
    assert "Sizes of its shapes" in page.inner_text("main")
    assert page.locator("svg rect").count() == 7
    assert page.locator("table").count() == 0
    check_page(page)
    page.click("text=Draw its shapes")
    page.wait_for_selector("text=Save this page")
    check_page(page)
    _, shapes = saved(page)
    check_that_it_loads_nothing(shapes)
    assert "age and paid" in Page(shapes).words
    # The page itself, as a browser shows it.
    with page.context.browser.new_page() as alone:
        alone.set_content(shapes)
        check_page(alone)


@pytest.mark.more
def test_models_of_numbers_counts_and_times_have_their_pages(federation, learner):
    page, opening = learner
    models = federation.learner.directory / "models"
    models.mkdir(exist_ok=True)
    for kind, says in (("number", "in its units"), ("rate", "rate ratio"), ("time", "hazard ratio")):
        value_model(kind).save(models / f"value-{kind}.json")
        open_page(page, opening, f"models/value-{kind}")
        text = page.inner_text("main")
        assert says in text.lower()
        assert "rado learner evaluate" in text
        check_page(page)
        for path in ("shapes", "report"):
            open_page(page, opening, f"models/value-{kind}/{path}")
            check_page(page)
            _, made = saved(page)
            check_that_it_loads_nothing(made)
            with page.context.browser.new_page(color_scheme="dark") as alone:
                alone.set_content(made)
                check_page(alone)


@pytest.mark.parametrize("is_mapped", [False, True])
def test_a_model_of_several_classes_has_its_pages(federation, learner, is_mapped):
    page, opening = learner
    models = federation.learner.directory / "models"
    models.mkdir(exist_ok=True)
    name = f"classes-{int(is_mapped)}"
    class_model(mapped=is_mapped, estimator="additive" if is_mapped else "newton").save(models / f"{name}.json")
    open_page(page, opening, f"models/{name}")
    text = page.inner_text("main")
    assert ("no logarithms of relative risk ratios" in text) != is_mapped
    assert "for each class of the label kind, and says the class of the largest" in text
    assert "beside the average of all classes" in text
    assert page.locator("svg[role=img]").count() == len(NAMES)
    assert (page.locator("table").count() == 0) == is_mapped
    check_page(page)
    for path, saved_words in (("shapes", "Columns, for"), ("report", "and says the class of the largest")):
        open_page(page, opening, f"models/{name}/{path}")
        check_page(page)
        _, made = saved(page)
        check_that_it_loads_nothing(made)
        assert saved_words in Page(made).words
        with page.context.browser.new_page(color_scheme="dark") as alone:
            alone.set_content(made)
            check_page(alone)
    open_page(page, opening, "models")
    assert name in page.inner_text("main")


def test_a_model_is_measured_after_a_confirmation(federation, learner):
    page, opening = learner
    models = federation.learner.directory / "models"
    models.mkdir(exist_ok=True)
    schema = Schema.from_toml(WITH_HTML)
    Model(np.linspace(-1, 1, schema.d), schema, "newton", bytes(32), STATEMENT).save(models / "mine.json")
    before = len(asked(federation))
    open_page(page, opening, "models/mine")
    page.click("text=Measure it")
    assert page.input_value("#model") == "mine"
    check_page(page)
    # Every field and button is reached by the keyboard alone.
    page.focus("#model")
    reached = tabs(page)
    assert reached[:5] == ["purpose", "study", "epsilon", "delta", "bins"]
    assert "Go on to ask the parties" in reached
    press(page, "Go on to ask the parties")
    assert "give the --epsilon" in page.inner_text("[role=alert]")
    fill(page, {"epsilon": "2", "bins": "5", "cost": "kind=3"})
    press(page, "Go on to ask the parties")
    assert "write false-negative=5:false-positive=1" in page.inner_text("[role=alert]")
    assert page.input_value("#bins") == "5"
    check_page(page)
    fill(page, {"cost": "false-negative=5:false-positive=1"})
    page.focus("text=Go on to ask the parties")
    page.keyboard.press("Enter")
    page.wait_for_url("**/evaluating/*")
    text = page.inner_text("main")
    for words in ("Nothing was sent yet", "epsilon 2 at delta 0", "About all rows", "Batch 1: where the scores are",
                  "in 5 bins", "a\t300"):  # fmt: skip
        assert words in text
    check_page(page)
    press(page, "Ask the parties whether they would accept it")
    assert "What the parties say" in page.inner_text("main")
    assert len(asked(federation)) == before
    page.dblclick("text=Ask, and measure")
    page.wait_for_selector("text=Open the evaluation")
    # The command that the page shows takes the same answers, and asks nothing.
    again = rado(*shlex.split(page.inner_text("pre.command"))[1:])["data"]
    assert len(asked(federation)) == before + 2
    page.click("text=Open the evaluation")
    page.wait_for_selector("text=Tables and pictures")
    text = page.inner_text("main")
    for words in ("Average precision", "If mistakes cost 5 for a positive row", "Asking cost epsilon"):
        assert words in text
    check_page(page)
    check_that_it_loads_nothing(saved(page)[1])
    kept = federation.learner.directory / "evaluations" / "mine-1.json"
    assert json.loads(kept.read_text())["data"]["error"] == again["error"]
    rado("learner", "report", str(models / "mine.json"), "--evaluation", str(kept),
         "--output", str(kept.with_suffix(".html")))  # fmt: skip
    open_page(page, opening, "evaluations")
    assert "mine-1" in page.inner_text("table")
    check_page(page)


def test_evaluations_of_all_targets_have_their_tables_and_pictures(federation, learner, own_rows):
    page, opening = learner
    models, kept = (federation.learner.directory / name for name in ("models", "evaluations"))
    for directory in (models, kept):
        directory.mkdir(exist_ok=True)
    made = {name: value_model(name) for name in ("number", "logarithm", "rate", "time")}
    for name, shown in (*made.items(), ("classes", class_model())):
        rows = OwnRows(shown.schema, frame(400) if name == "classes" else own_rows)
        figures = shown.scoring.evaluate(shown, rows, EvaluationOptions(), unseen=True)
        shown.save(models / f"of-{name}.json")
        said = tuple(figures.sentences())
        (kept / f"of-{name}-1.evaluation").write_bytes(EvaluationFile(f"of-{name}", {"epsilon": "1"}, said).to_bytes())
        content = evaluation_content(shown, models / f"of-{name}.json", figures, shown.statement)
        (kept / f"of-{name}-1.json").write_text(json.dumps(content))
        open_page(page, opening, f"evaluations/of-{name}-1")
        text = page.inner_text("main")
        assert said[0] in text
        assert page.locator("table").count() >= 1
        assert page.locator("svg[role=img]").count() == (name != "classes")
        if name in ("number", "logarithm", "rate"):
            assert "Observed beside predicted" in text
        check_page(page)
    assert page.request.get(page.url + "/file").json()["data"]["model_digest"] == shown.digest.hex()
    (kept / "bad-1.evaluation").write_text("{}")
    open_page(page, opening, "evaluations/bad-1")
    assert "evaluate again, or by the command" in page.inner_text("main")
    (kept / "bad-1.evaluation").unlink()
