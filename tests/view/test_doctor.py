"""`luminal doctor`: what it finds, and what it says of what is wrong."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner

import luminal
from luminal.backend import devices
from luminal.cli import doctor
from luminal.cli.main import main
from luminal.errors import DeviceError


def findings(exit_code: int = 0) -> dict[str, dict[str, str]]:
    told = CliRunner().invoke(main, ["doctor", "--json"])
    assert told.exit_code == exit_code, told.output
    return {row["name"]: row for row in json.loads(told.output)}


def test_all_is_well():
    found = findings()
    assert found["self-test"]["state"] == "ok" and "NumPy" in found["self-test"]["text"]
    assert found["luminal"]["text"].startswith(luminal.__version__)


def test_a_fault_is_told_and_the_rest_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse() -> None:
        raise DeviceError("no such machine")

    monkeypatch.setattr(devices.host(), "describe", refuse)
    monkeypatch.setattr(doctor, "CLOSE", 0.0)
    monkeypatch.setitem(doctor.EXTRAS, "torch", ("no_such_package", "nothing"))
    found = findings(exit_code=1)
    assert "no such machine" in found["machine"]["text"]
    assert found["self-test"]["state"] == "fault" and found["torch"]["state"] == "missing"


def test_a_folder_that_others_write_to(monkeypatch: pytest.MonkeyPatch, tmp_path) -> None:
    (tmp_path / "luminal").mkdir()
    (tmp_path / "luminal").chmod(0o777)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert "chmod" in findings(exit_code=1)["kept files"]["advice"]


def test_notebooks_show_graphs_and_programs():
    cx = luminal.Graph()
    (cx.tensor((3,), name="<x>") * 2.0).output("y")
    made = cx.compile(threads=1, cache=False)
    assert "&lt;x&gt;" in cx._repr_html_() and "<pre>device cpu" in made._repr_html_()
