"""The preflight: reports every fault with its cause and its fix, and skips checks that depend on a failed one."""

import datetime as dt
import os
import pwd
import re
import socket
import ssl
import subprocess
import threading
import time
from fractions import Fraction

import pytest
from pyarrow import csv, parquet

from dpcore.accounting.filters import Loss, PrivacyLimit
from parties.config import PartyConfig
from parties.database import LedgerOwner
from parties.ledger.charges import Charge, marginal
from parties.ledger.ledger import Ledger
from parties.ledger.limits import LedgerLimits
from parties.preflight import preflight
from radobase.writing import create_durably
from radofed.certificates import Authority, make_request
from radofed.cli.entry_point import run as rado
from tests.parties.check_world import replace_in, run
from tests.parties.test_node import SCHEMA
from tests.waiting import HANG_S
from wire.envelopes import SigningKey, public_key_of, spoken
from wire.roster import Role


def test_a_cluster_that_may_read_its_table_again_is_told_to_keep_it_on_disk(offline):
    directory = offline.directory("ada")
    parquet.write_table(csv.read_csv(directory / "data.csv"), directory / "data.parquet")
    replace_in(directory / "party.toml", "data.csv", "data.parquet")
    config = (directory / "party.toml").read_text()
    for more, fix in (("", "set worker_disk in [cluster]"), ('worker_disk = "/rows"\n', "")):
        (directory / "party.toml").write_text(f'{config}\n[cluster]\naddress = "auto"\nreads_table = true\n{more}')
        found = run(offline)["data"]
        assert (found.ok, fix in found.fix, "read again" in found.fix) == (True, True, bool(fix))


def test_everything_is_in_order(served):
    found = run(served)
    statuses = {name: finding.status for name, finding in found.items()}
    # Three rows are too few for any dp-feat query.
    assert statuses.pop("dp-feat") == "advice"
    # A record that the schema refuses keeps the party from starting, which others can see.
    assert statuses.pop("schema") == "advice"
    assert '= "refuse". A record with such a cell keeps the party from starting' in found["schema"].fix
    assert statuses == dict.fromkeys(
        [
            "configuration",
            "policy",
            "data",
            "held-data",
            "signing-key",
            "federation-key",
            "key-permissions",
            "certificate",
            "ledger",
            "row-limits",
            "node",
            "state-directory",
            "refusals",
            "unverified",
            "coordinator",
            "tls",
            "health",
            "roster",
            "clock",
            "membership",
            "stated-rows",
            "accepted-members",
            "queries",
        ],
        "ok",
    )
    assert "3 rows" in found["data"].detail
    assert "364 days" in found["certificate"].detail
    assert "TLSv1.3" in found["tls"].detail
    assert "version 1" in found["roster"].detail


def test_it_says_what_decides_which_rows_are_held_back(offline):
    assert "chosen by their place in the table: if it is sorted" in run(offline)["data"].detail
    config = offline.member("ada").config
    replace_in(config, "\n[tls]", '\nid_column = "smoker"\n[tls]')
    found = run(offline)["data"]
    assert found.status == "failed"
    assert "must not depend on what is learned" in found.detail
    replace_in(config, 'id_column = "smoker"', 'id_column = "patient"')
    assert "no such column" in run(offline)["data"].detail
    data = offline.directory("ada") / "data.csv"
    data.write_text("".join(f"{n or 'patient'},{row}\n" for n, row in enumerate(data.read_text().split())))
    found = run(offline)["data"]
    assert found.status == "ok"
    assert "chosen by the column 'patient'" in found.detail


def test_a_loaded_configuration_is_accepted_too(served):
    findings = preflight(PartyConfig.load(served.member("ada").config))
    assert all(finding.ok for finding in findings)


def test_a_clock_that_is_off_is_a_failure(served):
    for offset_s, status in ((30, "ok"), (-30, "ok"), (90, "failed"), (-90, "failed")):
        found = run(served, now=time.time() + offset_s)
        assert found["clock"].status == status, offset_s
    assert "behind" in found["clock"].detail
    assert "NTP" in found["clock"].fix


def test_another_schema_is_compared_field_by_field(served, tmp_path):
    other = tmp_path / "other.toml"
    other.write_text(SCHEMA.replace("upper = 100", "upper = 120"))
    found = run(served, against=other)["schema-against"]
    assert found.status == "failed"
    assert "features.age.upper" in found.detail
    other.write_text(SCHEMA)
    assert run(served, against=other)["schema-against"].status == "ok"


def test_nothing_listens(offline):
    found = run(offline)
    assert found["coordinator"].status == "failed"
    assert "refused" in found["coordinator"].detail
    for name in ("tls", "health", "roster", "clock", "membership", "accepted-members", "queries"):
        assert found[name].status == "not run", name
    assert "coordinator" in found["tls"].detail


def test_a_name_without_an_address(offline):
    replace_in(offline.member("ada").config, offline.address, "no-such-host.invalid:7443")
    assert "no-such-host.invalid" in run(offline)["coordinator"].detail


def test_a_configuration_that_does_not_parse_is_the_only_finding(offline):
    replace_in(offline.member("ada").config, "state_directory", "state_dir")
    found = run(offline)
    assert list(found) == ["configuration"]
    assert "did you mean 'state_directory'" in found["configuration"].detail


SPOILT = {
    "policy": ("policy.toml", 'epsilon = "10"', "epsilon = 10", "policy", "exact decimal"),
    "schema": ("schema.toml", "upper = 100", "upper = -1", "schema", "upper"),
    "data": ("data.csv", "30,yes,no", "130,yes,no", "data", "line 4"),
    "signing key": ("signing.key", "BEGIN", "BEGAN", "signing-key", "signing.key"),
    "federation key": ("federation.pub", "BEGIN", "BEGAN", "federation-key", "federation.pub"),
    "tls key": ("tls.key", "BEGIN", "BEGAN", "certificate", "tls.key"),
    "certificate": ("certificate.pem", "BEGIN", "BEGAN", "certificate", "certificate.pem"),
}


@pytest.mark.parametrize("case", SPOILT)
def test_each_spoilt_file_is_named(offline, case):
    name, old, new, finding, expected = SPOILT[case]
    replace_in(offline.directory("ada") / name, old, new)
    found = run(offline)
    assert found[finding].status == "failed"
    assert expected in found[finding].detail
    assert found[finding].fix
    failed = {n for n, f in found.items() if f.status == "failed"}
    assert failed <= {finding, "coordinator"}


@pytest.mark.parametrize("name", ["policy.toml", "schema.toml", "data.csv", "signing.key", "tls.key"])
def test_each_missing_file_is_named(offline, name):
    (offline.directory("ada") / name).unlink()
    found = run(offline)
    assert any(name in f.detail for f in found.values() if f.status == "failed")


def test_a_key_that_others_can_read_is_a_failure(offline):
    path = offline.directory("ada") / "signing.key"
    path.chmod(0o644)
    found = run(offline)
    for name in ("signing-key", "key-permissions"):
        assert found[name].status == "failed"
        assert f"chmod 600 {path}" in found[name].detail


def test_anothers_certificate_is_refused(offline):
    ada, bo = offline.directory("ada"), offline.directory("bo")
    (ada / "certificate.pem").write_bytes((bo / "certificate.pem").read_bytes())
    assert "rado://test/party/bo" in run(offline)["certificate"].detail


def test_a_certificate_near_its_end_is_advice_and_after_it_a_failure(offline):
    day = 86_400
    assert run(offline, now=time.time() + 340 * day)["certificate"].status == "advice"
    late = run(offline, now=time.time() + 366 * day)["certificate"]
    assert (late.status, "expired" in late.detail) == ("failed", True)


def test_a_policy_that_admits_nothing_is_advice(offline):
    (offline.directory("ada") / "policy.toml").write_text("")
    found = run(offline)["policy"]
    assert found.status == "advice"
    assert "learners and designs, or take one of `rado party policy`" in found.fix


def test_a_design_that_can_never_be_answered_is_advised(offline):
    assert run(offline)["policy"].status == "ok"
    replace_in(offline.directory("ada") / "policy.toml", "unbounded_queries = 1", "unbounded_queries = 0")
    assert "unbounded_queries = 0 refuses every query of plain and dp-feat" in run(offline)["policy"].fix


def test_a_limit_for_persons_without_ids_is_advised(offline):
    policy = offline.directory("ada") / "policy.toml"
    policy.write_text(f'{policy.read_text()}\n[limits.person]\nepsilon = "1"\ndelta = "1e-5"\n')
    assert "It limits persons, and no column says whose rows are" in run(offline)["policy"].fix


def test_a_one_class_party_is_advised(offline):
    (offline.directory("ada") / "data.csv").write_text("age,smoker,stayed\n30,yes,no\n40,no,no\n")
    found = run(offline)["data"]
    assert found.status == "advice"
    assert "negative" in found.fix


def test_what_the_schema_changes_is_named_also_if_it_is_little(offline):
    directory = offline.directory("ada")
    schema = offline.member("ada").directory / "schema.toml"
    schema.write_text(schema.read_text().replace('"refuse"', '"zero-vector"'))
    rows = [f"{n},{'yes' if n % 2 else 'no'},{'yes' if n % 3 else 'no'}\n" for n in range(100)]
    (directory / "data.csv").write_text("age,smoker,stayed\n" + "".join(rows).replace("31,", "old,", 1))
    found = run(offline)["data"]
    age = "in column 'age' 1 of 100 cells is unreadable (no finite number), and unreadable = \"zero-vector\""
    assert f"1 of 100 rows (1.0 %) becomes a zero vector: {age} leaves its row out" in found.fix
    assert age in found.detail
    # 38 % of the rows: below any half.
    odd = [row.replace("yes", "Yes") if n < 46 else row for n, row in enumerate(rows)]
    (directory / "data.csv").write_text("age,smoker,stayed\n" + "".join(odd))
    found = run(offline)["data"]
    assert "38 of 100 rows (38.0 %) become zero vectors: in column 'stayed' 30 of 100 cells are in neither" in found.fix
    assert ". In column 'smoker' 23 of 100 cells are in neither true nor false of the schema" in found.fix
    assert "would match without case" in found.fix
    assert "`rado party spellings` lists the texts" in found.fix


def test_the_ledger_shows_what_remains_and_the_check_does_not_create_it(offline):
    path = offline.directory("ada") / "state" / "ledger.sqlite"
    assert run(offline)["ledger"].status == "ok"
    assert not path.exists()
    limits = LedgerLimits(PrivacyLimit(Fraction(10), Fraction(1, 10)), unbounded_events=2)
    ledger = Ledger.open(path, LedgerOwner("test", "ada", "data.csv"), limits)
    four = ((marginal("smoker"), Loss.of_epsilon(Fraction(4), Fraction(0))),)
    for number, bounds in enumerate((four, ())):
        query_id = bytes([number]) * 32
        ledger.reserve(query_id, 1, Charge(bounds, "lea"), lapses_at_unix_s=1e12, now_unix_s=0)
        ledger.charge(query_id, 1, cohort_digest=b"c" * 32, spool_digest=b"s" * 32, now_unix_s=0)
    ledger.database.close()
    found = run(offline)["ledger"]
    assert found.status == "advice"
    assert (
        "marginal:smoker: spent epsilon 4, with reservations 4; one more answer fits up to 6 with Laplace noise"
        in found.detail
    )
    assert "without any privacy bound" in found.fix
    path.write_bytes(b"no ledger")
    assert run(offline)["ledger"].status == "failed"


def test_members_not_yet_accepted_are_listed_with_the_digits_to_compare(tmp_path_factory, served):
    ada = served.directory("ada")
    text = (ada / "policy.toml").read_text()
    bo = served.member("bo").fingerprint
    learner = served.learner.fingerprint
    try:
        (ada / "policy.toml").write_text(text.replace(bo, "0" * 64).replace(learner, "1" * 64))
        found = run(served)["accepted-members"]
    finally:
        (ada / "policy.toml").write_text(text)
    assert found.status == "advice"
    for member in (served.member("bo"), served.learner):
        digits = spoken(public_key_of(served.directory(member.name) / "signing.key"))
        assert f'rado party accept {member.name} --config party.toml --fingerprint "{digits}"' in found.fix
    assert "accept cy" not in found.fix
    assert "1 of 2 other parties" in found.detail


def test_a_policy_that_needs_more_parties_than_the_roster_has_is_advised(served):
    policy = served.directory("ada") / "policy.toml"
    text = policy.read_text()
    try:
        policy.write_text(f"smallest_cohort = 4\n{re.sub(r'(?m)^smallest_cohort.*$', '', text)}")
        found = run(served)["accepted-members"]
    finally:
        policy.write_text(text)
    assert found.status == "advice"
    assert "A cohort needs 4 accepted parties, and the roster has 3: every query is refused." in found.fix


def test_a_signing_key_that_is_not_the_rosters_is_a_failure(served, tmp_path):
    SigningKey.generate("clinics").save(tmp_path / "other.key")
    config = PartyConfig.load(served.member("ada").config).model_copy(update={"signing_key": tmp_path / "other.key"})
    found = {finding.name: finding for finding in preflight(config)}
    assert found["membership"].status == "failed"
    assert served.member("ada").fingerprint in found["membership"].detail


def test_another_federations_key_does_not_open_the_roster(served, offline):
    config = PartyConfig.load(served.member("ada").config)
    config = config.model_copy(update={"federation_key": offline.directory("ada") / "federation.pub"})
    found = {finding.name: finding for finding in preflight(config)}
    assert found["roster"].status == "failed"
    assert found["membership"].status == "not run"


class TlsServer:
    """Serves one certificate to every client, as a proxy that opens TLS does."""

    def __init__(self, certificate, key, port):
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self.context.load_cert_chain(certificate, key)
        self.listener = socket.create_server(("127.0.0.1", port))
        self.thread = threading.Thread(target=self.serve, daemon=True)

    def serve(self):
        while True:
            try:
                plain, _ = self.listener.accept()
            except OSError:
                return
            try:
                with self.context.wrap_socket(plain, server_side=True) as secured:
                    secured.recv(1)
            except OSError:
                continue

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(HANG_S)


def certificate_files(directory, authority, name, hosts, now):
    request = make_request(authority.federation, Role.COORDINATOR, name)
    pem = authority.sign_request(request.request_pem, Role.COORDINATOR, name, now, hosts=hosts)
    (directory / "proxy.pem").write_bytes(pem)
    create_durably(directory / "proxy.key", request.key_pem)
    return directory / "proxy.pem", directory / "proxy.key"


def test_a_proxy_that_opens_tls_is_named_by_its_issuer(offline, tmp_path):
    now = dt.datetime.now(dt.UTC)
    files = certificate_files(tmp_path, Authority.create("snoop", now), "coordinator", ("127.0.0.1",), now)
    with TlsServer(*files, int(offline.address.rpartition(":")[2])):
        found = run(offline)
    assert found["coordinator"].status == "ok"
    assert found["tls"].status == "failed"
    assert "snoop" in found["tls"].detail
    assert "opens TLS" in found["tls"].detail
    assert found["roster"].status == "not run"


def test_a_server_that_is_not_the_coordinator(offline):
    """Bo's own certificate, of the right authority."""
    bo = offline.directory("bo")
    with TlsServer(bo / "certificate.pem", bo / "tls.key", int(offline.address.rpartition(":")[2])):
        found = run(offline)
    assert found["tls"].status == "failed"
    assert "rado://test/party/bo" in found["tls"].detail


def test_an_address_that_the_certificate_does_not_name(served):
    port = served.address.rpartition(":")[2]
    config = PartyConfig.load(served.member("ada").config).model_copy(update={"coordinator": f"127.0.0.2:{port}"})
    found = {finding.name: finding for finding in preflight(config)}
    assert found["coordinator"].status in {"ok", "failed"}
    if found["coordinator"].ok:
        assert "127.0.0.2" in found["tls"].detail


def test_a_server_that_does_not_speak_tls(offline):
    listener = socket.create_server(("127.0.0.1", int(offline.address.rpartition(":")[2])))

    def answer():
        plain, _ = listener.accept()
        plain.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        plain.close()

    thread = threading.Thread(target=answer)
    thread.start()
    found = run(offline)
    thread.join(HANG_S)
    listener.close()
    assert found["coordinator"].status == "failed"
    assert "TLS" in found["coordinator"].detail


def test_a_state_directory_on_a_read_only_mount_is_refused_by_check_and_start(offline, small_disk, capsys):
    ada, state = offline.directory("ada"), small_disk / "state"
    state.mkdir()
    replace_in(ada / "party.toml", 'state_directory = "state"', f'state_directory = "{state}"')
    subprocess.run(["mount", "-o", "remount,ro", str(small_disk)], check=True, timeout=HANG_S)
    says = "cannot be written (Read-only file system; mount it for writing, or name another place in the configuration)"
    found = run(offline)["state-directory"]
    assert (found.status, found.detail) == ("failed", f"{state}: {says}")
    assert rado(["party", "start", "--config", str(ada / "party.toml")]) == 4
    assert says in capsys.readouterr().err


def test_rules_of_approval_that_name_who_is_not_there(offline):
    """A misspelt learner would not wait, and a misspelt user would never decide: neither is said when a query comes."""
    policy = offline.directory("ada") / "policy.toml"
    found = policy.read_text()
    me = pwd.getpwuid(os.getuid()).pw_name
    policy.write_text(f'{found}\n[approval]\nlearners = ["learner"]\nusers = ["{me}", "user 54321"]\n')
    assert run(offline)["decisions"].status == "ok"
    policy.write_text(
        f'{found}\n[approval]\nlearners = ["learner", "leaner"]\nusers = ["{me}", "no-such-user"]\napprovers = 3\n'
    )
    decisions = run(offline)["decisions"]
    assert decisions.status == "advice"
    assert "no learner called leaner:" in decisions.fix
    assert "no user no-such-user:" in decisions.fix
    assert "3 users must approve, and only 2 may" in decisions.fix
    assert "name a directory by decisions" in decisions.fix
    mixed = f'users = ["{me}", "sign-on:ann@example.org"]\napprovers = 2\n'
    policy.write_text(f'{found}\n[approval]\nlearners = ["learner"]\n{mixed}')
    assert "does not count beside a user of this machine" in run(offline)["decisions"].fix
