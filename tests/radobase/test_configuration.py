import json
import logging
from pathlib import Path

import pytest
from pydantic import Field

from dpcore.errors import ConfigurationError
from radobase.configuration import ConfigPath, Configuration
from radobase.logs import JsonLines, Log
from wire.identity import TlsConfiguration


class Sample(Configuration):
    name: str
    upload_within_s: int = 5
    layout: str = Field("x", alias="schema")
    data: ConfigPath
    tls: TlsConfiguration


GOOD = """
name = "a"
data = "rows.csv"
[tls]
ca = "ca.pem"
certificate = "/abs/c.pem"
key = "k.pem"
"""


def load(tmp_path, text):
    path = tmp_path / "sample.toml"
    path.write_text(text)
    return Sample.load(path)


def test_paths_are_relative_to_the_file(tmp_path):
    sample = load(tmp_path, GOOD)
    assert sample.data == tmp_path / "rows.csv"
    assert sample.tls.certificate == Path("/abs/c.pem")
    assert sample.tls.files.key == tmp_path / "k.pem"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (("name = ", "nmae = "), "did you mean 'name'"),
        (("certificate = ", "certificat = "), "did you mean 'certificate'"),
        (('data = "rows.csv"', 'shema = "x"'), "did you mean 'schema'"),
        (('data = "rows.csv"', ""), "'data' is missing"),
        (('name = "a"', "name = 3"), "'name'"),
        (("[tls]", "[tls"), "not valid TOML"),
    ],
)
def test_faults_are_named(tmp_path, change, expected):
    with pytest.raises(ConfigurationError, match=r"sample\.toml") as caught:
        load(tmp_path, GOOD.replace(*change))
    assert expected in str(caught.value)


def test_absent_file_is_named(tmp_path):
    with pytest.raises(ConfigurationError, match=r"absent\.toml"):
        Sample.load(tmp_path / "absent.toml")


def test_log_lines_are_json():
    record = logging.LogRecord("party", logging.INFO, "", 0, "query accepted", None, None)
    record.fields = {"query": b"\x01\x02", "rows": 3}
    line = json.loads(JsonLines().format(record))
    assert (line["node"], line["event"], line["query"], line["rows"]) == ("party", "query accepted", "0102", 3)


def test_log_keeps_the_trace_of_a_bug(caplog):
    try:
        int("x")
    except ValueError:
        Log("node").exception("call failed", method="m")
    assert "ValueError" in json.loads(JsonLines().format(caplog.records[0]))["trace"]
