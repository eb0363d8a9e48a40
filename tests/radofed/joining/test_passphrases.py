"""Private keys with a passphrase: everything that reads them works with it, and says what to do without it."""

import stat
import subprocess

import pytest
from cryptography.hazmat.primitives import serialization

from dpcore.errors import ConfigurationError
from parties.config import PartyConfig
from parties.node import PartyNode
from radofed.certificates import Authority
from radofed.provision import provision
from tests.end_to_end.test_main_job import SCHEMA, table
from tests.federation.coordinator import RunningNode
from tests.federation.processes import free_port, rado
from tests.waiting import wait_until
from wire.envelopes import ENVIRONMENT, SigningKey, public_key_of
from wire.roster import Role


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    made = provision(
        tmp_path_factory.mktemp("keys") / "federation",
        federation="clinics",
        coordinator_address=f"127.0.0.1:{free_port()}",
        parties=["ada", "bob"],
    )
    (party, _), (hub,) = made.of(Role.PARTY), made.of(Role.COORDINATOR)
    (party.directory / "schema.toml").write_text(SCHEMA)
    (party.directory / "data.csv").write_text(table(300, 1))
    return party, hub, made.directory / "federation"


@pytest.fixture(scope="module")
def secret(tmp_path_factory):
    file = tmp_path_factory.mktemp("passphrase") / "passphrase"
    file.write_text("correct horse battery staple\n")
    file.chmod(0o600)
    return file


@pytest.fixture(scope="module")
def protected(plain, secret):
    """The keys of a party, the coordinator and the operator, encrypted in place."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(ENVIRONMENT, str(secret))
        party, hub, operator = plain
        before = public_key_of(party.directory / "signing.key")
        done = [rado("provision", "passphrase", str(place))["data"]["encrypted"]
                for place in (party.directory, hub.directory, operator)]  # fmt: skip
        assert done == [["signing.key", "tls.key"], ["tls.key"], ["ca.key", "federation.key"]]
        assert rado("provision", "passphrase", str(operator))["data"] == {"encrypted": []}
        assert public_key_of(party.directory / "signing.key") == before
    return plain


def keys(protected):
    party, hub, operator = protected
    return [*party.directory.glob("*.key"), *hub.directory.glob("*.key"), *operator.glob("*.key")]


def test_no_file_holds_a_key_in_the_open(protected):
    for file in keys(protected):
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert file.read_text().startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----")
        with pytest.raises(TypeError, match="encrypted"):
            serialization.load_pem_private_key(file.read_bytes(), password=None)


@pytest.mark.more
def test_nodes_connect_and_the_operator_signs_with_it(protected, secret, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, str(secret))
    party, hub, operator = protected
    from coordinator.config import CoordinatorConfig

    running = RunningNode(CoordinatorConfig.load(hub.config))
    try:
        with PartyNode(PartyConfig.load(party.config)) as node:
            wait_until(lambda: node.status()["last_contact_unix_s"], what="the party's contact")
            # It connects by OpenSSL, too.
            found = rado("party", "check", "--config", str(party.config))["data"]["findings"]
            assert {f["name"]: f["status"] for f in found}["tls"] == "ok"
    finally:
        running.close()
    assert Authority.load(operator).federation == "clinics"
    assert rado("provision", "renew-roster", str(operator))["data"]["version"] == 2


def test_without_the_passphrase_it_says_what_to_do(protected, secret, tmp_path, monkeypatch):
    party, _, operator = protected
    commands = [
        (["party", "check", "--config", str(party.config)], 1),
        (["provision", "renew-roster", str(operator)], 4),
        (["certificate", "needs-renewal", "--config", str(party.config)], 4),
    ]
    for command, code in commands:
        monkeypatch.delenv(ENVIRONMENT, raising=False)
        assert "needs a passphrase; write it into a file" in str(rado(*command, code=code))
        for content, says in (
            (b"wrong\n", "does not open with the passphrase"),
            (b"\n", "is empty"),
            (b"w" * 1024, "is longer than 1023 bytes; choose a shorter passphrase"),
        ):
            wrong = tmp_path / "wrong"
            wrong.write_bytes(content)
            wrong.chmod(0o600)
            monkeypatch.setenv(ENVIRONMENT, str(wrong))
            assert says in str(rado(*command, code=code))
        wrong.chmod(0o644)
        assert "chmod" in str(rado(*command, code=code))
        wrong.unlink()
        assert "wrong" in str(rado(*command, code=code))
    # Nothing that it says has the passphrase.
    assert "staple" not in str(rado(*commands[0][0], code=1))


def test_what_openssl_encrypts_is_read(plain, secret, tmp_path, monkeypatch):
    key = SigningKey.generate("clinics")
    key.save(tmp_path / "plain.key")
    done = subprocess.run(
        ["openssl", "pkcs8", "-topk8", "-in", tmp_path / "plain.key", "-out", tmp_path / "signing.key",
         "-passout", f"file:{secret}"],
        check=False, capture_output=True,
    )  # fmt: skip
    if done.returncode:
        pytest.skip("no openssl")
    (tmp_path / "signing.key").chmod(0o600)
    monkeypatch.setenv(ENVIRONMENT, str(secret))
    assert public_key_of(tmp_path / "signing.key") == key.public_bytes


def test_a_directory_without_keys_and_a_file_that_is_none(secret, tmp_path, monkeypatch):
    monkeypatch.setenv(ENVIRONMENT, str(secret))
    assert "has no file *.key" in rado("provision", "passphrase", str(tmp_path), code=4)["error"]["message"]
    (tmp_path / "a.key").write_text("no key")
    (tmp_path / "a.key").chmod(0o600)
    assert "is not a readable private key" in rado("provision", "passphrase", str(tmp_path), code=4)["error"]["message"]
    assert (tmp_path / "a.key").read_text() == "no key"
    monkeypatch.delenv(ENVIRONMENT)
    with pytest.raises(ConfigurationError, match=ENVIRONMENT):
        from radofed.joining.installing import set_passphrases

        set_passphrases(tmp_path)


def test_a_passphrase_that_others_can_read_is_called_a_passphrase(protected, secret, monkeypatch, tmp_path):
    file = tmp_path / "passphrase"
    file.write_bytes(secret.read_bytes())
    file.chmod(0o644)
    monkeypatch.setenv(ENVIRONMENT, str(file))
    with pytest.raises(ConfigurationError) as caught:
        SigningKey.load(protected[0].directory / "signing.key", "clinics")
    assert str(caught.value) == (
        f"{file}: other users can read or change this passphrase (mode 0644); if others may have it and a copy of the "
        f"keys, replace the keys; otherwise run: chmod 600 {file}"
    )
