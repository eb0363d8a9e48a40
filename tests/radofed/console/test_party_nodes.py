"""A party's console beside its running node: four processes, a learner that asks, and an officer with a browser."""

import re
from contextlib import suppress

import pytest

from dpcore.numbers.rationals import lower_digits, upper_digits
from learner.config import LearnerConfig
from learner.session import QueryEndedError, Session
from radofed.console.party import party_views
from tests.end_to_end.test_approval import ROWS, ask, asking, at, in_history, ledger, waiting
from tests.federation.processes import rado
from tests.html_page import check_that_it_loads_nothing
from tests.radofed.console.looking import check_page, open_page, press, saved, visiting
from tests.radofed.console.serving import serving
from tests.waiting import HANG_S, wait_until


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    root = tmp_path_factory.mktemp("console-party")
    rules = "everything = true\nnames = true\n"
    with asking(root, rules=rules, settings=f'log_file = "{root / "a.log"}"\n') as federation:
        yield federation


@pytest.fixture(scope="module")
def learner(federation):
    with Session(LearnerConfig.load(federation.learner.config), give_up_after_s=HANG_S) as session:
        yield session


@pytest.fixture(scope="module")
def access(federation):
    with serving(party_views(federation.member("a").config)) as access:
        yield access


@pytest.fixture(scope="module")
def page(browser, access):
    with visiting(browser, access) as page:
        yield page


def main(page) -> str:
    return page.inner_text("main")


@pytest.fixture(scope="module")
def approved(federation, learner, page, access):
    """A query that an officer found on the start page, and approved with three clicks; its id."""
    open_page(page, access, "status")
    assert "No query waits for a decision" in main(page)
    query_id = ask(learner).hex()
    # The page notices by itself, and does not take the focus away from what a person is about to press.
    link = page.get_by_role("link", name="1 query waits for a decision")
    link.focus()
    as_of = page.get_by_text("As of").inner_text()
    page.wait_for_function("before => !document.body.innerText.includes(before)", arg=as_of)
    assert page.evaluate("document.activeElement.id") == "to-pending"
    link.click()
    page.get_by_role("link", name=query_id[:12]).click()
    check_page(page)
    explained = rado("party", "explain", query_id, *at(federation, "a"))["data"]
    said = main(page)
    assert f"{explained['numbers']:,} numbers, each a sum over its 300 rows" in said
    assert f"{explained['upload_bytes']:,} bytes" in said
    assert f"about {explained['more_like_it']:,} attempts more like it" in said
    assert "b, c, d" in said
    assert query_id in said
    before = ledger(federation)
    page.fill("#name", "Ann Lee")
    page.fill("#reason", "as agreed")
    press(page, "Approve")
    assert "Approved: 1 of 1 approvals" in main(page)
    assert before["events_charged"] == 0
    learner.watch(bytes.fromhex(query_id), timeout_s=HANG_S)
    wait_until(
        lambda: in_history(federation, bytes.fromhex(query_id))["attempts"][0]["outcome"] == "charged and sent",
        what="the end",
    )
    return query_id


def test_what_became_of_an_approved_query(federation, page, access, approved):
    open_page(page, access, f"queries/{approved}")
    found = in_history(federation, bytes.fromhex(approved))
    said = main(page)
    assert "Accepted, approved by Ann Lee (" in said
    assert "as agreed" in said
    assert "charged and sent" in said
    assert f"{found['bytes_out']:,}" in said
    assert all(f"{name} ({rows} rows)" in said for name, rows in ROWS.items())
    assert page.get_by_role("button").count() == 0
    check_page(page)
    open_page(page, access, "history")
    page.fill("#learner", "learner")
    press(page, "Filter")
    row = page.get_by_role("row").filter(has_text=approved[:12]).inner_text()
    assert "accepted, approved by Ann Lee" in row
    with page.expect_download() as download:
        page.get_by_role("link", name="CSV").click()
    assert approved in download.value.path().read_text()


def test_the_budget_is_that_of_the_ledger(federation, page, access, approved):
    assert approved
    open_page(page, access, "budget")
    found = ledger(federation)
    record = found["scopes"][0]
    cells = page.get_by_role("row").filter(has_text="whole records").inner_text()
    assert upper_digits(record["spent_epsilon"], 4) in cells
    assert lower_digits(record["remaining_epsilon"], 4) in cells
    assert f"Room for about {found['more_like_the_last']['lifetime']} more" in main(page)
    plot = page.locator("svg").first
    assert f"{upper_digits(record['spent_epsilon'], 4)} on" in plot.locator("desc").inner_html()
    check_page(page)


def test_the_report_of_a_period_is_stored_by_the_browser(page, access, approved):
    open_page(page, access, "budget")
    assert re.fullmatch(r"\d{4}-\d{2}-\d{2}", page.input_value("#report-since"))
    press(page, "Make the report")
    assert approved[:12] in main(page)
    check_page(page)
    name, text = saved(page)
    assert name.startswith("report-a-")
    check_that_it_loads_nothing(text)
    assert "Privacy report of" in text
    assert approved[:12] in text


@pytest.mark.slow
def test_a_refusal_reaches_the_learner(federation, learner, page, access):
    query_id = ask(learner)
    waiting(federation, query_id)
    open_page(page, access, f"queries/{query_id.hex()}")
    page.fill("#name", "Ann Lee")
    press(page, "Refuse")
    assert "refused by Ann Lee" in main(page)
    with pytest.raises(QueryEndedError):
        learner.watch(query_id, timeout_s=HANG_S)
    assert {party.party: party.code for party in learner.status(query_id).parties}["a"] == "PERSON_REFUSED"


def test_a_decision_on_a_query_that_was_cancelled(federation, learner, page, access):
    query_id = ask(learner)
    waiting(federation, query_id)
    open_page(page, access, f"queries/{query_id.hex()}")
    with suppress(QueryEndedError):
        learner.cancel(query_id)
    wait_until(lambda: not rado("party", "pending", *at(federation, "a"))["data"]["pending"], what="the end")
    page.fill("#name", "Ann Lee")
    press(page, "Approve")
    assert "Nothing was decided: this query does not wait" in page.get_by_role("alert").inner_text()
    assert in_history(federation, query_id)["people"] == []


def test_a_running_node_is_paused_and_resumed(federation, page, access):
    open_page(page, access, "status")
    assert "Running since" in main(page)
    page.fill("#name", "Ann Lee")
    page.fill("#reason", "audit")
    press(page, "Pause")
    assert "Paused by Ann Lee" in main(page)
    assert "PAUSED: a person has paused the party; `rado party resume` ends it" in main(page)
    found = rado("party", "status", *at(federation, "a"))["data"]["not_ready"]
    assert [line.partition(":")[0] for line in page.locator(".warning li").all_inner_texts()] == found == ["PAUSED"]
    check_page(page)
    assert rado("party", "status", *at(federation, "a"))["data"]["paused"] is not None
    press(page, "Resume")
    assert rado("party", "status", *at(federation, "a"))["data"]["paused"] is None


def test_members_with_the_fingerprints_of_the_check(federation, page, access):
    checked = rado("party", "check", *at(federation, "b"))["data"]["findings"]
    own = next(each["detail"] for each in checked if each["name"] == "signing-key")
    own = own.removeprefix("fingerprint ").partition(",")[0]
    open_page(page, access, "members")
    rows = page.get_by_role("row").filter(has_text=own).inner_text()
    assert "accepted by fingerprint" in rows
    assert "280" in rows
    found = rado("party", "members", *at(federation, "a"))["data"]["members"]
    assert page.locator("tbody th").all_inner_texts() == [each["name"] for each in found]
    assert all(each[what] in main(page) for each in found for what in ("trust", "fingerprint", "digits"))


def test_the_checks_are_those_of_the_command(federation, page, access):
    found = rado("party", "check", *at(federation, "a"))["data"]
    open_page(page, access, "checks")
    press(page, "Check now")
    assert "This party can take part." in page.get_by_role("status").inner_text()
    names = page.locator("tbody th").all_inner_texts()
    assert names == [each["name"] for each in found["findings"]]


def test_the_log_is_that_of_the_node(federation, page, access, approved):
    open_page(page, access, "logs")
    assert "started" in main(page)
    assert approved[:12] in main(page)
    lines = rado("party", "logs", *at(federation, "a"), "--limit", "1000")["data"]["lines"]
    assert lines[-1]["event"] in main(page)
    assert any(line["fields"].get("query_id", line["fields"].get("query")) == approved for line in lines)
    page.select_option("#level", "error")
    press(page, "Show")
    assert "started" not in main(page)
