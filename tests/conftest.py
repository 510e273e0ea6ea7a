"""Shared settings: machines are slow and shared, so no test has a deadline; and no test meets the
tuning database of whoever runs it, nor programs that another test has compiled."""

import os
from pathlib import Path

import pytest
from backend.c_device import CDevice
from hypothesis import settings

from luminal import earlier
from luminal.backend import devices
from luminal.store import Store

# Before PyTorch is loaded: threads that wait for work by turning take it from the other tests.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
settings.register_profile("shared", deadline=None, print_blob=True)
settings.load_profile("shared")


# Folders whose tests look at results alone: kernels that one of them has made serve the next.
USERS = ("frontend", "llm", "models", "nn", "ops", "server", "speech", "train")


@pytest.fixture(autouse=True)
def own_kernels(request: pytest.FixtureRequest):
    """What looks into the compiler, or breaks it, meets no kernels of other tests."""
    if request.path.relative_to(Path(__file__).parent).parts[0] not in USERS:
        earlier.forget()
        yield
        earlier.forget()
    else:
        yield


@pytest.fixture(autouse=True, scope="session")
def devices_of_tests():
    """A device outside of the package registers itself like those inside."""
    devices.register("c", CDevice)


@pytest.fixture(autouse=True, scope="session")
def own_caches(tmp_path_factory: pytest.TempPathFactory):
    """The user's database is a file of this test run; compiled programs are not kept."""
    patch = pytest.MonkeyPatch()
    folder: Path = tmp_path_factory.mktemp("cache")
    for name in ("XDG_CACHE_HOME", "LOCALAPPDATA"):
        patch.setenv(name, str(folder))
    named = staticmethod(lambda w: Store(Path(w) if isinstance(w, (str, Path)) else None))
    patch.setattr(Store, "of", named)  # programs are kept only where a test names the folder
    patch.setenv("LUMINAL_COMPILE_PROCESSES", "1")  # tests run on all cores already
    patch.setattr("luminal.store.SPARE", 0.0)  # however full the disk is
    yield
    patch.undo()
