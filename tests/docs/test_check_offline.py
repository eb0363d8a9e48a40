"""The check of the built site finds what a page would load from another host."""

from docs.generate.check_offline import foreign_addresses


def test_what_is_loaded_from_elsewhere_is_found(tmp_path):
    (tmp_path / "page.html").write_text(
        '<a href="https://example.org">a link is no load</a><script src="local.js"></script>'
        '<script src="https://example.org/a.js"></script><link href="//example.org/a.css"><img src="picture.png">'
    )
    (tmp_path / "a.css").write_text("a { background: url(local.png) } b { background: url('https://example.org/b') }")
    assert [line.split(": ")[1] for line in foreign_addresses(tmp_path)] == [
        "https://example.org/a.js",
        "//example.org/a.css",
        "https://example.org/b",
    ]
