"""A running party's rows are replaced: a query that it accepted keeps the old ones, the next one has the new ones."""

import pytest

from learner.config import LearnerConfig
from learner.session import Session
from tests.end_to_end.test_approval import ROWS, ask, asking, at, in_history, waiting
from tests.end_to_end.test_main_job import table
from tests.federation.processes import rado
from tests.waiting import HANG_S, wait_until


@pytest.mark.more
def test_a_query_keeps_the_rows_of_its_acceptance(tmp_path):
    with asking(tmp_path) as federation, Session(LearnerConfig.load(federation.learner.config)) as learner:
        first = ask(learner)
        waiting(federation, first)
        wait_until(lambda: in_history(federation, first, "b")["attempts"], what="the acceptance of b")
        before = rado("party", "status", *at(federation, "b"))["data"]["data"]
        for name in ("a", "b"):
            (federation.directory(name) / "data.csv").write_text(table(240, 17))
            rado("party", "reload", *at(federation, name))
        after = rado("party", "status", *at(federation, "b"))["data"]["data"]
        released = []
        for query_id in (first, ask(learner)):
            waiting(federation, query_id)
            rado("party", "approve", query_id.hex()[:8], *at(federation, "a"), "--name", "Ann")
            released.append(learner.watch(query_id, timeout_s=HANG_S).query_id)
        cohorts = [in_history(federation, each, "b")["attempts"][0]["cohort"] for each in released]
        # The query waited for people at a, which had accepted nothing yet.
        assert cohorts == [ROWS | {"a": 240}, ROWS | {"a": 240, "b": 240}]
        digests = [in_history(federation, each, "b")["attempts"][0]["data_digest"] for each in released]
        assert digests == [before["digest"], after["digest"]]
