"""The cache of compiled code: names depend on the source, and everything works without it."""

import importlib.util
import os
import pickle
import subprocess
import sys
import tempfile
from pathlib import Path

import numba
import pytest

pytestmark = pytest.mark.more

SOURCE = """
from dpcore.numbers.compiling import compiled

@compiled("int64(int64)", "float64(float64)")
def change(x):
    return x + 1
"""


def load(path: Path):
    """The function of a module that is executed again, as in another process."""
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[path.stem]
    return module.change


@pytest.fixture
def source(tmp_path, monkeypatch):
    """A module whose code can be cached only next to it."""
    blocked = tmp_path / "blocked"
    blocked.write_text("a file, so that no directory can be made below it")
    monkeypatch.setenv("XDG_CACHE_HOME", str(blocked / "cache"))
    monkeypatch.setenv("HOME", str(blocked / "home"))
    monkeypatch.setattr("numba.config.CACHE_DIR", "")
    # Python takes a source of the same size and second for the one that it compiled.
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    path = tmp_path / "package" / "tiny.py"
    path.parent.mkdir()
    path.write_text(SOURCE)
    return path


def kept(source: Path) -> list[Path]:
    return sorted((source.parent / "__pycache__").glob("*.nb*"))


def hits(function) -> int:
    return sum(function.stats.cache_hits.values())


def test_code_is_kept_and_found_again(source):
    first = load(source)
    assert (first(2), first(0.5), hits(first)) == (3, 1.5, 0)
    assert [path.suffix for path in kept(source)] == [".nbc", ".nbc", ".nbi"]
    again = load(source)
    assert (again(2), again(0.5), hits(again)) == (3, 1.5, 2)


def test_other_source_never_finds_the_old_code(source):
    load(source)
    before = kept(source)
    # The same function, line and bytecode length.
    source.write_text(SOURCE.replace("+ 1", "+ 2"))
    changed = load(source)
    assert (changed(2), hits(changed)) == (4, 0)
    assert len(kept(source)) == 2 * len(before)
    assert not {path.name for path in before} & {path.name for path in set(kept(source)) - set(before)}


def test_an_index_without_its_code_is_ignored(source):
    load(source)
    for path in kept(source):
        if path.suffix == ".nbc":
            path.unlink()
    changed = load(source)
    assert (changed(2), hits(changed)) == (3, 0)


@pytest.mark.parametrize("suffix", [".nbc", ".nbi"])
@pytest.mark.parametrize("content", [b"", bytes(100)], ids=["empty", "zeros"])
def test_a_damaged_file_costs_a_compilation_and_no_more(source, suffix, content):
    load(source)
    for path in kept(source):
        if path.suffix == suffix:
            path.write_bytes(content)
    assert load(source)(2) == 3


def test_a_file_of_another_form_costs_a_compilation_and_no_more(source):
    load(source)
    (index,) = [path for path in kept(source) if path.suffix == ".nbi"]
    index.write_bytes(pickle.dumps(numba.__version__) + pickle.dumps(0))
    assert load(source)(2) == 3


@pytest.mark.parametrize("place", ["the directory", "the one above"])
def test_a_world_writable_directory_is_skipped(source, tmp_path, monkeypatch, place):
    """Code found there may come from any user: loading it would run it."""
    given = tmp_path / "given"
    monkeypatch.setattr("numba.config.CACHE_DIR", str(given))
    load(source)
    assert hits(load(source)) == 2
    (below,) = given.iterdir()
    open_to_all = below if place == "the directory" else given
    open_to_all.chmod(0o777)
    function = load(source)
    assert (function(2), hits(function)) == (3, 0)
    assert kept(source)
    open_to_all.chmod(0o1777)
    assert Path(load(source).stats.cache_path) == (source.parent / "__pycache__" if open_to_all == below else below)


def test_another_users_directory_is_skipped(source, tmp_path, monkeypatch):
    given = tmp_path / "given"
    monkeypatch.setattr("numba.config.CACHE_DIR", str(given))
    load(source)
    (below,) = given.iterdir()
    real = os.stat

    def anothers(path, *arguments, **options):
        found = real(path, *arguments, **options)
        return os.stat_result((*found[:4], 4242, *found[5:10])) if str(path) == str(below) else found

    # Only a superuser could give it away.
    monkeypatch.setattr(os, "stat", anothers)
    assert hits(load(source)) == 0


def test_a_directory_below_the_working_directory_is_skipped(source, tmp_path, monkeypatch):
    (source.parent / "__pycache__").write_text("no directory")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    function = load(source)
    assert (function(2), function.stats.cache_path) == (3, None)


def test_without_any_directory_code_is_compiled_for_the_process(source):
    (source.parent / "__pycache__").write_text("no directory")
    function = load(source)
    assert (function(2), hits(function)) == (3, 0)
    assert function.stats.cache_path is None


def test_a_directory_that_cannot_be_written_is_still_read(source, monkeypatch):
    load(source)

    def read_only(**_kwargs):
        raise OSError(30, "Read-only file system")

    # Numba tests a directory with this. A superuser may write everywhere, so permissions would not suffice.
    monkeypatch.setattr(tempfile, "TemporaryFile", read_only)
    function = load(source)
    assert (function(2), hits(function)) == (3, 2)
    source.write_text(SOURCE.replace("+ 1", "+ 2"))
    other = load(source)
    assert (other(2), hits(other)) == (4, 0)


def test_a_given_directory_is_used(source, tmp_path, monkeypatch):
    monkeypatch.setattr("numba.config.CACHE_DIR", str(tmp_path / "given"))
    load(source)
    assert not kept(source)
    assert len(list((tmp_path / "given").rglob("*.nbc"))) == 2
    assert hits(load(source)) == 2


@pytest.mark.slow
def test_processes_that_compile_at_once_agree(source):
    script = f"import sys; sys.path.insert(0, {str(source.parent)!r}); from tiny import change; print(change(2))"
    processes = [subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate()[0] for process in processes] == ["3\n", "3\n"]
    assert len(kept(source)) == 3
    function = load(source)
    # One process may have overwritten the other's index: then the second signature is compiled again.
    assert (function(2), function(0.5), hits(function) >= 1) == (3, 1.5, True)
