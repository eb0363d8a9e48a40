import pytest

from tests.learner.report.report_world import Reported


@pytest.fixture(scope="session")
def reported(tmp_path_factory, learner_key):
    """Shared, because no test changes it."""
    return Reported(tmp_path_factory.mktemp("reported"), learner_key)
