"""The glossary defines the terms of art that readers stumble over."""

import re
from pathlib import Path

GLOSSARY = (Path(__file__).resolve().parents[2] / "docs/glossary.md").read_text()
HEADS = re.findall(r"^- \*\*(.*?)\.\*\* ", GLOSSARY, re.MULTILINE)
TERMS = """
rado; edge vector; secure aggregation; distributed differential privacy; composition; subsampling; cohort; clipping;
unit of privacy; scope; slot; obfuscator; h (`honest_parties`); c (`assumed_colluders`; moments; marginal; joint;
support; fraction bits; burnt attempt; table with noise; r (`norm_bound`); rho; signature; rado signature; estimator;
learner; post-processing; sensitivity; privacy ledger; sampling error
"""


def test_terms_of_art_are_defined():
    for term in map(str.strip, TERMS.split(";")):
        assert any(re.search(rf"(^|\W){re.escape(term)}", head.lower()) for head in HEADS), term


def test_no_term_is_defined_twice():
    assert len(HEADS) == len(set(HEADS)) > 50
