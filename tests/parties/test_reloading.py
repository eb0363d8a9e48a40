"""`rado party reload`: a running node reads its policy and its data again, and says what became of it."""

import json
import re
import signal
import threading
from dataclasses import replace

import pytest

from dpcore.errors import ConfigurationError, DataError
from dpcore.records.features import BooleanFeature
from dpcore.records.held_back import RowKey
from parties.config import PartyConfig
from parties.data.dataset import load
from parties.data.held_data import HeldData
from parties.local_control import DataReloads
from radobase.logs import Log
from radofed.cli.entry_point import run
from tests.federation.material import STAYS
from tests.federation.processes import ProcessFederation, rado
from tests.waiting import HANG_S, wait_until

SCHEMA = STAYS.to_toml()
ROWS = "age,smoker,stayed\n50,yes,yes\n20,no,no\n30,yes,no\n"
OTHER_ROWS = "age,smoker,stayed\n50,yes,yes\n20,no,no\n"
SECRET = b"test secret".ljust(32)
HELD_BACK_KEY = RowKey(SECRET, "test", "ada", "data")


@pytest.fixture
def federation(tmp_path):
    with ProcessFederation(tmp_path, parties=dict.fromkeys(("ada", "bo"), ROWS), schema=SCHEMA) as made:
        yield made


def config(federation, name="ada") -> str:
    return str(federation.member(name).config)


def test_a_running_node_reads_both_again_and_keeps_what_it_has_if_it_cannot(federation):
    data, policy = (federation.directory("ada") / name for name in ("data.csv", "policy.toml"))
    assert "start it" in rado("party", "reload", "--config", config(federation), code=2)["error"]["message"]
    policy.write_text(f'{policy.read_text()}\n[data]\nlargest_drop_in_rows = "1"\n')
    federation.start("ada")
    wait_until(lambda: '"started"' in federation.log("ada"), what="the node")
    first = rado("party", "status", "--config", config(federation))["data"]["data"]
    assert (first["rows"], first["reloads_asked"], len(first["digest"])) == (3, 0, 64)

    data.write_text(OTHER_ROWS)
    found = rado("party", "reload", "--config", config(federation))["data"]
    second = found["data"]
    assert (second["rows"], second["reloads"], second["refused"]) == (2, 1, "")
    assert second["digest"] != first["digest"]
    assert second["loaded_at_unix_s"] > first["loaded_at_unix_s"]
    assert (found["policy"]["reloads"], found["policy"]["refused"]) == (1, "")
    assert found["data_changed"]
    again = rado("party", "reload", "--config", config(federation))["data"]
    assert (again["data_changed"], again["data"]["loaded_at_unix_s"]) == (False, second["loaded_at_unix_s"])
    assert rado("party", "status", "--config", config(federation))["data"]["rows"] == 2

    data.write_text(OTHER_ROWS + "61.803398,perhaps,no\n")
    policy.write_text(policy.read_text() + "\nunknown = 1\n")
    found = rado("party", "reload", "--config", config(federation), code=1)["data"]
    assert "line 4, column 'smoker'" in found["data"]["refused"]
    assert "unknown" in found["policy"]["refused"]
    assert {**found["data"], "refused": "", "reloads": 1, "reloads_asked": 1} == second
    assert found["data"]["reloads"] == 3
    assert "61.803398" not in federation.log("ada") + str(found)
    # The data alone, by a signal.
    data.write_text(ROWS)
    federation.processes["ada"].send_signal(signal.SIGUSR1)
    wait_until(lambda: federation.log("ada").count('"data reloaded"') == 2, what="the reload")
    present = rado("party", "status", "--config", config(federation))["data"]
    assert present["data"]["digest"] == first["digest"]
    assert (present["data"]["refused"], "unknown" in present["policy"]["refused"]) == ("", True)
    assert federation.stop("ada") == 0


def test_what_the_schema_changes_is_said_in_the_log_the_status_and_on_reload(federation, capsys):
    member = federation.member("ada")
    lenient = SCHEMA.replace('missing = "refuse"', 'missing = "zero-vector"').replace("refuse", "zero-vector")
    (member.directory / "schema.toml").write_text(lenient)
    data = federation.directory("ada") / "data.csv"
    # A number that is none stops no party, and 2 of 5 rows are below any half.
    data.write_text("age,smoker,stayed\n50,yes,yes\n20,no,no\n31415926abc,yes,no\n35,kanarienvogel,no\n36,YES,no\n")
    federation.start("ada")
    wait_until(lambda: '"started"' in federation.log("ada"), what="the node")
    smoker = (
        "In column 'smoker' 2 of 5 cells are in neither true nor false of the schema, and unknown = \"zero-vector\" "
        "leaves their rows out; 1 of them would match without case, blanks and Unicode form"
    )
    age = (
        "In column 'age' 1 of 5 cells is unreadable (no finite number), and unreadable = \"zero-vector\" leaves "
        "its row out"
    )
    found = rado("party", "status", "--config", config(federation))["data"]["data"]
    assert [change["sentence"] for change in found["changes"]] == [smoker, age]
    assert (found["rows"], found["zero_vectors"], found["changes_in_all"]) == (5, 3, 2)
    lines = [json.loads(line) for line in federation.log("ada").splitlines()]
    logged = [line for line in lines if line["event"] == "cells changed"]
    assert [line["sentence"] for line in logged] == [smoker, age]
    assert any(smoker.removeprefix("In") in line.get("warning", "") for line in lines if line["level"] == "warning")

    data.write_text("age,smoker,stayed\n50,yes,yes\n20,no,no\n31,yes,perhaps\n" + "40,no,no\n" * 20)
    changed = rado("party", "reload", "--config", config(federation))["data"]["data"]
    assert [(each["column"], each["policy"], each["cells"], each["many"]) for each in changed["changes"]] == [
        ("stayed", "label.missing", 1, False)
    ]
    assert run(["party", "status", "--config", config(federation)]) == 0
    shown = capsys.readouterr().out
    assert "23 rows, 1 of them not usable" in shown
    assert 'and label.missing = "zero-vector" leaves its row out' in shown
    for cell in ("31415926", "kanarienvogel", "perhaps"):
        assert cell not in federation.log("ada") + shown
    assert federation.stop("ada") == 0


def test_rows_that_lost_their_meaning_wait_for_a_person(federation):
    """An export that leaves a column empty loads, and leaves no usable row."""
    data, at = federation.directory("ada") / "data.csv", ("--config", config(federation))
    federation.start("ada")
    wait_until(lambda: '"started"' in federation.log("ada"), what="the node")
    assert rado("party", "accept-rows", "--usable", "3", *at)["data"]["changed"] is False
    data.write_text(re.sub(r"(?m)^\d+,", ",", ROWS))
    found = rado("party", "reload", *at, code=1)["data"]
    assert (found["data_changed"], found["usable_rows"], found["data"]["refused"]) == (True, 0, "")
    assert set(found["rows_not_accepted"]) == {"ROWS_UNUSABLE", "ROWS_DROPPED"}
    status = rado("party", "status", *at)["data"]
    assert {"ROWS_UNUSABLE", "ROWS_DROPPED"} <= set(status["not_ready"])
    assert "3 of 3 rows become zero vectors (100 %)" in status["rows_not_accepted"]["ROWS_UNUSABLE"]
    # Also over a restart, and in the preflight.
    assert federation.stop("ada") == 0
    federation.start("ada")
    wait_until(lambda: federation.log("ada").count('"started"') == 2, what="the node")
    checked = {each["name"]: each for each in rado("party", "check", *at, code=1)["data"]["findings"]}
    assert checked["row-limits"]["status"] == checked["node"]["status"] == "failed"
    assert "accept-rows" in checked["row-limits"]["fix"]
    assert "not 3" in rado("party", "accept-rows", "--usable", "3", *at, code=4)["error"]["message"]
    assert "ROWS_UNUSABLE" in rado("party", "status", *at)["data"]["not_ready"]
    made, reasons = (
        rado("party", "accept-rows", "--usable", "0", *at)["data"],
        list(status["rows_not_accepted"].values()),
    )
    assert made == {"changed": True, "rows": 3, "usable": 0, "accepted": reasons}
    status = rado("party", "status", *at)["data"]
    assert not {"ROWS_UNUSABLE", "ROWS_DROPPED"} & set(status["not_ready"])
    assert federation.stop("ada") == 0
    assert "start it" in rado("party", "accept-rows", "--usable", "0", *at, code=2)["error"]["message"]


def test_cells_that_lost_their_values_wait_for_a_person(federation, capsys):
    """A boolean is written as 0 and 1, and the schema imputes what it does not know: no row is lost."""
    data, at = federation.directory("ada") / "data.csv", ("--config", config(federation))
    smoker = BooleanFeature(
        name="smoker", true=("yes",), false=("no",), missing="impute", unknown="impute", impute=False
    )
    imputing = replace(STAYS, features=(STAYS.features[0], smoker))
    (federation.directory("ada") / "schema.toml").write_text(imputing.to_toml())
    federation.start("ada")
    wait_until(lambda: '"started"' in federation.log("ada"), what="the node")
    data.write_text(ROWS.replace("yes,", "1,").replace("no,", "0,"))
    found = rado("party", "reload", *at, code=1)["data"]
    assert (found["usable_rows"], set(found["rows_not_accepted"])) == (3, {"CELLS_CHANGED"})
    assert "100 % of the cells of feature 'smoker', it was 0 %" in found["rows_not_accepted"]["CELLS_CHANGED"]
    status = rado("party", "status", *at)["data"]
    assert status["changed_cells"] == {"age": 0, "smoker": 3}
    assert "CELLS_CHANGED" in status["not_ready"]
    checked = {each["name"]: each for each in rado("party", "check", *at, code=1)["data"]["findings"]}
    assert checked["row-limits"]["status"] == "failed"
    assert run(["party", "accept-rows", "--usable", "3", *at]) == 0
    assert "what was accepted: the schema's policies replace or clip 100 % of the cells" in capsys.readouterr().out
    assert "CELLS_CHANGED" not in rado("party", "status", *at)["data"]["not_ready"]
    assert federation.stop("ada") == 0


def test_equal_rows_of_two_parties_have_digests_that_differ(federation):
    """A digest that people pass on confirms no guess of the rows: it is made with the party's secret."""
    ada, bo = (PartyConfig.load(federation.member(name).config) for name in ("ada", "bo"))
    digests = [HeldData.load(ada, SECRET, Log("test")).digest, HeldData.load(bo, SECRET, Log("test")).digest]
    assert len(set(digests)) == 1
    assert HeldData.load(bo, b"another".ljust(32), Log("test")).digest not in digests


def digest_of(path, rows, **options) -> bytes:
    path.write_text(rows)
    return load(path, STAYS, **options).report.digest


def test_a_digest_is_of_values_order_and_ids(tmp_path):
    rows = ["50,yes,yes,a1", "20,no,no,a2", "30,yes,no,a3"]

    def of(lines, **options):
        return digest_of(tmp_path / "data.csv", "\n".join(["age,smoker,stayed,id", *lines, ""]), **options)

    first = of(rows)
    assert of(rows) == first
    changed = [["51,yes,yes,a1", *rows[1:]], ["50,no,yes,a1", *rows[1:]], ["50,yes,no,a1", *rows[1:]]]
    others = {of(lines) for lines in [*changed, rows[::-1], rows[:2]]}
    assert len(others | {first}) == 6
    # Columns outside the schema do not count, ids do where they decide which rows are held back.
    renamed = [rows[0].replace("a1", "b1"), *rows[1:]]
    assert of(renamed) == first
    key = {"row_key": HELD_BACK_KEY, "id_column": "id"}
    assert of(rows, **key) != of(renamed, **key)


def test_a_digest_does_not_depend_on_the_blocks_that_a_source_gives(tmp_path, monkeypatch):
    rows = "age,smoker,stayed\n" + "".join(f"{n % 90},{'yes' if n % 3 else 'no'},no\n" for n in range(700))
    first = digest_of(tmp_path / "data.csv", rows)
    monkeypatch.setattr("radobase.tables.csv_table._BLOCK_BYTES", 512)
    assert digest_of(tmp_path / "data.csv", rows) == first


@pytest.fixture
def held(federation):
    return HeldData.load(PartyConfig.load(federation.member("ada").config), SECRET, Log("test"))


def test_requests_while_data_are_loaded_are_one_more_load(held):
    begun, go_on, taken = threading.Event(), threading.Event(), []

    def load_slowly(_progress):
        begun.set()
        assert go_on.wait(HANG_S)
        return replace(held, digest=f"digest {len(taken)}")

    with DataReloads(load_slowly, taken.append, Log("test"), held) as reloads:
        reloads.ask()
        assert begun.wait(HANG_S)
        reloads.ask()
        reloads.ask()
        assert reloads.status()["reloads"] == 0
        go_on.set()
        wait_until(lambda: reloads.status()["reloads"] == 3, what="the loads")
        assert [each.digest for each in taken] == ["digest 0", "digest 1"]


def test_equal_data_stay_under_the_name_of_the_new_load(held):
    """What is charged must not depend on whether the rows changed."""
    taken, again = [], HeldData(held.dataset, held.secret, held.digest, 1e12)
    with DataReloads(lambda _: again, taken.append, Log("test"), held) as reloads:
        reloads.ask()
        wait_until(lambda: reloads.status()["reloads"] == 1, what="the load")
    assert taken == [replace(held, name=again.name)]
    assert again.name != held.name
    assert reloads.status()["refused"] == ""


def test_a_load_that_fails_unexpectedly_changes_nothing_and_the_next_may_succeed(held):
    results = [ZeroDivisionError("61.803398"), DataError("no rows"), replace(held, digest="new")]

    def load_next(_progress):
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    taken = []
    with DataReloads(load_next, taken.append, Log("test"), held) as reloads:
        for number, refused in enumerate(["ZeroDivisionError; see the log of the node", "no rows", ""], start=1):
            reloads.ask()
            wait_until(lambda number=number: reloads.status()["reloads"] == number, what="the load")
            assert reloads.status()["refused"] == refused
    assert [each.digest for each in taken] == ["new"]


def test_a_node_that_stops_ends_a_load(held):
    begun = threading.Event()

    def load_for_ever(progress):
        begun.set()
        while True:
            progress(1)

    with DataReloads(load_for_ever, lambda _: None, Log("test"), held) as reloads:
        reloads.ask()
        assert begun.wait(HANG_S)
    assert not reloads._thread.is_alive()


def test_a_change_of_the_recode_file_is_a_change_of_the_data(federation):
    """What was accepted before it is not computed after it: the digest that an acceptance keeps is another."""
    path, file = federation.member("ada").config, federation.directory("ada") / "recode.toml"
    text = path.read_text()
    path.write_text(text.replace("\n[tls]", '\nrecode = "recode.toml"\n[tls]'))
    digests = []
    for cells in ('"ja" = "yes"', '"ja" = "yes"\n', '"ja" = "no"'):
        file.write_text(f"[columns.smoker.cells]\n{cells}")
        digests.append(HeldData.load(PartyConfig.load(path), SECRET, Log("test")).digest)
    path.write_text(text)
    digests.append(HeldData.load(PartyConfig.load(path), SECRET, Log("test")).digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 3
    # The configuration itself may say the same, and faults then name it.
    path.write_text(f'{text}\n[recode.columns.smoker.cells]\n"ja" = "yes"\n')
    assert HeldData.load(PartyConfig.load(path), SECRET, Log("test")).digest == digests[0]
    found = rado("party", "check", "--config", str(path), code=1)["data"]["findings"]
    assert "in the configuration: smoker; digest" in next(each["detail"] for each in found if each["name"] == "recode")
    path.write_text(f'{text}\n[recode.columns.smoker.cells]\n"ja" = "perhaps"\n')
    with pytest.raises(
        ConfigurationError, match=r"^party.toml, recode: columns.smoker.cells.ja: 'perhaps' is not listed"
    ):
        HeldData.load(PartyConfig.load(path), SECRET, Log("test"))
