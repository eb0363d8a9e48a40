"""Imports modules from a changed syntax tree: nothing is written, and no compiled module is used or stored."""

import ast
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Mapping
from types import CodeType

from tests.checks.enumeration import Walk


def module_of(path: str) -> str:
    """The name of the module in a file of the repository."""
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


class Importer(importlib.abc.MetaPathFinder):
    """Imports modules through a walk each. walks: walks by the modules' names, made when the module is imported."""

    def __init__(self, walks: Mapping[str, Callable[[], Walk]]) -> None:
        self._walks = walks
        self.imported: set[str] = set()

    def install(self) -> None:
        """From now on. Raises RuntimeError if one of the modules is imported already."""
        early = sorted(self._walks.keys() & sys.modules.keys())
        if early:
            raise RuntimeError(f"imported too early: {', '.join(early)}")
        sys.meta_path.insert(0, self)

    def find_spec(self, fullname, path=None, target=None):
        """The module's own place, with another loader."""
        if fullname not in self._walks:
            return None
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.origin is not None:
            self.imported.add(fullname)
            spec.loader = _Loader(fullname, spec.origin, self._walks[fullname])
        return spec


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, walk: Callable[[], Walk]) -> None:
        super().__init__(fullname, path)
        self._walk = walk

    def get_code(self, fullname: str) -> CodeType:
        tree = self._walk().visit(ast.parse(self.get_data(self.path)))
        return compile(ast.fix_missing_locations(tree), self.path, "exec", dont_inherit=True)
