"""No role imports `dpcore.research`: of its tests only the theorems are in `make test`."""

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        if item.path.is_relative_to(__file__.removesuffix("conftest.py")) and item.path.name != "test_theorems.py":
            item.add_marker(pytest.mark.more)
