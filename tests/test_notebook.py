"""The cells of the example notebook run, in order, and show what is kept with them.

`python tests/test_notebook.py` runs them and keeps what they show now.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import re
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

import luminal

NOTEBOOK = Path(__file__).parents[1] / "examples" / "tour.ipynb"


def shown(source: str, scope: dict[str, Any]) -> list[dict[str, Any]]:
    """Outputs of a cell in nbformat 4, as Jupyter makes them: what is printed, then its last
    expression as HTML where it has some, else as text."""
    tree, printed, value = ast.parse(source), io.StringIO(), None
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(printed):
        exec(compile(tree, "cell", "exec"), scope)
        if isinstance(last, ast.Expr):
            value = eval(compile(ast.Expression(last.value), "cell", "eval"), scope)
    outputs: list[dict[str, Any]] = []
    if text := printed.getvalue():
        outputs.append({"name": "stdout", "output_type": "stream", "text": text})
    if value is not None:
        plain = repr(value)
        data = {"text/plain": re.sub(" object at 0x[0-9a-f]+", "", plain)}
        if html := getattr(value, "_repr_html_", None):
            data["text/html"] = html()
        outputs.append({"data": data, "execution_count": None, "metadata": {},
                        "output_type": "execute_result"})  # fmt: skip
    return outputs


def cells() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    notebook = json.loads(NOTEBOOK.read_text())
    return notebook, [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def run() -> list[list[dict[str, Any]]]:
    scope: dict[str, Any] = {"__name__": "notebook"}
    return [shown("".join(cell["source"]), scope) for cell in cells()[1]]


@pytest.mark.skipif(
    not (files("luminal.view") / "viewer.html").is_file(), reason="the page is built with npm"
)
def test_the_notebook_runs(monkeypatch, tmp_path) -> None:
    monkeypatch.chdir(tmp_path)
    kept = [cell["outputs"] for cell in cells()[1]]
    for found, before in zip(run(), kept, strict=True):
        assert [o["output_type"] for o in found] == [o["output_type"] for o in before]
        for output, other in zip(found, before):
            if output["output_type"] == "stream":
                assert output["text"] == other["text"]
            else:  # HTML is not kept: it holds times, and names of files
                assert output["data"]["text/plain"] == other["data"]["text/plain"]
                assert re.search("<details>|<svg", output["data"]["text/html"])


def test_pictures_of_values():
    cx = luminal.Graph()
    odd = cx.constant([[1.0, float("nan")], [float("inf"), -2.0]])
    shown = odd._repr_html_()
    assert "-2 to 1, mean -0.5, 2 not finite" in shown
    fills = re.findall('fill="(.*?)"', shown)
    assert fills == ["rgb(255,128,128)", "#888", "#888", "rgb(0,0,255)"]
    assert (cx.constant([3.0, 1.0, 2.0]) * 2.0)._repr_html_().count("<polyline") == 1
    for unknown in (cx.tensor(3).exp(), cx.tensor("s"), luminal.ops.zeros(cx, (2000, 2000))):
        assert "<svg" not in unknown._repr_html_()
    assert "<svg" not in cx.constant([float("nan")])._repr_html_()
    y = cx.tensor(3).exp().output()
    assert "<pre>" in cx.compile(device="reference").report._repr_html_(), y


if __name__ == "__main__":
    notebook, code = cells()
    for cell, outputs in zip(code, run()):
        for output in outputs:
            output.get("data", {}).pop("text/html", None)
        cell["outputs"] = outputs
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
