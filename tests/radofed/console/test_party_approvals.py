"""Approvals of several queries in a party's console, in a browser: given at a query, listed, revoked."""

import pytest

from tests.parties.answering.test_standing_approvals import in_study, round_of
from tests.parties.report.report_world import old
from tests.radofed.console.looking import check_page, open_page, press, visiting
from tests.radofed.console.test_party import Desk


@pytest.fixture
def desk(secret_key, tmp_path):
    return Desk(secret_key, tmp_path / "desk")


def asked(desk, query) -> str:
    envelope = desk.world.ask(query)
    desk.ada.go(envelope)
    return envelope.payload_hash.hex()


def test_a_training_is_approved_and_revoked(desk, browser):
    query_id = asked(desk, round_of(desk.world))
    with desk.serving() as access, visiting(browser, access) as page:
        open_page(page, access, "pending")
        assert 'One query of a training of newton with "rounds=3"' in page.inner_text("main")
        check_page(page)
        open_page(page, access, f"queries/{query_id}")
        check_page(page)
        assert page.locator("input[name=covers]:checked").get_attribute("value") == "query"
        page.get_by_label("The whole training").check()
        page.fill("#name", "Ann")
        page.fill("#reason", "study 17")
        press(page, "Approve")
        shown = page.inner_text("main")
        assert "In force" in shown
        assert "approved by Ann (" in shown
        assert "costs at most epsilon 30 at delta 1e-06" in shown
        check_page(page)
        assert desk.decisions(query_id) == []
        # What follows is let through.
        assert desk.ada.lifecycle.gate.has_news()
        following = desk.world.ask(round_of(desk.world, old()[0]))
        desk.ada.go(following)
        assert desk.ada.state(following) is not None
        press(page, "Revoke")
        assert "Revoked" in page.inner_text("main")
        assert page.get_by_role("button").count() == 0
        other = desk.world.ask(round_of(desk.world, old()[0]))
        desk.ada.go(other)
        assert desk.ada.state(other) is None


def test_a_study_needs_its_epsilon(desk, browser):
    query_id = asked(desk, in_study(desk.world))
    with desk.serving() as access, visiting(browser, access) as page:
        open_page(page, access, f"queries/{query_id}")
        check_page(page)
        page.get_by_label("All queries of the study").check()
        press(page, "Approve")
        assert "a study needs an epsilon for all of it" in page.get_by_role("alert").inner_text()
        # What was chosen stays chosen.
        assert page.locator("input[name=covers]:checked").get_attribute("value") == "study"
        page.fill("#epsilon", "2")
        press(page, "Approve")
        assert "In force" in page.inner_text("main")


def test_a_second_person_finds_the_proposal(desk, browser):
    desk.set_approval(approvers=2)
    query_id = asked(desk, round_of(desk.world))
    with desk.serving() as access, visiting(browser, access) as page:
        open_page(page, access, f"queries/{query_id}")
        page.get_by_label("The whole training").check()
        press(page, "Approve")
        assert "1 of 2 approvals" in page.inner_text("main")
        assert page.get_by_role("button").count() == 2
        press(page, "Refuse")
        assert "Refused" in page.inner_text("main")


def test_a_number_that_another_study_has_in_another_spelling_is_asked_about(desk, browser):
    for number in ("EK 2026/17", "ek 2026-17"):
        query_id = asked(desk, in_study(desk.world, protocol_number=number))
    asks = 'A study with the number "EK 2026/17" exists, nothing spent; is "ek 2026-17" the same?'
    with desk.serving() as access, visiting(browser, access) as page:
        open_page(page, access, f"queries/{query_id}")
        assert asks in page.inner_text("main")
        check_page(page)
        page.get_by_label("All queries of the study").check()
        page.fill("#epsilon", "2")
        press(page, "Approve")
        assert asks in page.inner_text("main")
        check_page(page)
        open_page(page, access, "studies")
        assert "May be another spelling of study" in page.inner_text("main")
        check_page(page)
