"""The glossary defines the terms of art that readers stumble over."""

import re
from pathlib import Path

import pytest

GLOSSARY = (Path(__file__).resolve().parents[2] / "docs/glossary.md").read_text()
HEADS = re.findall(r"^- \*\*(.*?)\.\*\* ", GLOSSARY, re.MULTILINE)
TERMS = """
rado; edge vector; secure aggregation; distributed differential privacy; composition; subsampling; cohort; clipping;
unit of privacy; scope; slot; obfuscator; h (`honest_parties`); c (`assumed_colluders`; moments; marginal; joint;
support; fraction bits; burnt attempt; noised table; r (`norm_bound`); rho; signature; rado signature; estimator;
learner; post-processing; sensitivity; privacy ledger
"""


@pytest.mark.parametrize("term", [term.strip() for term in TERMS.split(";")])
def test_a_term_of_art_is_defined(term):
    assert any(re.search(rf"(^|\W){re.escape(term)}", head.lower()) for head in HEADS)


def test_no_term_is_defined_twice():
    assert len(HEADS) == len(set(HEADS)) > 50
