"""Results for other programs: one JSON value on the output stream."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource


def json_option(holds: str = "As one JSON object.") -> Callable[[Any], Any]:
    """The option `--json`, as the argument `as_json`."""
    return click.option("--json", "as_json", is_flag=True, help=holds)


def writable(context: click.Context, option: click.Parameter, path: Path | None) -> Path | None:
    """A file that can be written, as far as can be told before the work."""
    if path is not None and not os.access(path if path.exists() else path.parent, os.W_OK):
        raise click.BadParameter(f"{path} cannot be written", context, option)
    return path


def refuse_others(taken: str, what: str) -> None:
    """Raises UsageError for an option of this command that was given where it does nothing. taken:
    names of those that `what` takes."""
    context = click.get_current_context()
    for option in context.command.params:
        given = context.get_parameter_source(str(option.name)) is ParameterSource.COMMANDLINE
        if given and isinstance(option, click.Option) and option.name not in taken.split():
            raise click.UsageError(f"{option.opts[0]} is not for {what}")


def echo_json(value: Any) -> None:
    """Numbers that JSON cannot hold (NaN, infinities) are null."""
    click.echo(json.dumps(_finite(value)))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(part) for part in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
