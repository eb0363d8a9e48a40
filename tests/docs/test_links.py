"""Every relative link of the documents leads to a file, and every anchor to a heading."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "benchmarks/README.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$|`[^`\n]*`", "", text, flags=re.MULTILINE | re.DOTALL)


def anchors(text: str) -> set[str]:
    """Anchors of a document's headings, as code hosts and MyST make them."""
    found: set[str] = set()
    prose = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    for heading in re.findall(r"^#+ (.*)$", prose, re.MULTILINE):
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
        slug = re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
        number = sum(re.fullmatch(rf"{re.escape(slug)}(-\d+)?", other) is not None for other in found)
        found.add(f"{slug}-{number}" if slug in found else slug)
    return found


def broken(path: Path, text: str) -> list[str]:
    """Links of the text that lead nowhere. path: the file of the text."""
    targets = re.findall(r"\]\(<?([^)\s>]+)>?[^)]*\)", without_code(text))
    found = []
    for target in targets:
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        there = path.parent / file
        if (file and not there.exists()) or (anchor and anchor not in anchors(there.read_text() if file else text)):
            found.append(target)
    return found


def test_links_and_anchors_lead_somewhere():
    found = {str(path.relative_to(ROOT)): broken(path, path.read_text()) for path in DOCUMENTS}
    assert not {path: links for path, links in found.items() if links}


def test_a_broken_link_is_found():
    text = "# One two\n\n[a](#one-two) [b](#three) [c](README.md) [d](absent.md) [e](README.md#no-such) `[f](absent)`"
    assert broken(ROOT / "text.md", text) == ["#three", "absent.md", "README.md#no-such"]


def test_documents_name_no_host():
    """The project has no address yet: a link to one would be invented."""
    for path in DOCUMENTS:
        assert not re.findall(r"https?://\S+", without_code(path.read_text())), path
