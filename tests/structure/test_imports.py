"""No file imports itself through others: a reader can begin anywhere and go down only."""

from tests.structure.sources import circles, imports, modules


def test_no_import_circles():
    found = circles(imports(modules()))
    paths = [" -> ".join([*circle, circle[0]]) for circle in found]
    assert not paths, "files import one another:\n" + "\n".join(paths)


def made(tmp_path, **files):
    for name, text in files.items():
        path = tmp_path / "made" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    trees = modules(tmp_path, ("made",))
    return circles(imports(trees, frozenset({"made"})))


def test_a_circle_is_found_also_where_an_import_is_nested(tmp_path):
    found = made(
        tmp_path,
        __init__="",
        a="from made import b",
        b="def f():\n    import made.c",
        c="class C:\n    from .a import x\n",
        d="import made.a",
    )
    assert found == [["made.a", "made.b", "made.c"]]


def test_a_package_that_its_own_file_imports_from_is_a_circle(tmp_path):
    assert made(tmp_path, __init__="from made.a import A", a="from . import A") == [["made", "made.a"]]


def test_what_type_checkers_alone_import_makes_no_circle(tmp_path):
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import made.a\nelse:\n    import math\n"
    assert made(tmp_path, __init__="", a="from made.b import B", b=text) == []
