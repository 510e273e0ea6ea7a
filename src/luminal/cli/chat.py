"""`luminal chat`: turns of a user and a model, and the commands between them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..container import write_over
from ..errors import InputError, LuminalError
from .answers import json_option
from .faults import clear_errors, tell
from .llm import LOADING, SAMPLING, loaded, split_options, with_options
from .terminal import Lines, Plain, Terminal, here

if TYPE_CHECKING:
    from ..models.llm import LLM

COMMANDS = {
    "/help": "these lines",
    "/clear": "forget the conversation",
    "/system TEXT": "start again with a system message",
    "/retry": "another reply to the last message",
    "/history": "the conversation so far",
    "/image FILE": "a picture that the next message is about",
    "/save FILE": "write the conversation and its settings as JSON",
    "/load FILE": "go on with a conversation that was saved",
    "/set NAME VALUE": "temperature, top_k, top_p, min_p, repetition_penalty, seed ...",
    "/exit": "leave (or Ctrl-D); Ctrl-C stops a reply",
}
HELP = "".join(f"{name:16} {text}\n" for name, text in COMMANDS.items())


@click.command()
@click.argument("model", required=False)
@with_options(LOADING)
@with_options(SAMPLING)
@click.option("--system", default=None, help="A system message to begin with.")
@click.option("--plain", is_flag=True, help="No colours, no Markdown, no history on disk.")
@json_option("Each reply as a line of JSON: role, content.")
def chat(
    model: str | None, max_tokens: int, system: str | None, plain: bool, as_json: bool,
    **options: Any,
) -> None:  # fmt: skip
    """Talk with MODEL (without one the packaged SmolLM2). /help lists the commands; Ctrl-C stops
    a reply, Ctrl-D leaves. With prompt_toolkit and rich installed: Esc then Enter begins a new
    line, the arrows go through earlier messages, replies are shown as Markdown."""
    loading, sampling = split_options(model, options)
    with clear_errors():
        llm = loaded(model, loading)
        llm.tokenizer.render([{"role": "user", "content": ""}])  # fails early without a template
    names = [name.split()[0] for name in COMMANDS]
    terminal: Terminal = Lines() if as_json else Plain() if plain else here(names)
    Conversation(llm, max_tokens, sampling, system, terminal).talk()


class Conversation:
    """Turns of a user and a model on a terminal."""

    def __init__(
        self, llm: LLM, max_tokens: int, sampling: dict[str, Any], system: str | None,
        terminal: Terminal | None = None,
    ) -> None:  # fmt: skip
        self.llm, self.max_tokens, self.sampling = llm, max_tokens, sampling
        self.terminal = terminal or Plain()
        self.messages: list[dict[str, Any]] = []
        self.images: list[str] = []  # of the next message
        self._restart(system)

    def _restart(self, system: str | None) -> None:
        self.messages = [] if system is None else [{"role": "system", "content": system}]

    def talk(self) -> None:
        """Until /exit or the end of the input."""
        while True:
            try:
                line = self.terminal.ask().strip()
                if line in ("/exit", "/quit", "/bye"):
                    return
                self.turn(line)
            except EOFError:
                return
            except KeyboardInterrupt:
                click.echo()

    def turn(self, line: str) -> None:
        """A message of the user's, or a command."""
        try:
            if line.startswith("/"):
                name, _, text = line[1:].partition(" ")
                self._command(name, text.strip())
            elif line:
                self._reply(self._said(line))
        except LuminalError as error:
            tell(error)

    def _said(self, text: str) -> Any:
        """A message's content: the text, with the pictures before it if there are any."""
        shown = [{"type": "image", "image": path} for path in self.images]
        self.images = []
        return [*shown, {"type": "text", "text": text}] if shown else text

    def _reply(self, content: Any, instead: int = 0) -> None:
        """The reply joins the conversation, also if Ctrl-C cut it; a failed turn leaves none.
        instead: of so many last messages."""
        before = list(self.messages)
        self.messages[len(before) - instead :] = [{"role": "user", "content": content}]
        pieces: list[str] = []
        try:
            with contextlib.suppress(KeyboardInterrupt):  # between two pieces
                self.terminal.show(self._pieces(pieces))
        except LuminalError:
            self.messages = before
            raise
        self.messages.append({"role": "assistant", "content": "".join(pieces)})

    def _pieces(self, kept: list[str]) -> Iterator[str]:
        """The reply as it is made; Ctrl-C is its end."""
        try:
            for piece in self.llm.stream(self.messages, self.max_tokens, **self.sampling):
                kept.append(piece)
                yield piece
        except KeyboardInterrupt:
            return

    def _command(self, name: str, text: str) -> None:
        if name == "clear":
            self._restart(None)
        elif name == "system":
            self._restart(text)
        elif name == "retry" and [m["role"] for m in self.messages[-2:]] == ["user", "assistant"]:
            self._reply(self.messages[-2]["content"], instead=2)
        elif name == "history":
            click.echo("\n".join(f"{m['role']}: {_shown(m['content'])}" for m in self.messages))
        elif name == "image" and text:
            self._image(_path(text))
        elif name in ("save", "load") and text:
            (self._save if name == "save" else self._load)(_path(text))
        elif name == "set" and len(words := text.split()) == 2:
            self._set(words[0].replace("-", "_"), words[1])
        else:
            click.echo(HELP, nl=False)

    def _image(self, path: Path) -> None:
        if not path.is_file():
            raise InputError(f"{path}: no such file")
        self.images.append(str(path))
        click.echo(f"{path}: with your next message")

    def _save(self, path: Path) -> None:
        kept = {"messages": self.messages, "sampling": self.sampling}
        try:
            text = json.dumps(kept, indent=1, ensure_ascii=False) + "\n"
            write_over(path, text.encode("utf-8", "replace"))
        except OSError as error:
            raise InputError(f"{path}: {error.strerror}") from error
        click.echo(f"{len(self.messages)} messages in {path}")

    def _load(self, path: Path) -> None:
        from ..models.llm import Sampling

        try:
            kept = json.loads(path.read_text("utf-8"))
            messages = [{"role": str(m["role"]), "content": _content(m["content"])}
                        for m in kept["messages"]]  # fmt: skip
            sampling = dict(kept["sampling"])
            given = {f.name: sampling[f.name] for f in fields(Sampling) if f.name in sampling}
            Sampling(**given)
        except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
            raise InputError(f"{path} holds no conversation of /save: {error}") from error
        self.messages, self.sampling = messages, self.sampling | given
        click.echo(f"{len(messages)} messages from {path}")

    def _set(self, name: str, value: str) -> None:
        from ..models.llm import Sampling

        known = {field.name for field in fields(Sampling)} - {"logit_bias"}
        whole = name in ("seed", "top_k")
        try:
            number = int(value) if whole else float(value)
        except ValueError:
            number = None
        if name not in known or number is None:
            click.echo(f"luminal: /set takes one of {', '.join(sorted(known))} and a number")
            return
        chosen: dict[str, Any] = {name: number}
        Sampling(**chosen)  # refuses what is out of range
        self.sampling[name] = number


def _path(text: str) -> Path:
    """A file that is named. Raises InputError."""
    try:
        if "\0" in text:
            raise ValueError("a name has no NUL")
        return Path(text).expanduser()
    except (ValueError, RuntimeError) as error:  # nobody's home
        raise InputError(f"{text!r}: {error}") from None


def _content(kept: Any) -> Any:
    """A text, or parts of texts and pictures. Raises ValueError, TypeError."""
    if not isinstance(kept, list):
        return str(kept)
    return [{str(name): str(value) for name, value in dict(part).items()} for part in kept]


def _shown(content: Any) -> str:
    if isinstance(content, str):
        return content
    return " ".join(part.get("text") or f"[{part['image']}]" for part in content)
