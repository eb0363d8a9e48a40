"""The learner's console without any node: plans forwards and backwards, and what it says is missing."""

import shlex

import pytest

from dpcore.numbers.rationals import upper
from radofed.node_config import PolicyChoices
from radofed.provision import provision
from tests.end_to_end.test_main_job import SCHEMA
from tests.federation.processes import free_port, rado
from tests.radofed.console.consoles import Sent, console, fill, sent
from tests.radofed.console.looking import check_page, open_page, tabs, visiting
from tests.radofed.console.serving import Caller
from wire.roster import Role

HTML = "<img src=x onerror=alert(1)>"
SIZES = {"party_rows": "3000,2800,3200"}


@pytest.fixture(scope="module")
def member(tmp_path_factory):
    made = provision(
        tmp_path_factory.mktemp("console") / "federation",
        federation="clinics",
        coordinator_address=f"127.0.0.1:{free_port()}",
        parties=["a", "b"],
        policy=PolicyChoices(),
    )
    (found,) = made.of(Role.LEARNER)
    (found.directory / "schema.toml").write_text(SCHEMA)
    return found


@pytest.fixture(scope="module")
def learner(member, browser, tmp_path_factory):
    """A page of the learner's console, and how it was opened."""
    with console(member.config, tmp_path_factory.mktemp("log") / "log") as opening, visiting(browser, opening) as page:
        yield page, opening


@pytest.fixture(scope="module")
def caller(learner):
    """A client that calls the same console without the browser, in its session: a browser costs far more."""
    page, opening = learner
    (cookie,) = page.context.cookies()
    caller = Caller(opening.link)
    caller.cookie = f"{cookie['name']}={cookie['value']}"
    return caller


@pytest.fixture
def plan(caller, member):
    """Sends the form that plans, as a browser does, and returns the page that answers."""

    def planned(what="moments", *, do="plan", **fields: str) -> Sent:
        form = sent(caller, f"plan?what={what}").values
        assert fields.keys() <= form.keys()
        filled = form | {"schema": str(member.directory / "schema.toml"), **SIZES, **fields, "do": do}
        return sent(caller, "plan", filled)

    return planned


@pytest.fixture
def browse_plan(learner, member):
    """Fills the form that plans in a browser, sends it, and returns the page."""
    page, opening = learner

    def planned(what="moments", *, do="plan", **fields: str):
        open_page(page, opening, f"plan?what={what}")
        fill(page, {"schema": str(member.directory / "schema.toml"), **SIZES, **fields})
        page.click(f"button[value={do}]")
        return page

    return planned


def command(member, *arguments: str, code: int = 0) -> dict:
    schema = str(member.directory / "schema.toml")
    return rado("plan", "--schema", schema, "--party-rows", SIZES["party_rows"], *arguments, code=code)["data"]


@pytest.mark.parametrize("path", ["queries", "releases", "models"])
def test_before_the_first_query(learner, path):
    page, opening = learner
    open_page(page, opening, f"{path}")
    assert "yet" in page.inner_text("main")
    check_page(page)


@pytest.mark.parametrize(
    "what", ["dp-feat", "statistic", *(pytest.param(what, marks=pytest.mark.slow) for what in ("moments", "newton"))]
)
def test_the_form_is_the_command_s_and_can_be_used_by_everyone(learner, what):
    page, opening = learner
    open_page(page, opening, f"plan?what={what}")
    check_page(page)
    names = {each.get_attribute("name") for each in page.query_selector_all("input, textarea, select")}
    assert {"schema", "epsilon", "worth", "delta", "party_rows"} <= names
    assert ("statistic" in names) == (what == "statistic")
    assert ("sensitive" in names) == (what == "dp-feat")
    assert ("rounds" in names) == (what == "newton")
    assert ("hold_back" in names) == (what != "statistic")
    assert ("adaptive" in names) == (what == "statistic")
    assert "cohort_min" in names
    # The keyboard reaches everything, the buttons last.
    assert tabs(page)[-1] == "do"
    # Every field has a label and a hint.
    for field in page.query_selector_all("main form[method=post] input:not([type=hidden]), textarea"):
        name = field.get_attribute("id")
        assert page.text_content(f"label[for={name}]").strip()
        assert page.text_content(f"#{name}-hint").strip()


@pytest.mark.parametrize(
    ("what", "fields", "arguments"),
    [
        ("moments", {"epsilon": "1"}, ("--design", "moments", "--epsilon", "1")),
        pytest.param("moments", {"epsilon": "1", "colluders": "0", "cohort_min": "3"},
                     ("--design", "moments", "--epsilon", "1", "--honest", "3"), marks=pytest.mark.slow),
        ("dp-feat", {"rados": "9", "sensitive": "smoker"},
         ("--design", "dp-feat", "--rados", "9", "--sensitive", "smoker")),
        pytest.param("linear-regression", {"epsilon": "1"}, ("--estimator", "linear-regression", "--epsilon", "1"),
                     marks=pytest.mark.slow),
        ("statistic", {"epsilon": "1/2", "statistic": 'x["age"] >= 65\ny == 1'},
         ("--statistic", 'x["age"] >= 65', "--statistic", "y == 1", "--epsilon", "1/2")),
    ],
)  # fmt: skip
def test_a_plan_is_that_of_the_command(plan, member, what, fields, arguments):
    page = plan(what, **fields)
    found = command(member, *arguments)
    assert found["feasible"]
    text = page.text("section")
    assert f"{found['epsilon']:.2f}"[:-1] in text
    for sentence in found["assumptions"]:
        assert sentence in text
    assert page.count("svg", inside="section") == (what != "dp-feat")


def test_statistics_that_answers_choose_are_planned_about_pieces_of_the_rows(plan, member):
    page = plan("statistic", epsilon="1", statistic="y == 1", adaptive="40")
    text = page.text("section")
    assert "--adaptive=40" in page.text("pre")
    assert "because each question is about rows of its own" in text
    # The command takes the way with the smallest tolerance, of which a release alone would not say that it holds.
    found = command(member, "--statistic", "y == 1", "--epsilon", "1", "--adaptive", "40")
    assert f"within {upper(found['tolerance'], 5)} of the truth" not in text


@pytest.mark.parametrize(
    ("what", "fields"),
    [
        ("describe", {"columns": "age\nward", "by": "y == 1"}),
        pytest.param("crosstab", {"columns": "ward\nage", "edges": "age=40000,60000"}, marks=pytest.mark.more),
        pytest.param("compare", {"columns": "age", "by": "ward"}, marks=pytest.mark.more),
        pytest.param("correlate", {"columns": "age\ndose"}, marks=pytest.mark.more),
    ],
)
def test_an_inquiry_is_planned_without_any_node(browse_plan, member, what, fields):
    page = browse_plan(what, epsilon="1", **fields)
    text = page.inner_text("section")
    assert "Expected intervals" in text
    assert "9000 rows whose values are spread evenly" in text
    (command,) = map(shlex.split, page.locator("pre.command").all_inner_texts())
    columns = fields["columns"].splitlines()
    assert command[: 3 + len(columns)] == ["rado", "learner", what, *columns]
    assert "--epsilon=1" in command
    check_page(page)


OF_SURVIVAL = """
schema_version = 5
name = "patients"
texts = ["nfc", "trim"]
[label]
type = "event"
column = "months"
event = "died"
happened = ["yes"]
borders = [6, 12, 24]
[[features]]
name = "ward"
type = "category"
values = ["north", "south"]
"""


def test_survival_and_levels_are_planned_by_a_form_of_their_own(plan, member):
    schema = member.directory / "survival.toml"
    schema.write_text(OF_SURVIVAL)
    page = plan("survival", epsilon="1", by="ward", schema=str(schema))
    assert "Expected intervals" in page.text("section")
    command = shlex.split(page.text("pre"))
    assert command[:3] == ["rado", "learner", "survival"]
    assert "--by=ward" in command
    page = plan("levels", epsilon="1", columns="ward", at_least="50", extend="a\nb")
    assert "A level is listed if its count with noise is above 50" in page.text("section")
    command = shlex.split(page.text("pre"))
    assert command[:4] == ["rado", "learner", "levels", "ward"]
    assert {"--at-least=50", "--extend=a", "--extend=b"} <= set(command)


@pytest.mark.more
@pytest.mark.parametrize("what", ["survival", "levels"])
def test_the_forms_of_survival_and_levels_can_be_used_by_everyone(learner, what):
    page, opening = learner
    open_page(page, opening, f"plan?what={what}")
    check_page(page)
    names = {each.get_attribute("name") for each in page.query_selector_all("main form[method=post] [name]")}
    assert {"schema", "epsilon", "party_rows"} <= names
    assert not names & {"output", "release", "plan"}


def test_an_inquiry_that_cannot_be_measured_is_refused_where_it_is_planned(plan):
    for fields, words in (
        ({"columns": "agee", "epsilon": "1"}, "did you mean 'age'"),
        ({"columns": "ward", "epsilon": "0.001"}, "nothing was asked"),
        ({"columns": HTML, "epsilon": "1"}, HTML),
        ({"columns": "age"}, "give the --epsilon"),
    ):
        assert words in plan("describe", **fields).text(role="alert")
    assert "time to an event" in plan("survival", epsilon="1").text(role="alert")


@pytest.mark.parametrize(
    ("what", "holds_back"), [("naive-bayes", True), pytest.param("threshold", False, marks=pytest.mark.slow)]
)
def test_the_commands_that_train_and_measure_are_filled_in(browse_plan, member, what, holds_back):
    more = {} if holds_back else {"option": "feature=age\nrequire_rows=false"}
    page = browse_plan(what, epsilon="1/2", delta="1e-5", purpose="Study 17", **more)
    train, measure = map(shlex.split, page.locator("pre.command").all_inner_texts())
    config = ["--config", str(member.config)]
    assert train[:7] == ["rado", "learner", "train", "--estimator", what, *config]
    options = ["--epsilon=1/2", "--delta=1e-5", "--purpose=Study 17"]
    assert set(options) <= set(train)
    assert measure == ["rado", "learner", "evaluate", train[-1], *config, *options]
    assert ("--hold-back 0.2" in page.inner_text("section")) == holds_back
    check_page(page)


def test_a_plan_backwards_fills_the_epsilon_in(browse_plan, member):
    page = browse_plan("moments", worth="6000")
    found = command(member, "--design", "moments", "--worth", "6000")
    assert page.input_value("#epsilon") == found["needed_epsilon"]
    assert page.input_value("#worth") == ""
    check_page(page)
    said = page.inner_text("section")
    assert f"needs an epsilon of more than {found['needed_epsilon_is_at_least']} in total" in said
    assert f"This plan is for {found['needed_epsilon']}" in said
    # The form can be sent again as it is.
    page.click("button[value=plan]")
    assert f"{found['epsilon_if_others_collude']:.3f}"[:-1] in page.inner_text("section")


def test_noise_that_exceeds_the_signal_is_an_alarm(plan, member):
    page = plan("moments", epsilon="0.001")
    assert command(member, "--design", "moments", "--epsilon", "0.001")["warning"] in page.text(role="alert")


@pytest.mark.parametrize(
    ("what", "fields", "says"),
    [
        pytest.param(
            "moments",
            {"epsilon": "abc"},
            "--epsilon 'abc' is not a number; write, say, 1e-6 or 1/2",
            marks=pytest.mark.slow,
        ),
        ("moments", {"epsilon": HTML}, f"--epsilon '{HTML}' is not a number"),
        pytest.param("moments", {"epsilon": ""}, "moments adds noise: give the epsilon", marks=pytest.mark.slow),
        pytest.param(
            "moments", {"epsilon": "1", "worth": "9"}, "leave --epsilon and --share-sd out", marks=pytest.mark.slow
        ),
        ("moments", {"epsilon": "1", "cohort_min": "few"}, "Invalid value for '--cohort-min'"),
        pytest.param("moments", {"epsilon": "1", "schema": "/nowhere.toml"}, "/nowhere.toml", marks=pytest.mark.slow),
        pytest.param(
            "moments", {"epsilon": "1", "schema": ""}, "give the path of the schema's file", marks=pytest.mark.slow
        ),
        ("moments", {"epsilon": "1", "party_rows": "9,x"}, "write each party's rows, such as 1200,900,400"),
        pytest.param(
            "moments",
            {"epsilon": "1", "colluders": "9"},
            "a cohort of at least 11 parties cannot form",
            marks=pytest.mark.slow,
        ),
        ("dp-feat", {"sensitive": HTML, "rados": "9"}, HTML),
        pytest.param(
            "newton", {"epsilon": "1", "option": "nothing=1"}, "newton has no option 'nothing'", marks=pytest.mark.slow
        ),
        pytest.param("statistic", {"epsilon": "1"}, "give at least one predicate", marks=pytest.mark.slow),
        ("statistic", {"epsilon": "1", "statistic": f'x["{HTML}"] >= 1'}, HTML),
        ("statistic", {"epsilon": "1", "statistic": "y == 1", "adaptive": "1"}, "adaptive is 1; it must be at least 2"),
        ("statistic", {"tolerance": "0.00001", "statistic": "y == 1"}, "not possible with any epsilon up to 10"),
    ],
)
def test_wrong_input_gives_the_command_s_sentence_and_keeps_the_fields(plan, what, fields, says):
    page = plan(what, **fields)
    assert says in page.text(role="alert")
    assert fields.items() <= page.values.items()
    assert page.count("img") == 0


def test_what_is_not_possible_says_what_would_work(plan, member):
    asked = {"rados": "900", "epsilon": "0.01", "sensitive": "smoker"}
    page = plan("dp-feat", **asked)
    given = [part for name, text in asked.items() for part in (f"--{name}", text)]
    found = command(member, "--design", "dp-feat", *given, code=1)
    assert "not possible" in page.text(role="alert")
    assert found["suggestion"] in page.text("section")


def test_what_is_missing_to_ask_is_said_and_nothing_is_asked(plan, browse_plan, member):
    for what, more in (("newton", {}), ("statistic", {"statistic": "y == 1"}), ("describe", {"columns": "age"})):
        assert "rado learner keygen" in plan(what, do="ask", epsilon="1", **more).text(role="alert")
    page = browse_plan("moments", epsilon="1", do="ask")
    assert "rado learner keygen" in page.inner_text("[role=alert]")
    check_page(page)
    assert page.input_value("#epsilon") == "1"
    rado("learner", "keygen", "--config", str(member.config), "--bits", "2048")
    page = browse_plan("moments", epsilon="1", do="ask")
    assert "no connection to 127.0.0.1" in page.inner_text("[role=alert]")
    assert rado("learner", "history", "--config", str(member.config))["data"]["count"] == 0


@pytest.mark.parametrize(
    ("path", "says"),
    [
        ("plan?what=nothing", "choose one of the list"),
        ("asking/xyz", "plan again"),
        ("training/xyz", "plan again"),
        ("trainings/xyz", "open it from the page of models"),
        ("queries/xyz", "open it from the page of queries"),
        ("queries/" + "0" * 64, "Not done"),
        ("releases/xyz", "open it from the page of releases"),
        ("models/xyz", "open it from the page of models"),
    ],
)
def test_a_page_of_nothing_is_a_sentence(caller, path, says):
    assert says in sent(caller, path).text("body")
