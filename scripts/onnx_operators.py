"""Writes the operators that are supported into docs/onnx.md."""

import re
import textwrap
from pathlib import Path

import onnx

from luminal.frontend.onnx.table import HOST, RULES

PAGE = Path(__file__).parent.parent / "docs" / "onnx.md"
PART = re.compile(r"(<!-- operators -->\n).*?(<!-- end -->)", re.S)


def functions() -> set[tuple[str, str]]:
    """What the standard says of operators without a rule: they are what their bodies say."""
    schemas = onnx.defs.get_all_schemas()
    made = [s for s in schemas if s.has_function or s.has_context_dependent_function]
    return {("" if s.domain == "ai.onnx" else s.domain, s.name) for s in made}


def listed() -> str:
    """One paragraph for each domain and way."""
    own = RULES.keys() - {("", "Body")}
    parts = {
        "recorded": own,
        "by the standard's own function body": functions() - own - HOST.keys(),
        "on the host only": HOST.keys() - own,
    }
    text = ""
    for way, names in parts.items():
        for domain in sorted({domain for domain, _ in names}):
            inside = sorted(name for d, name in names if d == domain)
            said = f"**{domain or 'ai.onnx'}, {way}** ({len(inside)}): {', '.join(inside)}."
            text += textwrap.fill(said, 100, break_on_hyphens=False) + "\n\n"
    return text


def page(text: str) -> str:
    """The page with the present list in it."""
    return PART.sub(lambda found: found[1] + listed() + found[2], text)


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text()))
