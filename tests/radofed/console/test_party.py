"""A party's console beside a party whose node does not run: its pages, decisions, and what it does with bad input."""

import csv
import io
import json
import time
from contextlib import closing, contextmanager
from datetime import date
from functools import partial

import pytest

from dpcore.errors import RadofedError
from parties.approval.decisions import Decisions, Pauses, Person
from parties.config import PartyConfig
from parties.history.database import FILE
from parties.history.history import History, What
from parties.history.reading import open_history
from parties.policy import Policy
from radobase.local_status import StatusServer
from radofed.console import party
from radofed.console.app import CSRF_FIELD
from radofed.console.party import party_views
from tests.federation.party import World
from tests.federation.processes import rado
from tests.parties.report.report_world import BACKWARDS, CONTROL, HTML, ada_at, statistic, wards, without_noise
from tests.radofed.console.looking import check_page, open_page, press, tabs, visiting
from tests.radofed.console.serving import Caller, serving
from wire.features import Feature
from wire.study import Study

PAGES = ("status", "pending", "approvals", "history", "studies", "budget", "members", "checks", "logs")


# No element, no sum, and nothing that makes a page wider, as long as it may be.
STUDY = Study(
    purpose=f"{HTML} {{{{ 7 * 7 }}}} ".ljust(200, "W"),
    protocol_number=f"<b>{'9' * 56}",
    organisation="O" * 200,
    person_in_charge='"><img src=x onerror=alert(1)>',
    begins=date(2026, 1, 1),
    ends=date(2099, 12, 31),
)
OF_STUDY = {"study": STUDY, "features": (Feature.BASE.value, Feature.STUDY.value)}


class Desk:
    """A party that asks people about everything, with queries in its history, and its console in a thread."""

    def __init__(self, secret_key, directory, **approval) -> None:
        self.world = World(secret_key)
        directory.mkdir(exist_ok=True)
        self.ada = ada_at(self.world, directory, approval={"everything": True})
        self.config, self.policy = directory / "party.toml", directory / "policy.toml"
        text = self.config.read_text()
        self.log = directory / "ada.log"
        self.config.write_text(text.replace("[tls]", 'log_file = "ada.log"\n[tls]'))
        self.set_approval(**approval)

    def set_approval(self, **approval) -> None:
        text = self.policy.read_text().partition("[approval]")[0]
        rules = "\n".join(f"{name} = {json.dumps(value)}" for name, value in ({"everything": True} | approval).items())
        self.policy.write_text(f"{text}[approval]\n{rules}\n")

    def asked(self, *predicates, **changes) -> str:
        """A statistic that waits for a person; its id."""
        envelope = self.world.ask(statistic(self.world, *(predicates or wards()), **changes))
        self.ada.go(envelope)
        return envelope.payload_hash.hex()

    def refused(self) -> str:
        """A query that the policy refuses."""
        envelope = self.world.ask(without_noise(self.world))
        self.ada.go(envelope)
        return envelope.payload_hash.hex()

    def decisions(self, query_id: str) -> list[str]:
        return [str(each) for each in Decisions(self.ada.history.database).of(bytes.fromhex(query_id))]

    def serving(self):
        return serving(party_views(self.config))

    @contextmanager
    def called(self):
        """A client without a browser, at a console of its own, and the token of that console's forms."""
        with self.serving() as access:
            caller = Caller(access.link)
            assert caller.enter() == 303
            yield caller, access.csrf


@pytest.fixture(scope="module")
def desk(secret_key, tmp_path_factory):
    """Tests may add queries, and change nothing else."""
    desk = Desk(secret_key, tmp_path_factory.mktemp("desk"))
    desk.refused()
    desk.log.write_text(
        "".join(
            json.dumps({"time": f"2026-11-23T04:00:0{n}+00:00", "level": level, "node": "party.ada", "event": HTML})
            + "\n"
            for n, level in enumerate(("info", "warning", "error"))
        )
    )
    return desk


@pytest.fixture
def own_desk(secret_key, tmp_path):
    """Like `desk`; the test may change anything."""
    return Desk(secret_key, tmp_path / "desk")


@pytest.fixture(scope="module")
def waiting(desk):
    return desk.asked(**OF_STUDY)


@pytest.fixture(scope="module")
def access(desk):
    with desk.serving() as access:
        yield access


@pytest.fixture(scope="module")
def page(browser, access):
    with visiting(browser, access) as page:
        yield page


@pytest.fixture
def caller(desk):
    with desk.called() as (caller, _):
        yield caller


@pytest.fixture
def decide(desk):
    with desk.called() as (caller, csrf):
        yield partial(send_decision, desk, caller, csrf)


def send_decision(desk, caller, csrf: str, query_id: str, **changes) -> tuple[int, str]:
    """Send the form of a query's page as that is now, with these changes; status and text of the answer."""
    form = {"policy": Policy.load(desk.policy).digest, "decision": "approve", "name": "Ann", "reason": ""} | changes
    status, _, text = caller.ask(f"queries/{query_id}", method="POST", form={CSRF_FIELD: csrf} | form)
    return status, text


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_accessible_small_and_within_its_width(page, access, waiting, path):
    assert waiting
    open_page(page, access, path)
    check_page(page)
    assert page.locator("h1").count() == 1
    assert page.locator("nav a[aria-current=page]").count() == 1
    # Elements that a peer wrote are none.
    assert HTML not in page.content()


@pytest.mark.parametrize("path", ["pending", "history", "queries/{query}"])
def test_what_a_learner_wrote_is_shown_as_text(page, access, waiting, path):
    open_page(page, access, path.format(query=waiting))
    shown = page.inner_text("main")
    assert "<script>alert" in shown
    assert "\\u202e" in shown
    assert "bell" in shown
    assert not any(written in shown for written in (BACKWARDS, CONTROL, "\x07", "\x1b"))
    assert page.locator("main script").count() == 0


@pytest.mark.parametrize("path", ["pending", "studies", "queries/{query}"])
def test_what_a_learner_stated_of_its_study_is_shown_as_text(page, access, waiting, path):
    open_page(page, access, path.format(query=waiting))
    shown = page.inner_text("main")
    assert STUDY.protocol_number in shown
    assert STUDY.purpose in " ".join(shown.split())
    if path != "pending":
        assert (STUDY.person_in_charge in shown, STUDY.days in shown, STUDY.digest.hex() in shown) == (True,) * 3
    assert page.locator("main script, main img, main b").count() == 0


def test_a_query_s_page_is_accessible(page, access, waiting):
    open_page(page, access, f"queries/{waiting}")
    check_page(page)


def test_the_tab_key_reaches_the_decision_in_the_order_of_the_page(page, access, waiting):
    open_page(page, access, f"queries/{waiting}")
    found = tabs(page)
    assert found[0] == "Skip to the content"
    assert found[1:10] == [
        "Status",
        "Pending",
        "Approvals",
        "History",
        "Studies",
        "Budget",
        "Members",
        "Checks",
        "Logs",
    ]
    # Buttons have the name "decision".
    assert found[-4:] == ["name", "reason", "decision", "decision"]
    # The skip link leads past the navigation.
    open_page(page, access, f"queries/{waiting}")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.closest('main') !== null")


def test_the_enter_key_in_a_field_decides_nothing(desk, page, access, waiting):
    open_page(page, access, f"queries/{waiting}")
    for field in ("#name", "#reason"):
        page.fill(field, "Ann")
        page.press(field, "Enter")
    page.wait_for_timeout(200)
    assert desk.decisions(waiting) == []
    # The button that takes the key is of no use otherwise.
    assert page.locator("form button:visible").count() == 2


@pytest.mark.parametrize("scripts", [True, False], ids=["with scripts", "without scripts"])
def test_a_decision_takes_three_clicks(desk, browser, scripts):
    query_id = desk.asked()
    with desk.serving() as access, visiting(browser, access, java_script_enabled=scripts) as page:
        page.get_by_role("link", name="Pending").click()
        page.get_by_role("link", name=query_id[:12]).click()
        press(page, "Approve")
        assert "Approved: 1 of 1 approvals" in page.inner_text("main")
        assert page.get_by_role("button").count() == 0
        assert len(desk.decisions(query_id)) == 1
        page.get_by_role("link", name="Pending").click()
        assert query_id[:12] not in page.inner_text("main")


def test_two_people_decide_at_once(desk, browser):
    query_id = desk.asked()
    with (
        desk.serving() as first,
        desk.serving() as second,
        visiting(browser, first) as ann,
        visiting(browser, second) as bob,
    ):
        for page, access, name in ((ann, first, "Ann"), (bob, second, "Bob")):
            open_page(page, access, f"queries/{query_id}")
            page.fill("#name", name)
        press(ann, "Approve")
        bob.fill("#reason", "too late")
        press(bob, "Refuse")
        alert = bob.get_by_role("alert").inner_text()
        assert "Nothing was decided: this query is already approved, by Ann" in alert
        # The page shows the query as it is now.
        assert bob.get_by_role("button").count() == 0
    (decision,) = desk.decisions(query_id)
    assert decision.startswith("approved by Ann")


def test_a_second_approval_of_the_same_user_does_not_count(own_desk):
    """Whatever the name: a person is a user of the operating system."""
    own_desk.set_approval(approvers=2, names=True)
    query_id = own_desk.asked()
    with own_desk.called() as (caller, csrf):
        decide = partial(send_decision, own_desk, caller, csrf)
        assert (
            'name="name" maxlength="500" autocomplete="name" value="" required' in caller.ask(f"queries/{query_id}")[2]
        )
        _, text = decide(query_id, name="")
        assert "the policy asks for names" in text
        assert decide(query_id)[0] == 303
        assert "1 of 2 approvals so far" in caller.ask(f"queries/{query_id}")[2]
        _, text = decide(query_id, name="Bob")
        assert "another name is no other person: a second approval needs another user of this machine" in text
        assert "1 of 2 approvals so far" in caller.ask(f"queries/{query_id}")[2]
    assert len(own_desk.decisions(query_id)) == 1


def test_nothing_is_decided_if_the_policy_changed_meanwhile(own_desk, browser):
    query_id = own_desk.asked()
    with own_desk.serving() as access, visiting(browser, access) as page:
        open_page(page, access, f"queries/{query_id}")
        page.fill("#name", "Ann")
        own_desk.set_approval(approvers=2)
        press(page, "Approve")
        assert "the policy changed since this query was shown" in page.get_by_role("alert").inner_text()
        assert own_desk.decisions(query_id) == []
        # Looked at again, with what was typed kept.
        assert page.input_value("#name") == "Ann"
        press(page, "Approve")
        assert "1 of 2 approvals so far" in page.inner_text("main")


def test_a_query_that_ended_is_not_decided_on(desk, decide):
    query_id = desk.asked()
    desk.ada.history.happened(bytes.fromhex(query_id), 1, What.ENDED, time.time(), reason="it was cancelled")
    status, text = decide(query_id)
    assert (status, desk.decisions(query_id)) == (200, [])
    assert "Nothing was decided: <bdi>this query does not wait for a decision" in text
    assert "Not answered: it was cancelled" in text
    assert "Approve" not in text


@pytest.mark.variants(2)
@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"decision": "maybe"}, "choose to approve or to refuse"),
        ({"decision": ""}, "choose to approve or to refuse"),
        ({"policy": ""}, "the policy changed"),
        ({"name": "A\x07"}, "printable characters"),
        ({"name": "A" * 501}, "at most 500"),
    ],
)
def test_a_form_that_says_too_little_decides_nothing(desk, decide, waiting, changes, sentence):
    status, text = decide(waiting, **changes)
    assert (status, desk.decisions(waiting)) == (200, [])
    assert sentence in text


def test_a_decision_binds_to_the_whole_id(desk, decide, waiting):
    status, text = decide(waiting[:12])
    assert (status, desk.decisions(waiting)) == (400, [])
    assert "on the whole id" in text
    assert decide("0" * 64)[0] == 400


def test_a_query_that_cannot_be_explained_has_no_form(own_desk):
    query_id = own_desk.asked()
    with own_desk.called() as (caller, _):
        (own_desk.policy.parent / "roster.signed").unlink()
        text = caller.ask(f"queries/{query_id}")[2]
        assert "it cannot be decided here" in text
        assert "has not seen a roster yet" in text
        assert "<form" not in text
        assert "This party has not seen a roster yet" in caller.ask("members")[2]
    assert rado("party", "members", "--config", str(own_desk.config))["data"]["roster_version"] is None


def test_many_predicates_are_on_several_pages(desk, caller, waiting, monkeypatch):
    monkeypatch.setattr(party, "PREDICATES_AT_ONCE", 2)
    path = f"queries/{waiting}"
    first, second = caller.ask(path)[2], caller.ask(f"{path}?from=3")[2]
    assert "Predicates 1 to 2 of 3" in first
    assert f"{path}?from=3" in first
    assert "Predicates 3 to 3 of 3" in second
    assert f"{path}?from=1" in second
    assert "Predicates 3 to 3 of 3" in caller.ask(f"{path}?from=999")[2]
    assert caller.ask(f"{path}?from=-1")[0] == 400


def test_history_has_pages_filters_and_a_file(desk, caller, waiting, monkeypatch):
    monkeypatch.setattr(party, "AT_ONCE", 2)
    rows = list(csv.DictReader(io.StringIO(caller.ask("history.csv")[2])))
    assert waiting in {row["query_id"] for row in rows}
    shown, skip = [], 0
    while skip < len(rows):
        text = caller.ask(f"history?skip={skip}")[2]
        assert f"{skip + 1} to {min(skip + 2, len(rows))} of {len(rows)}" in text
        assert ("Older" in text, "Newer" in text) == (skip + 2 < len(rows), skip > 0)
        shown += [row["query_id"] for row in rows if f"/queries/{row['query_id']}" in text]
        skip += 2
    assert shown == [row["query_id"] for row in rows]
    assert "No query." in caller.ask("history?learner=none")[2]
    assert "No query on this page" in caller.ask("history?skip=999")[2]
    assert len(caller.ask("history.csv?learner=none")[2].splitlines()) == 1
    assert len(caller.ask("history.csv?until=2020-01-01")[2].splitlines()) == 1
    assert len(caller.ask("history.csv?since=2999-01-01")[2].splitlines()) == 1
    assert "No query." in caller.ask("history?until=2020-01-01")[2]
    assert "No query." in caller.ask("history?since=2999-01-01")[2]
    # The address of the next page and of the file keep the filters.
    filtered = caller.ask("history?learner=lea&since=2020-01-01&limit=1")[2]
    assert "history?learner=lea&amp;since=2020-01-01&amp;limit=1&amp;skip=1" in filtered
    assert "history.csv?learner=lea&amp;since=2020-01-01" in filtered


@pytest.mark.parametrize("query", ["skip=-1", "skip=x", "limit=0", "limit=101", "since=x", "until=9999-99-99"])
def test_a_filter_that_is_none_is_a_page_with_its_sentence(caller, query):
    status, _, text = caller.ask(f"history?{query}")
    assert status == 400
    assert "Not done" in text


def test_a_query_that_the_policy_refused_says_which_rule(desk, caller):
    query_id = desk.refused()
    text = caller.ask(f"queries/{query_id}")[2]
    assert "POLICY_DESIGN" in text
    assert "<form" not in text


def test_the_log_is_filtered_by_level(caller):
    texts = {level: caller.ask(f"logs?level={level}")[2] for level in ("", "info", "warning", "error", "other")}
    counts = {level: text.count("&lt;script&gt;") for level, text in texts.items()}
    assert counts == {"": 3, "info": 3, "warning": 2, "error": 1, "other": 3}
    newest = texts["info"].index("<strong>error</strong>")
    assert newest < texts["info"].index("<strong>warning</strong>")


def test_the_command_prints_what_the_page_shows(desk):
    found = rado("party", "logs", "--config", str(desk.config), "--level", "warning")["data"]["lines"]
    assert [(line["level"], line["event"]) for line in found] == [("error", HTML), ("warning", HTML)]
    failed = rado("party", "logs", "--config", str(desk.config), "--level", "loud", code=4)
    assert "give one of debug" in failed["error"]["message"]


def test_without_a_log_file_the_page_says_where_to_look(own_desk):
    own_desk.config.write_text(own_desk.config.read_text().replace('log_file = "ada.log"\n', ""))
    with own_desk.called() as (caller, _):
        assert "logs to standard error" in caller.ask("logs")[2]
    failed = rado("party", "logs", "--config", str(own_desk.config), code=4)
    assert "logs to standard error" in failed["error"]["message"]


def test_a_party_whose_node_does_not_run_is_paused_and_resumed(own_desk, browser):
    with own_desk.serving() as access, visiting(browser, access) as page:
        assert "The node does not run" in page.inner_text("main")
        page.fill("#name", "Ann")
        page.fill("#reason", HTML)
        press(page, "Pause")
        assert "Paused by Ann" in page.inner_text("main")
        assert HTML in page.inner_text("main")
        check_page(page)
        press(page, "Resume")
        assert "Paused" not in page.inner_text("main")


@pytest.mark.more
def test_the_start_page_says_how_many_queries_came_during_a_pause(own_desk):
    config = PartyConfig.load(own_desk.config)
    with closing(open_history(config)) as database:
        Pauses(database).pause(Person.present("Ann"), "", 1000.0)
        for number in range(2):
            came = History(database)
            came.happened(bytes([number]) * 32, 1, What.UNANSWERED, 1001.0, reason="this party was paused by Ann")
    with own_desk.called() as (caller, _):
        assert "2 queries came meanwhile" in caller.ask("status/now?paused=yes")[2]


@pytest.mark.more
def test_the_start_page_says_when_another_person_paused(own_desk):
    with own_desk.called() as (caller, _):
        assert "Load it again" not in caller.ask("status/now?paused=no")[2]
        assert "Load it again" in caller.ask("status/now?paused=yes")[2]


@pytest.mark.more
def test_a_node_that_cannot_read_its_state_is_not_said_to_be_stopped(own_desk):
    def read():
        raise RadofedError("damaged")

    with own_desk.called() as (caller, _), StatusServer(PartyConfig.load(own_desk.config).state_directory, read):
        text = caller.ask("status")[2]
    assert "STATE_UNREADABLE: the node could not read its own state; see its log" in text
    assert "does not run" not in text
    assert "Ready." not in text


@pytest.mark.more
def test_a_damaged_history_is_a_page_with_its_sentence(own_desk):
    own_desk.asked()
    own_desk.ada.history.database.close()
    file = own_desk.config.parent / FILE
    file.write_bytes(b"no database" * 1000)
    with own_desk.called() as (caller, _):
        for path in ("pending", "history", "history.csv", "budget", "report", f"queries/{'0' * 64}"):
            status, _, text = caller.ask(path)
            assert status == 400, path
            assert "not this party&#39;s history" in text
        # The start page shows what it can.
        status, _, text = caller.ask("status")
        assert status == 200
        assert "not this party&#39;s history" in text
        assert "<form" not in text


def test_checks_run_on_a_button(desk, page, access):
    open_page(page, access, "checks")
    assert page.get_by_role("table").count() == 0
    press(page, "Check now")
    assert "checks failed or could not run" in page.get_by_role("status").inner_text()
    assert "signing-key" in page.inner_text("table")
    check_page(page)
