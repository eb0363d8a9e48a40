"""The progress of a query in words, and where it is shown: lines, a real terminal, a real notebook."""

import io
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace

import pytest

import learner.session
from learner.progress import (
    ASK_WHETHER_READY,
    CHANGE_AFTER_S,
    REPEAT_AFTER_S,
    Lines,
    QueryProgress,
    TerminalLine,
    advice,
    party_words,
    phase_words,
    progress_sentence,
    shown_on,
    usual_display,
)
from learner.session import failure
from tests.federation.learner import REQUEST
from tests.waiting import HANG_S
from wire.errors import CATALOGUE, Code, WireError
from wire.status import PartyProgress, PartyState, Phase, QueryStatus

S = PartyState
NAMES = ("north", "south", "west", "east")


def status(phase, *states, chunks=0, code="", early=False, attempt=1, remaining_s=565):
    """Parties in these states; a text is the code of a refusal."""
    parties = tuple(
        PartyProgress(name, S.REFUSED, state) if isinstance(state, str) else PartyProgress(name, state, chunks=chunks)
        for name, state in zip(NAMES, states, strict=False)
    )
    expected = 8 if chunks else 0
    return QueryStatus(bytes(32), attempt, phase, parties, code, "", remaining_s, expected, 0, early)


def test_a_question_ends_without_a_failure():
    assert phase_words(status(Phase.FAILED, code=Code.ONLY_ASKED.value)) == "was asked only"
    assert (
        phase_words(status(Phase.FAILED, code=Code.QUERY_EXPIRED.value)) == f"{Phase.FAILED.word}: {Code.QUERY_EXPIRED}"
    )
    assert phase_words(status(Phase.ANSWERING)) == "answering"


def test_progress_names_who_is_missing():
    waiting = status(Phase.ANSWERING, "POLICY_DESIGN", S.SILENT, S.PENDING, S.ACCEPTED)
    assert progress_sentence(waiting) == (
        "attempt 1, answering; 2 of 4 answered; 1 refused: north (POLICY_DESIGN); 0 ready; waiting for south; "
        "waiting for a decision at west"
    )
    preparing = status(Phase.PREPARING, S.ACCEPTED, S.READY, S.READY, S.SILENT)
    assert progress_sentence(preparing).endswith(
        "3 of 4 answered; 0 refused; 2 ready; waiting for the contribution of north; without an answer: east"
    )
    assert progress_sentence(replace(preparing, answering_ended_early=True)).endswith("not waited for: east")
    uploading = status(Phase.UPLOADING, S.UPLOADING, S.UPLOADED, S.LEFT_OUT, chunks=5)
    assert progress_sentence(uploading).endswith("15 of 16 chunks uploaded; waiting for uploads of north")
    assert "waiting" not in progress_sentence(status(Phase.COMPLETE, S.UPLOADED, S.UPLOADED))


def test_a_party_without_time_to_answer_is_not_blamed():
    said = {
        (Phase.ANSWERING, S.SILENT, False): "has not answered yet",
        (Phase.ANSWERING, S.PENDING, False): "waiting for a decision there",
        (Phase.FAILED, S.SILENT, True): "not waited for",
        (Phase.FAILED, S.PENDING, True): "not waited for",
        (Phase.FAILED, S.SILENT, False): "did not answer in time",
        (Phase.FAILED, S.PENDING, False): "not decided there in time",
        (Phase.UPLOADING, S.LEFT_OUT, False): "left out",
    }
    for (phase, state, early), words in said.items():
        asked = status(phase, state, early=early, code="COHORT_TOO_SMALL" if phase is Phase.FAILED else "")
        assert party_words(asked.parties[0], asked) == words
    refused = status(Phase.ANSWERING, "BUDGET_EXCEEDED")
    assert party_words(refused.parties[0], refused) == "refused, BUDGET_EXCEEDED"


def test_advice_is_that_of_what_each_party_said():
    states = ("POLICY_DESIGN", "BUDGET_EXCEEDED", "POLICY_DESIGN", S.SILENT)
    failed = status(Phase.FAILED, *states, code="COHORT_TOO_SMALL")
    assert advice(failed) == (
        f"north, west (POLICY_DESIGN): {CATALOGUE[Code.POLICY_DESIGN].hint} "
        f"south (BUDGET_EXCEEDED): {CATALOGUE[Code.BUDGET_EXCEEDED].hint} east: {ASK_WHETHER_READY}"
    )
    assert "east" not in advice(replace(failed, answering_ended_early=True))
    undecided = status(Phase.FAILED, S.PENDING, code="QUERY_EXPIRED")
    assert advice(undecided) == "north: Ask for the decision, or give parties more time to answer."
    error = failure(failed)
    assert error.hint == advice(failed)
    assert CATALOGUE[Code.COHORT_TOO_SMALL].hint not in str(error)


@pytest.mark.parametrize("states", [(), ("NO_SUCH_CODE",)], ids=["nothing", "an unknown code"])
def test_without_a_known_cause_the_catalogue_advises(states):
    failed = status(Phase.FAILED, *states, code="COHORT_TOO_SMALL")
    assert advice(failed) == ""
    assert failure(failed).hint == CATALOGUE[Code.COHORT_TOO_SMALL].hint
    cancelled = status(Phase.FAILED, "POLICY_DESIGN", code="CANCELLED")
    assert failure(cancelled).hint == CATALOGUE[Code.CANCELLED].hint


def test_an_error_from_a_peer_has_the_catalogue_s_advice():
    assert WireError(Code.CANCELLED, "Why.").public_sentence == "The learner cancelled the query. Why."
    assert WireError(Code.CANCELLED, "Why.", "Do this.").public_sentence == "The learner cancelled the query. Why."
    assert str(WireError(Code.CANCELLED, "Why.", "Do this.")) == "The learner cancelled the query. Why. Do this."


def test_lines_say_each_thing_once_and_again_after_a_while():
    now, stream = [0.0], io.StringIO()
    progress = QueryProgress(Lines(stream, lambda: now[0]), lambda: now[0])
    for _ in range(4):
        progress(status(Phase.ANSWERING, S.SILENT))
        now[0] += 5.0
    assert len(stream.getvalue().splitlines()) == 1
    now[0] += REPEAT_AFTER_S - 5.0
    progress(status(Phase.ANSWERING, S.SILENT, remaining_s=490))
    assert stream.getvalue().splitlines()[1].endswith("waiting for north (for 1 min 15 s, 8 min 10 s left)")
    progress(status(Phase.COMPLETE, S.UPLOADED))
    assert stream.getvalue().splitlines()[2].endswith("1 ready")


def test_a_short_round_is_one_line_of_a_log():
    """Nine changes within seconds, as in each round of a training."""
    now, stream = [0.0], io.StringIO()
    lines = Lines(stream, lambda: now[0])
    for _ in range(8):
        with shown_on(lines) as show:
            for ready in range(4):
                show(status(Phase.ANSWERING, *[S.ACCEPTED] * ready, *[S.SILENT] * (4 - ready)))
                show(status(Phase.PREPARING, *[S.UPLOADED] * ready, *[S.ACCEPTED] * (4 - ready)))
                now[0] += 1.0
            show(status(Phase.COMPLETE, *[S.UPLOADED] * 4))
    assert len(stream.getvalue().splitlines()) == 8


def test_each_line_of_a_round_begins_with_its_label():
    stream = io.StringIO()
    with shown_on(Lines(stream), "round 2, query 00ff") as show:
        show(status(Phase.COMPLETE, S.UPLOADED))
    assert stream.getvalue().startswith("round 2, query 00ff: attempt 1, complete; ")


def test_a_query_that_is_no_longer_followed_leaves_its_last_state():
    stream = io.StringIO()
    with shown_on(Lines(stream)) as show:
        show(status(Phase.ANSWERING, S.SILENT))
        show(status(Phase.LOST, S.LEFT_OUT))
    (line,) = stream.getvalue().splitlines()
    assert line.startswith("attempt 1, lost; ")
    with shown_on(Lines(stream)) as show:
        show(status(Phase.COMPLETE, S.UPLOADED))
    assert len(stream.getvalue().splitlines()) == 2


def test_a_state_that_did_not_last_is_not_left_as_the_last_one():
    """A party that was away for a moment is there again, as the line above says."""
    now, stream = [0.0], io.StringIO()
    with shown_on(Lines(stream, lambda: now[0])) as show:
        for now[0], state in (0, S.ACCEPTED), (CHANGE_AFTER_S, S.ACCEPTED), (20, S.SILENT), (21, S.ACCEPTED):
            show(status(Phase.ANSWERING, state))
    assert len(stream.getvalue().splitlines()) == 1


def test_the_time_of_a_wait_begins_with_each_phase():
    now, stream = [0.0], io.StringIO()
    progress = QueryProgress(Lines(stream, lambda: now[0]), lambda: now[0])
    progress(status(Phase.ANSWERING, S.SILENT))
    now[0] = 100.0
    progress(status(Phase.PREPARING, S.ACCEPTED))
    assert stream.getvalue().splitlines()[0].endswith("(9 min 25 s left)")


def test_names_of_a_hostile_coordinator_do_not_control_the_terminal():
    stream = io.StringIO()
    shown = status(Phase.ANSWERING, S.SILENT)
    hostile = replace(shown, parties=(PartyProgress("\x1b[2Jnorth", S.SILENT),))
    QueryProgress(Lines(stream))(hostile)
    assert "\x1b" not in stream.getvalue()
    failed = replace(hostile, phase=Phase.FAILED, code="COHORT_TOO_SMALL")
    assert "\x1b" not in advice(failed)


def test_a_terminal_has_one_line_that_ends_before_the_next_output():
    stream = io.StringIO()
    with shown_on(TerminalLine(stream)) as show:
        show(status(Phase.ANSWERING, S.SILENT))
        show(status(Phase.PREPARING, S.ACCEPTED))
    written = stream.getvalue()
    assert written.count("\n") == 1
    assert written.endswith("\n"), "an error message begins on a line of its own"
    assert written.count("\r") == 2
    whole = io.StringIO()
    with shown_on(TerminalLine(whole)) as show:
        show(status(Phase.COMPLETE, S.UPLOADED))
    assert whole.getvalue().count("\n") == 1


def test_a_line_fits_the_terminal(monkeypatch):
    monkeypatch.setenv("COLUMNS", "40")
    stream = io.StringIO()
    TerminalLine(stream).show("x" * 50, "", last=False)
    assert re.sub(r"[\r]|\x1b\[K", "", stream.getvalue()) == "x" * 38 + "\u2026"


def test_nothing_is_shown_where_nobody_looks(capfd):
    """Standard error is a file in a test."""
    assert usual_display() is None
    with shown_on(usual_display()) as show:
        assert show is None


SHOWING = """
import sys
sys.path[:0] = {path}
from learner.progress import QueryProgress, shown_on, usual_display
from wire.status import PartyProgress, PartyState, Phase, QueryStatus
parties = (PartyProgress("north", PartyState.SILENT),)
with shown_on(usual_display()) as show:
    for phase in (Phase.ANSWERING, Phase.COMPLETE):
        show(QueryStatus(bytes(32), 1, phase, parties, "", "", 9, 0, 0))
"""


def showing() -> str:
    return SHOWING.format(path=repr([path for path in sys.path if path]))


@pytest.mark.more
def test_a_script_in_a_terminal_shows_progress():
    ours, theirs = pty.openpty()
    child = subprocess.Popen([sys.executable, "-c", showing()], stderr=theirs)
    os.close(theirs)
    seen = b""
    while True:
        try:
            more = os.read(ours, 4096)
        except OSError:  # Linux says so that the terminal is closed
            break
        if not more:
            break
        seen += more
    os.close(ours)
    assert child.wait(HANG_S) == 0
    assert seen.startswith(b"\rattempt 1, answering")
    assert seen.count(b"\n") == 1


@pytest.mark.more
def test_a_notebook_shows_progress_in_one_text():
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(showing())])
    nbclient.NotebookClient(notebook, timeout=HANG_S, startup_timeout=HANG_S).execute()
    (output,) = [each for each in notebook.cells[0].outputs if each.output_type == "display_data"]
    assert output.data["text/plain"].startswith("attempt 1, complete")


def test_a_session_shows_what_it_follows_unless_it_is_told_not_to(setting, monkeypatch):
    class Kept:
        refresh_s, seen, ended = 0.1, (), 0

        def show(self, state, times, *, last):
            self.seen = (*self.seen, (state, last))

        def end(self):
            self.ended += 1

    kept = Kept()
    setting.stub.parties = (PartyProgress("north", S.SILENT),)
    with setting.session(progress=kept) as session:
        query_id = session.ask(session.plan(REQUEST))
        session.watch(query_id)
        assert [last for _, last in kept.seen] == [False, False, True]
        assert "waiting for north" in kept.seen[0][0]
        assert kept.ended == 1
        session.watch(query_id, lambda _status: None)
        assert len(kept.seen) == 3, "the caller's own callback replaces it"
    monkeypatch.setattr(learner.session, "usual_display", lambda: kept)
    with setting.session(progress=False) as silent:
        silent.watch(query_id)
        assert len(kept.seen) == 3
    with setting.session() as usual:
        usual.watch(query_id)
        assert len(kept.seen) > 3
