"""The address of a database: what is accepted, what it is called, and that it never holds a password."""

import re
from pathlib import Path

import pytest

from dpcore.errors import ConfigurationError
from parties.config import PartyConfig
from radobase.tables.database_source import DatabaseSource

PASSWORD = "hunter2"


@pytest.mark.parametrize(
    ("address", "name", "shown"),
    [
        ("postgresql://db.example.org/clinic", "clinic", "postgresql://db.example.org/clinic"),
        ("postgres://ada@[::1]:5433/cl%20inic?sslmode=require", "cl inic", "postgresql://[::1]:5433/cl%20inic"),
        ("postgresql://a:1,b:2/x", "x", "postgresql://a:1,b:2/x"),
        ("postgresql:///x?host=/run/postgresql", "x", "postgresql:///x"),
        ("postgresql://?service=clinic", "postgresql", "postgresql://"),
        ("sqlite:data/a.db", "a.db", "sqlite:/base/data/a.db"),
        ("duckdb:/a.duckdb", "a.duckdb", "duckdb:/a.duckdb"),
    ],
)
def test_an_address_and_its_names(address, name, shown):
    source = DatabaseSource.of(address, "SELECT 1", directory=Path("/base"))
    assert (source.name, str(source)) == (name, shown)


@pytest.mark.parametrize(
    "address",
    [
        f"postgresql://ada:{PASSWORD}@host/db",
        f"postgresql://:{PASSWORD}@host/db",
        f"postgresql://ada:{PASSWORD}/x@host/db",
        f"postgresql://ada:a@{PASSWORD}@host/db",
        f"postgresql://host/db?password={PASSWORD}",
        f"postgresql://host/db?sslmode=require&PassWord={PASSWORD}",
        f"postgresql://host/db?pass%77ord={PASSWORD}",
        f"postgresql://host/db?sslpassword={PASSWORD}",
        f"postgresql://host,other?password={PASSWORD}",
        f"postgresql://ada:{PASSWORD}#@host/db",
        f"postgresql:host=x password={PASSWORD}",
        f"mysql://ada:{PASSWORD}@host/db",
    ],
)
def test_a_password_in_the_address_is_refused_and_not_quoted(tmp_path, address):
    with pytest.raises(ValueError, match=r"password|use ") as caught:
        DatabaseSource.of(address, "SELECT 1")
    config = tmp_path / "party.toml"
    config.write_text(PARTY + f"source = '{address}'\nquery = 'SELECT 1'\n" + TLS)
    with pytest.raises(ConfigurationError, match="'source': ") as refused:
        PartyConfig.load(config)
    for error in (caught.value, refused.value, refused.value.__cause__):
        assert PASSWORD not in str(error)
        assert PASSWORD not in repr(error)
    if "mysql" not in address and " " not in address:
        assert re.search("must not contain a password", str(refused.value))


PARTY = """
federation = "clinics"
name = "north"
coordinator = "host:1"
federation_key = "f.pem"
signing_key = "s.pem"
state_directory = "state"
policy = "policy.toml"
schema = "schema.toml"
"""
TLS = '[tls]\nca = "ca.pem"\ncertificate = "c.pem"\nkey = "k.pem"\n'


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("", "name the table either by data, a file, or by source"),
        ('data = "d.csv"\nsource = "sqlite:d.db"\nquery = "SELECT 1"', "name the table either by data"),
        ('source = "sqlite:d.db"', "source needs a query"),
        ('data = "d.csv"\nquery = "SELECT 1"', "query, key_column and password_file are for a database"),
        ('source = "sqlite:d.db"\nquery = "SELECT 1"\npassword_file = "p"', "sqlite has no passwords"),
        ('data = "postgresql://host/db"', "name it as source, with a query"),
        ('source = "sqlite:"\nquery = "SELECT 1"', 'use "sqlite:path"'),
        ('source = "sqlite:~no-such-user/d.db"\nquery = "SELECT 1"', "home directory is not known"),
        ('source = "d.db"\nquery = "SELECT 1"', "is not the address of a database"),
    ],
)
def test_a_configuration_names_one_table(tmp_path, keys, says):
    config = tmp_path / "party.toml"
    config.write_text(PARTY + keys + "\n" + TLS)
    with pytest.raises(ConfigurationError, match=says):
        PartyConfig.load(config)


def test_paths_are_relative_to_the_configuration(tmp_path):
    config = tmp_path / "party.toml"
    config.write_text(PARTY + 'source = "sqlite:rows/d.db"\nquery = "SELECT 1"\n' + TLS)
    loaded = PartyConfig.load(config)
    assert loaded.table == DatabaseSource("sqlite", str(tmp_path / "rows/d.db"), "SELECT 1")
    assert loaded.source == "d.db"


@pytest.mark.parametrize(
    ("address", "environment", "mode"),
    [
        ("postgresql://db.example.org/x", {}, "verify-full"),
        ("postgresql://localhost,10.0.0.1/x", {}, "verify-full"),
        ("postgresql://localhost/x?hostaddr=10.0.0.1", {}, "verify-full"),
        ("postgresql:///x", {"PGHOST": "db.example.org"}, "verify-full"),
        ("postgresql:///x", {"PGSERVICE": "clinic"}, "verify-full"),
        ("postgresql://db.example.org/x", {"PGSSLMODE": "require"}, "require"),
        ("postgresql://db.example.org/x?sslmode=disable", {}, None),
        ("postgresql://localhost:5433/x", {}, None),
        ("postgresql://[::1]:5433/x", {}, None),
        ("postgresql://%2Frun%2Fpostgresql/x", {}, None),
        ("postgresql:///x", {}, None),
    ],
)
def test_another_machine_must_prove_who_it_is(address, environment, mode):
    added = DatabaseSource.of(address, "SELECT 1").connection(environment).removeprefix(address)
    found = re.search(r"sslmode=([a-z-]+)", added)
    assert (found and found[1]) == mode
