"""Reading files: what is accepted, what is refused, and that only one module reads files."""

import ast
import io
import os
from pathlib import Path

import numpy as np
import pytest

from coordinator.config import CoordinatorConfig
from dpcore.errors import ConfigurationError, SchemaError
from dpcore.records.schema import Schema
from parties.policy import Policy
from radobase.configuration import ConfigPath, Configuration
from radobase.reading import (
    FileKind,
    open_file,
    parse_json,
    read_array,
    read_bytes,
    read_json,
    read_text,
    read_toml,
    with_remedy,
)

ROOT = Path(__file__).parents[2]
PACKAGES = ("parties", "coordinator", "learner", "wire", "radobase", "radofed", "dpcore")
LIMIT_BYTES = 1000
KIND = FileKind(with_remedy("fix it"), limit_bytes=LIMIT_BYTES)
SECRET = FileKind(with_remedy("fix it"), limit_bytes=LIMIT_BYTES, secret=True)
OWN = FileKind(with_remedy("fix it"), limit_bytes=LIMIT_BYTES, own=True)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "file"


def test_a_file_of_exactly_the_limit_is_read_and_a_larger_one_is_not(path):
    path.write_bytes(b"x" * LIMIT_BYTES)
    assert read_bytes(path, KIND) == b"x" * LIMIT_BYTES
    path.write_bytes(b"x" * (LIMIT_BYTES + 1))
    with pytest.raises(ConfigurationError, match=r"file: has 1001 bytes, .* at most 1000; fix it"):
        read_bytes(path, KIND)


def test_a_file_that_is_too_large_is_not_read(path):
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(ConfigurationError, match=f"has {1 << 40} bytes"), open_file(path, KIND):
        raise AssertionError("it was opened")


def test_a_file_that_grows_while_it_is_read_is_held_to_the_limit(path, monkeypatch):
    """As a file in a file system that reports no size."""
    real = os.fstat

    def small(descriptor):
        found = real(descriptor)
        return os.stat_result((*found[:6], 0, *found[7:10]))

    monkeypatch.setattr(os, "fstat", small)
    path.write_bytes(b"x" * LIMIT_BYTES)
    assert read_bytes(path, KIND) == b"x" * LIMIT_BYTES
    path.write_bytes(b"x" * (LIMIT_BYTES + 1))
    with pytest.raises(ConfigurationError, match="at most 1000"):
        read_bytes(path, KIND)


def test_an_error_while_reading_names_the_file(path):
    path.write_bytes(b"x")
    with pytest.raises(ConfigurationError, match=r"file: cannot be read \(It broke\); fix it"), open_file(path, KIND):
        raise OSError(5, "It broke")
    with pytest.raises(ConfigurationError, match="memory"), open_file(path, KIND):
        raise MemoryError


def test_no_descriptor_stays_open(tmp_path):
    """A process that reads its policy repeatedly must not run out of descriptors."""
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(5):
        with pytest.raises(ConfigurationError):
            read_bytes(tmp_path, KIND)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_every_line_ends_as_a_line_feed(path):
    path.write_bytes(b"a\r\nb\rc\n")
    assert read_text(path, KIND) == "a\nb\nc\n"


@pytest.mark.parametrize("text", ["18446744073709551615", "-9223372036854775808", "1.5e300", "true", "null"])
def test_numbers_that_are_accepted(path, text):
    path.write_text(f'{{"a": [{text}]}}')
    assert list(read_json(path, KIND)) == ["a"]


@pytest.mark.parametrize(
    "text", ["18446744073709551616", "-9223372036854775809", "1" * 21, "1e999", "-Infinity", "NaN"]
)
def test_numbers_that_are_refused(path, text):
    with pytest.raises(ConfigurationError, match="file: not valid JSON"):
        parse_json(f'{{"a": [{text}]}}', path, KIND)


def test_more_values_than_memory_is_meant_for(path, monkeypatch):
    monkeypatch.setattr("radobase.reading._MOST_VALUES", 5)
    assert parse_json('{"a": [1, 2, 3]}', path, KIND) == {"a": [1, 2, 3]}
    with pytest.raises(ConfigurationError, match="more than 5 values"):
        parse_json('{"a": [1, 2, 3, 4, 5]}', path, KIND)


@pytest.mark.parametrize("text", ["[]", "1", '"a"', "null"])
def test_json_that_is_not_an_object(path, text):
    with pytest.raises(ConfigurationError, match="not an object"):
        parse_json(text, path, KIND)


@pytest.mark.parametrize("value", ["0xffffffffffffffffff", "[1, {a = 0x1" + "0" * 20 + "}]"])
def test_toml_s_integers_have_64_bits(path, value):
    path.write_text(f"a = {value}")
    with pytest.raises(ConfigurationError, match=r"not valid TOML \(it has an integer of more than 64 bits\); fix it"):
        read_toml(path, KIND)
    path.write_text("a = 0x7fffffffffffffff")
    assert read_toml(path, KIND) == {"a": (1 << 63) - 1}


def test_a_secret_s_content_is_never_quoted(path):
    path.write_bytes(b'{"p": \xff"secret')
    for read in (read_json, read_text):
        with pytest.raises(ConfigurationError) as caught:
            read(path, SECRET)
        assert str(caught.value) == f"{path}: not valid UTF-8 text; fix it"
        assert caught.value.__cause__ is None
    path.write_bytes(b"[secret")
    with pytest.raises(ConfigurationError) as caught:
        read_json(path, SECRET)
    assert str(caught.value) == f"{path}: not valid JSON; fix it"


def test_a_long_cause_is_cut(path):
    path.write_text("".join(f"[{'a' * 300}]\n" for _ in range(2)))
    with pytest.raises(ConfigurationError) as caught:
        read_toml(path, KIND)
    assert len(str(caught.value)) < len(str(path)) + 300


def test_a_link_counts_as_its_target_unless_the_file_must_be_one_s_own(path, tmp_path):
    path.write_bytes(b"x")
    link = tmp_path / "link"
    link.symlink_to(path)
    assert read_bytes(link, KIND) == read_bytes(path, OWN) == b"x"
    with pytest.raises(ConfigurationError, match="link: cannot be read"):
        read_bytes(link, OWN)


@pytest.mark.parametrize(
    "array", [np.arange(6).reshape(2, 3), np.asfortranarray(np.arange(6).reshape(2, 3)), np.array(7)]
)
@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_arrays_are_read_as_numpy_reads_them(path, array, version):
    with path.open("wb") as file:
        np.lib.format.write_array(file, array, version=version)
    found = read_array(path, KIND, "<i8")
    assert found.shape == array.shape
    assert np.array_equal(found, array)
    assert np.array_equal(found, np.load(path))


@pytest.mark.parametrize(
    "array", [np.arange(3.0), np.arange(3, dtype=">i8"), np.array([None]), np.array(["a"]), np.zeros(3, "i8,i8")]
)
def test_arrays_of_another_type_are_refused(path, array):
    np.save(path.with_suffix(".npy"), array, allow_pickle=True)
    with pytest.raises(ConfigurationError, match="has an array of"):
        read_array(path.with_suffix(".npy"), KIND, "<i8")


@pytest.mark.parametrize("change", [-8, -1, 1, 8])
def test_arrays_that_are_cut_off_or_longer_are_refused(path, change):
    file = io.BytesIO()
    np.save(file, np.arange(5))
    content = file.getvalue() + bytes(max(0, change))
    path.write_bytes(content[: len(content) + min(0, change)])
    with pytest.raises(ConfigurationError, match="truncated or damaged"):
        read_array(path, KIND, "<i8")


class Paths(Configuration):
    place: ConfigPath


@pytest.mark.parametrize("place", ["a\\u0000b", "~nobody-of-this-name/x"])
def test_invalid_paths_in_a_configuration(path, place):
    path.write_text(f'place = "{place}"')
    with pytest.raises(ConfigurationError, match="file: 'place'"):
        Paths.load(path)


def test_a_configuration_with_thousands_of_faults_names_some(path):
    path.write_text("".join(f"key{number} = 1\n" for number in range(3000)))
    with pytest.raises(ConfigurationError, match="and 2981 more") as caught:
        Paths.load(path)
    assert len(str(caught.value)) < 5000


def test_limits_of_a_policy_that_nothing_could_print_are_refused(path):
    path.write_text(f"[limits]\nunbounded_queries = 0x{'f' * 5000}\n")
    with pytest.raises(ConfigurationError, match="64 bits"):
        Policy.load(path)


def test_a_port_of_thousands_of_digits_is_refused():
    config = CoordinatorConfig.model_construct(listen="127.0.0.1:" + "1" * 5000)
    with pytest.raises(ConfigurationError, match="host:port"):
        _ = config.host_and_port


@pytest.mark.parametrize("key", ["schema_version", "name", "bias"])
def test_a_schema_with_an_integer_that_cannot_be_printed_is_refused(key):
    fields = {"schema_version": "1", "name": '"s"', "bias": "true"} | {key: "0x" + "f" * 5000}
    text = "".join(f"{name} = {value}\n" for name, value in fields.items())
    label = '[label]\ncolumn = "y"\npositive = ["1"]\n[[features]]\nname = "a"\ntype = "real"\nlower = 0\nupper = 1\n'
    with pytest.raises(SchemaError):
        Schema.from_toml(text + label)


# Modules that may call these themselves: the two of this package; dpcore, which accepts a schema's text from any
# source; a row of a ledger or a history; an option's value; what a tested program printed; the system's own files. The
# console and the presentation read files of their own packages.
# parties/approval/decision_files.py: decisions of other users, whose files are read and owned in ways of their own.
ALLOWED = {
    "fsync": {"radobase/writing.py", "parties/approval/decision_files.py"},
    "load": set(),
    "loads": {
        "parties/approval/decision_files.py",
        "radobase/reading.py",
        "radobase/version.py",
        "dpcore/records/schema.py",
        "dpcore/records/texts.py",
        "parties/approval/standing.py",
        "parties/history/studies.py",
        "parties/ledger/approvals.py",
        "parties/ledger/charges.py",
        "radobase/options.py",
        "radofed/conformance/learner.py",
    },
    "read_text": {
        "parties/approval/decision_files.py",
        "parties/data/part_sums.py",
        "radobase/presentation/page.py",
        "radobase/presentation/svg.py",
        "radobase/version.py",
    },
    "read_bytes": {"radofed/console/app.py"},
    "write_text": {
        "radofed/provision.py",
        "radofed/cli/schema.py",
        "radofed/cli/learner/event_times.py",
        "radofed/cli/learner/inquiries.py",
        "radofed/cli/learner/models.py",
    },
}
PARSERS = {"json", "tomllib", "np", "numpy", "pickle"}


@pytest.mark.more
def test_files_are_read_and_forced_to_disk_in_one_place():
    """The demonstration, which reads files that its own processes write, is excluded.

    The version is read beside the code: whoever may write that file may write the code.
    """
    found: dict[str, set[str]] = {name: set() for name in ALLOWED}
    for package in PACKAGES:
        for file in (ROOT / package).rglob("*.py"):
            place = file.relative_to(ROOT).as_posix()
            if place.startswith("radofed/demo/"):
                continue
            for node in ast.walk(ast.parse(file.read_text())):
                if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                    continue
                name = node.func.attr
                owner = node.func.value.id if isinstance(node.func.value, ast.Name) else ""
                if name in found and (name not in {"load", "loads"} or owner in PARSERS):
                    found[name].add(place)
    assert found == ALLOWED


def test_an_own_file_belongs_to_this_user_or_root(path, monkeypatch):
    """Another user could change it after it was checked."""
    path.write_bytes(b"x")
    owner = os.stat_result([0o100600, 0, 0, 1, os.geteuid() + 1, 0, 1, 0, 0, 0])
    monkeypatch.setattr(os, "fstat", lambda _: owner)
    with pytest.raises(ConfigurationError, match="fix it"):
        read_bytes(path, OWN)


def test_an_array_of_an_unknown_format_is_refused(path):
    path.write_bytes(b"\x93NUMPY\x09\x00" + bytes(100))
    with pytest.raises(ConfigurationError, match="format"):
        read_array(path, KIND, "<i8")


def test_the_error_of_a_secret_file_repeats_nothing_of_it(path):
    """The parser's own words may quote the content."""
    path.write_text('{"p": 1} tomato')
    path.chmod(0o600)
    with pytest.raises(ConfigurationError, match="Extra data"):
        read_json(path, KIND)
    with pytest.raises(ConfigurationError) as caught:
        read_json(path, SECRET)
    assert "Extra data" not in str(caught.value)
    assert caught.value.__cause__ is None
