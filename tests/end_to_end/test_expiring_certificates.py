"""A federation of eleven months: every role says that its certificate ends, and takes a new one without a restart."""

import datetime as dt
import io
import time
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace

import pytest

from coordinator.config import CoordinatorConfig
from dpcore.records.schema import Schema
from learner.config import LearnerConfig
from learner.session import Session
from parties.config import PartyConfig
from parties.node import PartyNode
from radobase.writing import write_durably
from radofed.certificates import Authority, make_request
from radofed.cli.entry_point import run
from radofed.provision import provision
from tests.end_to_end.test_main_job import SCHEMA, table
from tests.federation.coordinator import RunningNode
from tests.federation.learner import REQUEST as OF_ANOTHER_SCHEMA
from tests.federation.processes import free_port, rado
from tests.waiting import wait_until
from wire.errors import TimedOutError
from wire.identity import Certificate
from wire.roster import Role

pytestmark = pytest.mark.more

AGE = dt.timedelta(days=340)
REQUEST = replace(OF_ANOTHER_SCHEMA, schema=Schema.from_toml(SCHEMA))


YEAR = dt.timedelta(days=365)


def federation(directory, age: dt.timedelta):
    made = provision(
        directory,
        federation="clinics",
        coordinator_address=f"127.0.0.1:{free_port()}",
        parties=["ada", "bob"],
        roster_days=400,
        now=dt.datetime.now(dt.UTC) - age,
    )
    for party in made.of(Role.PARTY):
        (party.directory / "schema.toml").write_text(SCHEMA)
        (party.directory / "data.csv").write_text(table(300, 1))
    return made


@pytest.fixture
def made(tmp_path):
    return federation(tmp_path / "federation", AGE)


def renew(made, member) -> None:
    """A new key and certificate in their places, as a member installs what the operator signed: one by one."""
    place = member.directory
    request = make_request("clinics", member.role, member.name)
    hosts = ["127.0.0.1"] if member.role is Role.COORDINATOR else []
    authority = Authority.load(made.directory / "federation")
    certificate = authority.sign_request(
        request.request_pem, member.role, member.name, dt.datetime.now(dt.UTC), hosts=hosts
    )
    write_durably(place / "tls.key", request.key_pem)
    write_durably(place / "certificate.pem", certificate)


def warnings(caplog) -> list[str]:
    """Those since the last call."""
    said = [record.fields["reason"] for record in caplog.records if record.getMessage() == "certificate expiry"]
    if said:
        caplog.clear()
    return said


def test_every_role_says_that_its_certificate_ends_and_goes_on(made, caplog):
    coordinator, learner = made.of(Role.COORDINATOR)[0], made.of(Role.LEARNER)[0]
    rado("learner", "keygen", "--config", str(learner.config), "--bits", "2048")
    running = RunningNode(CoordinatorConfig.load(coordinator.config))
    try:
        (sentence,) = wait_until(lambda: warnings(caplog), what="the coordinator's warning")
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
    assert (certificate["status"], certificate["fix"]) == ("advice", sentence)
    found = rado("certificate", "needs-renewal", "--config", str(learner.config), code=1)["data"]
    assert found["is_due"]


@pytest.mark.more
def test_a_learner_that_asks_is_told_once_and_so_is_who_looks_at_a_node(made):
    """Also if it asks statistics, or trains, which print no plan; `query` says it with its plan."""
    coordinator, learner = made.of(Role.COORDINATOR)[0], made.of(Role.LEARNER)[0]
    rado("learner", "keygen", "--config", str(learner.config), "--bits", "2048")
    schema = learner.directory / "schema.toml"
    schema.write_text(SCHEMA)
    shared = ("--config", str(learner.config), "--schema", str(schema), "--epsilon", "1", "--cohort-min", "2")
    shared = (*shared, "--colluders", "0", "--timeout-s", "0.5")
    train = ("learner", "train", "--estimator", "newton", "--output", str(made.directory / "model.json"))
    warning = "Warning: the certificate expires in 24 days, on 20"
    running = RunningNode(CoordinatorConfig.load(coordinator.config))
    try:
        for command in (
            ("learner", "statistic", "y == 1"),
            train,
            ("learner", "query", "--design", "moments"),
        ):
            with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()) as notes:
                assert run([*command, *shared]) == TimedOutError.exit_code, notes.getvalue()
            assert notes.getvalue().count(warning) == 1, notes.getvalue()
        shown = rado("coordinator", "status", "--config", str(coordinator.config))["data"]["certificate"]
        ends = Certificate.load(coordinator.directory / "certificate.pem").not_after
        assert shown["not_after_unix_s"] == int(ends.timestamp())
        assert shown["expires"] == f"{ends:%Y-%m-%d %H:%M} UTC"
        assert shown["warning"].startswith("the certificate expires in 24 days")
        ada = made.of(Role.PARTY)[0]
        with PartyNode(PartyConfig.load(ada.config)):
            assert rado("party", "status", "--config", str(ada.config))["data"]["certificate"] == shown
            for role, config in (("party", ada.config), ("coordinator", coordinator.config)):
                with redirect_stdout(io.StringIO()) as printed:
                    run([role, "status", "--config", str(config)])
                said = f"certificate expires {shown['expires']}\nwarning: the certificate expires in 24 days"
                assert said in printed.getvalue()
    finally:
        running.close()


@pytest.mark.parametrize("left_s", [None, pytest.param(60, marks=pytest.mark.slow)])
def test_a_renewed_certificate_is_used_without_a_restart(made, tmp_path, caplog, left_s):
    """Beyond the end of the former one, too (slow): a party connects again, and a learner to the coordinator."""
    if left_s is not None:
        made = federation(tmp_path / "old", YEAR - dt.timedelta(seconds=left_s))
    ends = time.monotonic() + (left_s or 0)
    caplog.set_level("INFO")
    (coordinator,), (learner,) = made.of(Role.COORDINATOR), made.of(Role.LEARNER)
    rado("learner", "keygen", "--config", str(learner.config), "--bits", "2048")
    running = RunningNode(CoordinatorConfig.load(coordinator.config))
    ada = made.of(Role.PARTY)[0]

    def read() -> int:
        return [record.getMessage() for record in caplog.records].count("certificate read")

    try:
        with PartyNode(PartyConfig.load(ada.config)) as node:
            wait_until(lambda: node.status()["last_contact_unix_s"], what="the party's contact")
            for member in (coordinator, ada, learner):
                renew(made, member)
            # The party's poll ends within the longest wait of a long poll.
            wait_until(lambda: read() == 2, what="both nodes")
            time.sleep(max(0.0, ends + 1 - time.monotonic()))
            with Session(LearnerConfig.load(learner.config)) as session:
                assert not [line for line in session.plan(REQUEST).sentences() if "expires" in line]
            running.close()
            restarted = time.time()
            running = RunningNode(CoordinatorConfig.load(coordinator.config))
            wait_until(lambda: node.status()["last_contact_unix_s"] > restarted, what="the next contact")
    finally:
        running.close()
