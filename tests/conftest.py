"""Shared settings: machines are slow and shared, so no test has a deadline; and no test meets the
tuning database of whoever runs it."""

from pathlib import Path

import pytest
from hypothesis import settings

settings.register_profile("shared", deadline=None, print_blob=True)
settings.load_profile("shared")


@pytest.fixture(autouse=True, scope="session")
def own_tuning_database(tmp_path_factory: pytest.TempPathFactory):
    """The user's database is a file of this test run."""
    patch = pytest.MonkeyPatch()
    folder: Path = tmp_path_factory.mktemp("cache")
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        patch.setenv(name, str(folder))
    yield
    patch.undo()
