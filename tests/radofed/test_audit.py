"""`rado audit compare` of histories as they are exported: the words about what only one of them has."""

import json

import pytest

from radofed.cli.entry_point import run
from tests.federation.processes import rado

DIGEST = "c0" * 32


def history(path, *queries: str):
    path.parent.mkdir(exist_ok=True)
    shown = [
        {
            "query_id": name * 32,
            "shown_at_unix_s": 1000 + place,
            "learner": "lab",
            "kind": "moments",
            "opened_attempt": 1,
            "cohort_digest": DIGEST,
            "cohort": {"north": 5},
        }
        for place, name in enumerate(queries)
    ]
    path.write_text(json.dumps({"data": {"queries": shown}}))
    return path


def test_it_says_which_history_lacks_a_query_and_that_this_is_no_contradiction(tmp_path, capsys):
    ours = history(tmp_path / "ours.json", "aa", "bb", "cc", "dd")
    theirs = history(tmp_path / "theirs.json", "aa", "ee", "ff", "dd")
    assert run(["audit", "compare", str(ours), str(theirs)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert (
        "ours has 2 queries that theirs lacks, of a time that both cover: bbbbbbbbbbbbbbbb, cccccccccccccccc." in said
    )
    assert "theirs has 2 queries that ours lacks" in said
    assert said.count("That is no contradiction: a member may not have been asked") == 2
    assert "2 queries agree" in said


@pytest.mark.parametrize("same", [True, False])
def test_histories_with_one_name_keep_their_own_queries(tmp_path, same):
    first = history(tmp_path / "north" / "history.json", "aa", "bb", "dd")
    second = history(tmp_path / "south" / ("history.json" if same else "other.json"), "aa", "ee", "dd")
    found = rado("audit", "compare", str(first), str(second))["data"]["only"]
    names = [str(first), str(second)] if same else ["history", "other"]
    assert found == {names[0]: ["bb" * 32], names[1]: ["ee" * 32]}
