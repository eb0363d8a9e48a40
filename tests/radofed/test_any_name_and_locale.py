"""Files of any name, and output of any locale."""

import gzip
import os
import subprocess
import sys

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from radofed.cli.entry_point import run

TEXT = "age,city,ill\n" + "".join(f"{30 + n % 9},{('Genève', 'Zürich')[n % 2]},{n % 3 % 2}\n" for n in range(90))


@pytest.mark.variants(2)
@pytest.mark.parametrize("ending", [b".csv", b".csv.gz", b".parquet", b""])
def test_a_file_name_may_be_any_bytes(tmp_path, ending, capsys):
    path = os.fsencode(tmp_path) + b"/d\xe9j\xe0" + ending
    table = pa.table({"age": [30, 31, 32] * 30, "ill": [0, 1, 1] * 30})
    if ending in (b".parquet", b""):
        if not ending:
            os.mkdir(path)  # noqa: PTH102  (a name of bytes)
        with open(path if ending else path + b"/part\xe9.parquet", "wb") as file:  # noqa: PTH123
            pq.write_table(table, file)
    else:
        content = TEXT.encode()
        with open(path, "wb") as file:  # noqa: PTH123
            file.write(gzip.compress(content) if ending.endswith(b".gz") else content)
    name, schema = os.fsdecode(path), str(tmp_path / "schema.toml")
    assert run(["schema", "infer", name, "--label", "ill", "--positive", "1", "--output", schema]) == 0
    assert run(["schema", "check", schema, name, "--format", "yaml"]) == 0
    assert "rows: 90" in capsys.readouterr().out
    assert run(["schema", "infer", name + "x.csv", "--label", "ill", "--positive", "1"]) == 4
    assert "\\udce9" in capsys.readouterr().err


@pytest.mark.more
def test_what_is_printed_into_a_file_is_utf_8(tmp_path):
    table, schema = tmp_path / "table.csv", tmp_path / "schema.toml"
    table.write_text(TEXT, encoding="utf-8")
    command = [sys.executable, "-m", "radofed", "schema"]
    own = {**os.environ, "PYTHONIOENCODING": "utf-16"}
    with schema.open("wb") as file:
        asked = [*command, "infer", str(table), "--label", "ill", "--positive", "1"]
        subprocess.run(asked, stdout=file, stderr=subprocess.DEVNULL, env=own, check=True)
    assert '"Genève"' in schema.read_text(encoding="utf-8")
    subprocess.run([*command, "check", str(schema), str(table)], capture_output=True, check=True)


POSIX = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}


@pytest.fixture(scope="module")
def said(tmp_path_factory):
    """What commands print into a pipe and write, by the variables that say which locale it is."""
    root = tmp_path_factory.mktemp("locales")
    table, written = root / "table.csv", root / "written.toml"
    table.write_text(TEXT.replace("city", "città").replace("Zürich", "東京"), encoding="utf-8")

    def by_commands(locale):
        def rado(*arguments):
            command = [sys.executable, "-m", "radofed", "schema", *map(str, arguments)]
            return subprocess.run(command, capture_output=True, check=True, env={**os.environ, **locale}).stdout

        infer = ("infer", table, "--label", "ill", "--positive", "1")
        written.unlink(missing_ok=True)
        printed = rado(*infer)
        rado(*infer, "--output", written)
        return printed, written.read_bytes(), rado("check", written, table, "--format", "yaml")

    return by_commands


@pytest.fixture(scope="module")
def said_in_utf_8(said):
    return said({"PYTHONUTF8": "1"})


@pytest.mark.more
@pytest.mark.parametrize("locale", [POSIX, {"PYTHONIOENCODING": "ascii:strict"}])
def test_no_locale_changes_a_byte(said, said_in_utf_8, locale):
    """What is printed into a pipe, what a command writes, and what its notes say without failing."""
    assert said(locale) == said_in_utf_8
    assert "東京".encode() in said_in_utf_8[0]


@pytest.mark.more
def test_an_argument_that_is_no_text_in_this_locale_is_said_to_be_none():
    """The name of a column seemed not to be in a schema that has it."""
    asked = [sys.executable, "-m", "radofed", "plan", "--design", "moments", "--rows", "9", "--statistic", "città"]
    result = subprocess.run(asked, capture_output=True, check=False, env={**os.environ, **POSIX})
    assert result.returncode == 4
    assert b"set PYTHONUTF8=1 if it is UTF-8" in result.stderr
