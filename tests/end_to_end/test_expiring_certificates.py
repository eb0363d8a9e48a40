"""A federation of eleven months: every role says that its certificate ends, and goes on working."""

import datetime as dt

import pytest

from coordinator.config import CoordinatorConfig
from learner.config import LearnerConfig
from learner.session import Session
from parties.config import PartyConfig
from parties.node import PartyNode
from radofed.provision import provision
from tests.coordinator.world import RunningNode
from tests.end_to_end.test_main_job import SCHEMA, table
from tests.federation import free_port, rado, wait_until
from tests.learner.test_session import REQUEST
from wire.roster import Role

AGE = dt.timedelta(days=340)


@pytest.fixture
def made(tmp_path):
    made = provision(
        tmp_path / "federation",
        federation="clinics",
        coordinator_address=f"127.0.0.1:{free_port()}",
        parties=["ada", "bob"],
        roster_days=400,
        now=dt.datetime.now(dt.UTC) - AGE,
    )
    for party in made.of(Role.PARTY):
        (party.directory / "schema.toml").write_text(SCHEMA)
        (party.directory / "data.csv").write_text(table(300, 1))
    return made


def warnings(caplog) -> list[str]:
    said = [record.fields["reason"] for record in caplog.records if record.getMessage() == "certificate expiry"]
    caplog.clear()
    return said


def test_every_role_says_that_its_certificate_ends_and_goes_on(made, caplog):
    coordinator, learner = made.of(Role.COORDINATOR)[0], made.of(Role.LEARNER)[0]
    rado("learner", "keygen", "--config", str(learner.config), "--bits", "2048")
    running = RunningNode(CoordinatorConfig.load(coordinator.config))
    try:
        wait_until(lambda: caplog.records, what="the coordinator's warning")
        (sentence,) = warnings(caplog)
        assert sentence.startswith("the certificate expires in 24 days, on 20")
        with PartyNode(PartyConfig.load(made.of(Role.PARTY)[0].config)) as node:
            wait_until(lambda: node._rosters.known is not None, what="the roster")
            # Not again on the same day.
            node._warn_of_expiry()
            assert warnings(caplog) == [sentence]
        with Session(LearnerConfig.load(learner.config)) as session:
            assert f"Warning: {sentence}." in session.plan(REQUEST).sentences()
    finally:
        running.close()
    checked = rado("party", "check", "--config", str(made.of(Role.PARTY)[0].config), code=1)["data"]["findings"]
    (certificate,) = [each for each in checked if each["name"] == "certificate"]
    assert (certificate["status"], certificate["mend"]) == ("advice", sentence)
    found = rado("certificate", "needs-renewal", "--config", str(learner.config), code=1)["data"]
    assert found["is_due"]
