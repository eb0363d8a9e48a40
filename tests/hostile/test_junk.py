"""A party process whose coordinator shows it junk: what it signs, writes, keeps and computes for what no one signed.

`python -m tests.hostile.junk 1800` runs the same for half an hour; docs/threat-model-details.md has the figures.
"""

from itertools import chain, cycle

import pytest

from tests.federation.material import STAYS
from tests.federation.processes import ProcessFederation, rado
from tests.hostile.junk import KINDS, POLICY, ROWS, Response, Showing, forged, known_of, measure, nothing, work_of
from tests.hostile.test_stalling_coordinator import asked, events
from tests.parties import check_world
from tests.waiting import wait_until
from wire.errors import Code
from wire.status import MOST_WORK

MOST_GROWTH_MB = 64
MOST_SHARE = 0.05
"""Of one processor, beyond what a coordinator costs that answers every poll at once with nothing."""
MEASURED_S = 60.0


@pytest.fixture
def federation(tmp_path):
    parties = dict.fromkeys(("ada", "bo", "cy"), ROWS)
    with ProcessFederation(tmp_path, parties=parties, schema=STAYS.to_toml(), policy=POLICY) as made:
        yield made


def unverified(federation: ProcessFederation) -> int:
    found = rado("party", "status", "--config", str(federation.member("ada").config))["data"]
    return found["unverified"]["entries"].get(Code.SIGNATURE_INVALID, 0)


@pytest.mark.more
def test_a_query_that_a_learner_signed_is_accepted_among_junk_and_the_party_says_what_it_was_shown(
    federation, learner_key
):
    known = known_of(federation)
    [query] = asked(federation, learner_key, count=1, lapse_in_s=300)

    def responses():
        for _ in range(2):
            yield forged(known)
        while True:
            response = forged(known)
            response.work[100].CopyFrom(work_of(query))
            yield response

    with Showing(federation, responses()) as showing:
        federation.start("ada")
        wait_until(lambda: showing.calls["answer"], what="the acceptance")
        wait_until(lambda: events(federation, "ada") == ["reserved"], what="the reservation")
        # What no member signed gets no answer, so the party alone says so.
        wait_until(lambda: unverified(federation) >= 2 * MOST_WORK, what="the count")
        checked = check_world.run(federation)["unverified"]
    assert checked.status == "advice"
    assert f"{Code.SIGNATURE_INVALID}" in checked.detail
    assert "newest roster" in checked.fix
    assert [len(accepted) > 0 for accepted in showing.accepted] == [True]


@pytest.mark.slow
def test_a_minute_of_junk_leaves_memory_flat_and_the_processor_and_the_disk_idle(federation):
    known = known_of(federation)
    empty = measure(federation, iter(Response, None), MEASURED_S)
    # With what a party answers at its fastest in between, so that the pauses do not grow.
    makes = cycle(chain.from_iterable((make, nothing) for make in KINDS.values()))
    junk = measure(federation, (make(known) for make in makes), MEASURED_S)
    assert (junk["answers"], junk["witnesses"], junk["changed_files"]) == (0, 0, [])
    assert junk["rss"][-1]["rss_mb"] - empty["rss"][-1]["rss_mb"] < MOST_GROWTH_MB
    # The first seconds of processor time are free of pauses.
    assert junk["processor_share"] - empty["processor_share"] < MOST_SHARE + 5.0 / MEASURED_S
