"""Where a conversation is shown: plainly, or with lines that can be edited and Markdown."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

import click

from ..folders import make_private, user_folder
from .answers import echo_json

PROMPT, MORE = ">>> ", "... "
FRAMES = 12  # a second, of a reply that grows


class Terminal(Protocol):
    """What a conversation needs of it."""

    def ask(self) -> str:
        """What the user types. Raises EOFError at the end, KeyboardInterrupt."""

    def show(self, pieces: Iterable[str]) -> None:
        """A reply, as its pieces come."""


def here(commands: Sequence[str]) -> Terminal:
    """The better one where both streams are a terminal that knows more than lines, and what it
    takes is installed (`luminal-compiler[chat]`)."""
    able = os.environ.get("TERM", "dumb") not in ("", "dumb")
    installed = all(map(importlib.util.find_spec, ("prompt_toolkit", "rich")))
    if able and installed and sys.stdin.isatty() and sys.stdout.isatty():
        return Full(commands)
    return Plain()


class Plain:
    """Lines in, text out."""

    def ask(self) -> str:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401  (line editing and history)
        return input(PROMPT if sys.stdin.isatty() else "")

    def show(self, pieces: Iterable[str]) -> None:
        for piece in pieces:
            click.echo(piece, nl=False)
        click.echo()


class Lines:
    """Lines in, a line of JSON for each reply."""

    def ask(self) -> str:
        return input()

    def show(self, pieces: Iterable[str]) -> None:
        echo_json({"role": "assistant", "content": "".join(pieces)})


class Full:
    """Several lines, a history that stays, commands completed; replies as Markdown."""

    def __init__(self, commands: Sequence[str], **streams: Any) -> None:
        """streams: prompt_toolkit's input and output, rich's console, where they are others."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.completion import WordCompleter
        from rich.console import Console

        self._console = streams.pop("console", None) or Console()
        self._session: PromptSession[str] = PromptSession(
            PROMPT, history=_history(), key_bindings=_keys(), multiline=False,
            completer=WordCompleter(list(commands), sentence=True), complete_while_typing=False,
            prompt_continuation=MORE, **streams,
        )  # fmt: skip

    def ask(self) -> str:
        return self._session.prompt()

    def show(self, pieces: Iterable[str]) -> None:
        from rich.live import Live
        from rich.markdown import Markdown

        text = ""
        with contextlib.suppress(KeyboardInterrupt), Live(
            console=self._console, refresh_per_second=FRAMES, transient=True,
            vertical_overflow="crop",
        ) as live:  # fmt: skip
            for piece in pieces:
                text += piece
                live.update(Markdown("\n".join(text.splitlines()[-self._console.height :])))
        self._console.print(Markdown(text))  # whole, where it scrolls


def _history() -> Any:
    """Of earlier conversations, for this user alone; only of this one where nothing can be kept."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    folder = user_folder()
    if folder is None:
        return InMemoryHistory()
    with contextlib.suppress(OSError):
        make_private(folder)
        file = folder / "chat_history"
        file.touch(0o600)
        return FileHistory(str(file))
    return InMemoryHistory()


def _keys() -> Any:
    """Esc then Enter (Alt-Enter): a new line; Enter sends."""
    from prompt_toolkit.key_binding import KeyBindings

    keys = KeyBindings()

    @keys.add("escape", "enter")
    def newline(event: Any) -> None:
        event.current_buffer.insert_text("\n")

    return keys
