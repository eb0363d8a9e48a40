"""A lost attempt in the learner's console: the page offers another one, which is charged again, and follows it."""

import pytest

from radofed.node_config import PolicyChoices
from tests.end_to_end.test_main_job import SCHEMA, table
from tests.federation.processes import ProcessFederation, rado
from tests.radofed.console.consoles import console, fill
from tests.radofed.console.looking import check_page, open_page, visiting
from tests.waiting import HANG_S, wait_until

ROWS = {"a": 300, "b": 280, "c": 320, "d": 310}
# Below the size of an upload, and above all that a party sends before it.
STALL_AFTER_BYTES = 32 << 10


@pytest.fixture
def federation(tmp_path):
    """Four parties, of which b is behind a line that can stall."""
    parties = {name: table(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    allowing = PolicyChoices(designs=("gaussian",), epsilon="20", delta="1e-4")
    with ProcessFederation(tmp_path, parties=parties, schema=SCHEMA, policy=allowing, rows_at_least=ROWS) as federation:
        (federation.learner.directory / "schema.toml").write_text(SCHEMA)
        federation.put_on_a_line("b")
        federation.start_all()
        rado("learner", "keygen", "--config", str(federation.learner.config), "--bits", "2048")
        wait_until(lambda: all('"started"' in federation.log(name) for name in ROWS), what="the parties")
        yield federation


def charged(federation, party: str) -> int:
    found = rado("ledger", "history", "--config", str(federation.member(party).config))["data"]["queries"]
    return sum(attempt["charged"] for query in found for attempt in query["attempts"])


@pytest.mark.slow
def test_a_lost_attempt_is_retried_once_however_often_the_button_is_pressed(federation, browser, tmp_path):
    (line,) = federation.lines
    with console(federation.learner.config, tmp_path / "log") as opening, visiting(browser, opening) as page:
        open_page(page, opening, "plan?what=gaussian")
        terms = {
            "cohort_min": "3",
            "quorum_wait_s": "20",
            "answer_within_s": "300",
            "upload_within_s": "20",
            "attempts": "3",
        }
        schema = str(federation.learner.directory / "schema.toml")
        rows = ",".join(map(str, ROWS.values()))
        fill(page, {"schema": schema, "party_rows": rows, "rados": "800", "epsilon": "1", **terms})
        page.click("button[value=ask]")
        page.wait_for_url("**/asking/*")
        line.stall_after(STALL_AFTER_BYTES)
        page.click("button.main")
        page.wait_for_url("**/queries/*")
        assert line.stalled.wait(HANG_S), federation.log("b")[-2000:]
        federation.kill("b")
        page.wait_for_selector("text=Start another attempt")
        assert "are charged again" in page.inner_text("main")
        check_page(page)
        assert [charged(federation, name) for name in "acd"] == [1, 1, 1]
        # Nothing starts by itself, and a second click starts no third attempt.
        page.dblclick("text=Start another attempt")
        page.wait_for_selector("text=Open the release")
        assert [charged(federation, name) for name in "acd"] == [2, 2, 2]
        page.click("text=Open the release")
        text = page.inner_text("main")
        assert all(f"{name}\t{ROWS[name]}" in text for name in "acd")
        assert "b\t280" not in text
        (found,) = rado("learner", "history", "--config", str(federation.learner.config))["data"]["queries"]
        assert found["outcome"] == "opened in attempt 2"
