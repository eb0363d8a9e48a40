"""A member that the operator removes while it uploads, between real processes: what the others pay and learn of it."""

import pytest

from learner.decryption import create_key
from learner.session import AttemptLostError
from tests.end_to_end.test_faults import POLICY, SCHEMA, charges, give_key, request, session, table
from tests.end_to_end.test_faults import start_coordinator as start
from tests.federation.processes import ProcessFederation, rado
from tests.waiting import HANG_S, wait_until
from wire.errors import Code, WireError
from wire.status import PartyState, Phase

ROWS = dict(zip("abcde", (40, 70, 30, 50, 60), strict=True))


@pytest.fixture
def federation(tmp_path):
    """Parties b, d and e are on lines."""
    parties = {name: table(rows, seed) for seed, (name, rows) in enumerate(ROWS.items())}
    with ProcessFederation(tmp_path, parties=parties, schema=SCHEMA, policy=POLICY) as made:
        create_key(tmp_path / "paillier.jwk", bits=2048)
        give_key(made, tmp_path / "paillier.jwk")
        made.lines_of = {name: made.put_on_a_line(name) for name in "bde"}
        start(made)
        made.start_all(*ROWS)
        wait_until(lambda: all('"started"' in made.log(name) for name in ROWS), what="the parties")
        yield made


def remove(federation: ProcessFederation, name: str) -> None:
    operator = federation.root / "federation" / "federation"
    rado("provision", "remove", str(operator), name)
    hub = str(federation.member("coordinator").config)
    rado("coordinator", "roster", str(operator / "roster.signed"), "--config", hub)


@pytest.mark.more
def test_a_member_that_is_removed_while_it_uploads(federation):
    """First it vanishes. Then an attempt is lost and another one is without it, and then no attempt is possible."""
    learner = session(federation)

    def uploading(stalled: str, others: str, **changes) -> bytes:
        """A query to which all others have sent their uploads, and one has sent a part."""
        line = federation.lines_of[stalled]
        line.stall_after(1 << 15)
        query_id = learner.ask(learner.plan(request(rados=200, attempts=2, **changes)))
        assert line.stalled.wait(HANG_S), federation.log(stalled)[-2000:]

        def have_uploaded() -> bool:
            states = {party.party: party.state for party in learner.status(query_id).parties}
            return all(states[name] is PartyState.UPLOADED for name in others)

        wait_until(have_uploaded, what="the others' uploads")
        return query_id

    def charged() -> dict[str, int]:
        return {name: charges(federation, name) for name in ROWS}

    with learner:
        # Nobody may be late: without the removal it would be waited for.
        query_id = uploading("b", "acde", may_vanish=1, quorum_wait_s=None)
        remove(federation, "b")
        assert learner.watch(query_id, timeout_s=HANG_S).phase is Phase.COMPLETE
        release = learner.fetch(query_id)
        assert (sorted(release.party_rows), release.vanished) == (list("acde"), ("b",))
        assert charged() == dict.fromkeys(ROWS, 1)

        query_id = uploading("d", "ace")
        remove(federation, "d")
        with pytest.raises(
            AttemptLostError,
            match=r"were removed from the roster: d\. Another attempt asks the others only\. .*rado learner retry",
        ):
            learner.watch(query_id, timeout_s=HANG_S)
        assert learner.retry(query_id) == 2
        learner.watch(query_id, timeout_s=HANG_S)
        assert sorted(learner.fetch(query_id).party_rows) == list("ace")
        assert charged() == {"a": 3, "b": 1, "c": 3, "d": 2, "e": 3}

        query_id = uploading("e", "ac")
        remove(federation, "e")
        with pytest.raises(WireError, match=r"removed from the roster: e\. 2 are left and 3 are needed\.") as ended:
            learner.watch(query_id, timeout_s=HANG_S)
        assert ended.value.code is Code.COHORT_TOO_SMALL
        assert charged() == {"a": 4, "b": 1, "c": 4, "d": 2, "e": 4}
