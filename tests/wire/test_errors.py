import ast
from pathlib import Path

import grpc
import pytest

from dpcore import errors as shared_errors
from dpcore.errors import RadofedError
from wire.errors import CATALOGUE, CODE_METADATA_KEY, Code, WireError, exit_code_of
from wire.transport import translate

ROOT = Path(__file__).resolve().parents[2]


def test_catalogue_is_complete_and_public():
    assert set(CATALOGUE) == set(Code)
    for code, entry in CATALOGUE.items():
        assert code.value == code.name
        assert isinstance(entry.status, grpc.StatusCode)
        assert entry.status is not grpc.StatusCode.OK
        assert entry.sentence.endswith(".")
        # A node of another version takes the detail from what follows the first sentence.
        assert ". " not in entry.sentence
        assert entry.hint.endswith(".")
        assert entry.exit_code in {1, 2, 3, 4, 5, 6}


def test_every_code_is_used():
    text = "".join(
        path.read_text()
        for package in ("wire", "parties", "coordinator", "learner", "radobase", "radofed")
        for path in (ROOT / package).rglob("*.py")
        if path != ROOT / "wire/errors.py"
    )
    unused = [code.name for code in Code if f"Code.{code.name}" not in text]
    assert not unused, f"codes that nothing raises: {unused}"


def test_protocol_document_lists_every_code():
    text = (ROOT / "docs/protocol.md").read_text()
    missing = [code.name for code in Code if f"`{code.name}`" not in text]
    assert not missing


def test_an_error_says_what_to_do():
    error = WireError(Code.COHORT_TOO_SMALL, "Missing: b.")
    assert str(error) == "Too few parties are ready. Missing: b. " + CATALOGUE[Code.COHORT_TOO_SMALL].hint
    assert error.public_sentence == "Too few parties are ready. Missing: b."
    assert exit_code_of(error) == 6


class FailedCall(grpc.RpcError):
    """A failed call as gRPC reports it: the metadata and the status message of the peer."""

    def __init__(self, code: Code, message: str) -> None:
        self.trailing_metadata = lambda: ((CODE_METADATA_KEY, code.value),)
        self.details = lambda: message


@pytest.mark.parametrize(
    ("message", "detail"),
    [
        ("The query is not valid. It must hold that a. And b.", "It must hold that a. And b."),
        ("The query is not valid.", ""),
        # The sentences of 0.1.0.
        ("The query contradicts itself. It must hold that a. And b.", "It must hold that a. And b."),
        ("The query contradicts itself.", ""),
        ("", ""),
    ],
)
def test_the_detail_of_a_peer_of_any_version_is_read_without_its_sentence(message, detail):
    error, may_pass = translate(FailedCall(Code.QUERY_INVALID, message), "here:1")
    assert isinstance(error, WireError)
    assert (error.code, error.detail, may_pass) == (Code.QUERY_INVALID, detail, False)


@pytest.mark.parametrize("cls", [c for c in vars(shared_errors).values() if isinstance(c, type)])
def test_shared_errors_have_an_exit_code(cls):
    assert issubclass(cls, RadofedError)
    assert cls.exit_code in {1, 2, 3, 4, 6}


@pytest.mark.more
def test_no_role_raises_a_bare_exception():
    for package in ("wire", "parties", "coordinator", "learner", "dpcore"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if (
                    isinstance(node, ast.Raise)
                    and isinstance(node.exc, ast.Call)
                    and isinstance(node.exc.func, ast.Name)
                ):
                    assert node.exc.func.id not in {"Exception", "RuntimeError"}, f"{path}:{node.lineno}"
