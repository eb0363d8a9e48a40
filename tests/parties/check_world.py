"""Shared helpers for tests of the preflight."""

from parties.preflight import preflight
from radofed.node_config import PolicyChoices

ALLOWED = PolicyChoices(designs=("plain", "dp-feat"), allow_unprotected=True, unbounded_queries=1)
PARTIES = ("ada", "bo", "cy")


def run(federation, name="ada", **options):
    findings = preflight(federation.member(name).config, **options)
    names = [finding.name for finding in findings]
    assert len(set(names)) == len(names)
    return {finding.name: finding for finding in findings}


def replace_in(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
