"""The generated reference follows the code, and every error has a page that explains it."""

import re
from pathlib import Path

import pytest

import radofed
from docs.generate.errors import CAUSES
from docs.generate.pages import generated_pages
from radobase.failure import Failure
from radofed.cli.output import Output
from wire.errors import CATALOGUE, PAGES, Code, WireError, page_of

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def pages():
    return generated_pages()


@pytest.mark.more
def test_generated_pages_are_up_to_date(pages):
    stale = [path.name for path, text in pages.items() if not path.exists() or path.read_text() != text]
    assert not stale, "run `make docs` (python -m docs.generate)"


def test_every_code_has_its_page_and_every_page_its_code():
    assert {path.stem for path in (ROOT / PAGES).glob("*.md")} == {"index", *CATALOGUE}


def test_each_page_says_why_the_error_happens():
    causes = {code: (ROOT / page_of(code)).read_text().partition(CAUSES)[2] for code in Code}
    assert not [code for code, text in causes.items() if len(text.split()) < 10]


def test_the_command_names_the_page_of_an_error(capsys):
    failure = Failure.of(WireError(Code.COHORT_TOO_SMALL))
    assert Output(as_json=False, debug=False).print_failure(failure) == 6
    said = capsys.readouterr().err
    assert said.endswith("\nSee docs/reference/errors/COHORT_TOO_SMALL.md.\n")
    assert (ROOT / failure.page).exists()


def test_every_public_name_is_in_the_reference():
    page = (ROOT / "docs/reference/api.md").read_text()
    missing = [name for name in radofed.__all__ if not re.search(rf":: radofed\.{name}[(\n]", page)]
    assert not missing


def test_the_protocol_s_table_of_codes_is_the_catalogue():
    text = (ROOT / "docs/protocol.md").read_text()
    rows = re.findall(r"^\| `([A-Z_]+)` \| `([A-Z_]+)` \| ([^|]*?)( \*again\*)? \|$", text, re.MULTILINE)
    found = {code: (status, sentence, bool(again)) for code, status, sentence, again in rows}
    assert found == {code.value: (e.status.name, e.sentence, e.retry) for code, e in CATALOGUE.items()}
