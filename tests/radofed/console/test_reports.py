"""Reports in a browser: accessible, and nothing is cut at 400 pixels, fingerprints included."""

from learner.report.page import document as learner_page
from parties.report.page import document as party_page
from tests.federation.party import World
from tests.learner.report.report_world import Reported
from tests.parties.report.report_world import ada_at, answer, report_of, statistic
from tests.radofed.console.looking import NARROW, check_page

CUT = """[...document.querySelectorAll("main code, code")].filter(each => {
    const place = each.getBoundingClientRect();
    return place.width && (place.left < 0 || place.right > innerWidth + 1);
}).map(each => each.textContent)"""


def look(page, file, fingerprint) -> None:
    page.goto(file.as_uri())
    check_page(page)
    page.set_viewport_size({"width": NARROW, "height": 900})
    assert page.evaluate(CUT) == []
    assert page.get_by_text(fingerprint).first.is_visible()


def test_a_party_s_report(browser, secret_key, tmp_path):
    world = World(secret_key)
    ada = ada_at(world, tmp_path)
    answer(ada, statistic(world))
    report = report_of(ada)
    file = tmp_path / "report.html"
    file.write_text(party_page(report).saved())
    with browser.new_context() as context:
        look(context.new_page(), file, next(each.fingerprint for each in report.members if each.fingerprint))
    ada.history.database.close()
    ada.ledger.database.close()


def test_a_learner_s_report(browser, learner_key, tmp_path):
    reported = Reported(tmp_path, learner_key)
    report = reported.report(reported.model, releases=tuple(reported.releases))
    file = tmp_path / "report.html"
    file.write_text(learner_page(report).saved())
    with browser.new_context() as context:
        look(context.new_page(), file, next(each.fingerprint for each in report.members if each.fingerprint))
