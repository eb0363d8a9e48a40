"""Every parser that a peer or a file reaches: for any input it raises only the project's own errors."""

import ast
import dataclasses

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.fuzz.__main__ import compiled_modules
from tests.fuzz.handlers import METHODS, MODULES
from tests.fuzz.target import CORPUS, QUICK_EXAMPLES, all_targets
from tests.structure.sources import imports, modules
from tests.wire.test_codec import wires
from wire.envelopes import MessageType

TARGETS = all_targets()
NAMES = sorted(TARGETS)


def fuzz_of(name: str):
    """The Hypothesis test of a target. `make fuzz` drives the same one by coverage."""
    target, most = TARGETS[name], settings().max_examples
    # `make test` repeats the same examples each time: few. New ones are tried by `make test-all` and `make fuzz`.
    most = QUICK_EXAMPLES // 2 if most == QUICK_EXAMPLES else most

    @settings(
        max_examples=target.examples * most // QUICK_EXAMPLES,
        deadline=None,
        database=None,
        # A failure is small already: its input is kept as it is.
        phases=(Phase.explicit, Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @given(target.inputs)
    def fuzz(data: bytes) -> None:
        target.check(data)

    return fuzz


@pytest.mark.variants(40)
@pytest.mark.parametrize("name", NAMES)
def test_any_input_raises_only_our_own_errors(name):
    fuzz_of(name)()


@pytest.mark.parametrize("name", [name for name in NAMES if TARGETS[name].corpus])
def test_inputs_of_the_corpus(name):
    """Valid ones are accepted, so that the parser is reached at all; the others are refused by our own errors."""
    for path in TARGETS[name].corpus:
        assert TARGETS[name].check(path.read_bytes()) == (path.name == "valid"), path.name


def test_the_corpus_is_small():
    sizes = [path.stat().st_size for target in TARGETS.values() for path in target.corpus]
    assert max(sizes) < 4096
    assert sum(sizes) < 500_000
    assert {path.name for path in CORPUS.iterdir()} <= set(NAMES)


def test_a_foreign_error_fails_a_target():
    target = dataclasses.replace(TARGETS["number"], read=lambda data: data.decode("ascii"))
    with pytest.raises(UnicodeDecodeError):
        target.check(b"\xff")


def test_every_kind_of_message_and_every_call_has_a_target():
    assert {f"payload-{kind.value.lower()}" for kind in MessageType} <= set(NAMES)
    calls = {
        f"{service.name}.{method.name}"
        for module in MODULES.values()
        for service in module.DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    assert calls == set(METHODS)


READERS = {"from_bytes", "from_proto", "from_canonical", "from_toml", "from_jwk", "from_wire"}


@pytest.mark.more
def test_every_reader_of_bytes_and_every_kind_of_file_is_covered():
    """Enumerated from the code: methods of these names, and the constants that are a FileKind."""
    covered = {name for target in TARGETS.values() for name in target.covers}
    missing = set()
    for module, tree in modules().items():
        for node in tree.body:
            if isinstance(node, ast.ClassDef):
                found = {part.name for part in node.body if isinstance(part, ast.FunctionDef)} & READERS
                missing |= {f"{module}.{node.name}.{name}" for name in found}
            elif isinstance(node, ast.Assign) and "FileKind(" in ast.unparse(node.value)[:9]:
                missing |= {f"{module}.{name.id}" for name in node.targets}
    # The codec's own readers are these.
    missing -= {"wire.codec.Wire.from_proto", "wire.codec.Wire.from_bytes"}
    # The kit reads files that it wrote, on the machine of who tests a program.
    missing = {name for name in missing if not name.startswith("radofed.conformance.")}
    assert len(missing) > 40
    assert missing - covered == set()
    read = {name.rpartition(".")[0] for name in covered}
    assert {f"{each.__module__}.{each.__name__}" for each in wires()} - read == set()


def test_what_numba_compiles_is_not_instrumented():
    """The names of these modules say so: atheris leaves them out, since Numba cannot compile what it has changed."""
    compiled = {name for name, used in imports(modules()).items() if "dpcore.numbers.compiling" in used}
    assert compiled == set(compiled_modules()) != set()
