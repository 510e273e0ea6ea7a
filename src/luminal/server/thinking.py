"""What a model thinks before it answers, parted from the answer."""

from __future__ import annotations

from dataclasses import dataclass

from ..models.llm import Tokenizer
from ..models.llm.text import overlap

TAGS = (("<think>", "</think>"), ("[THINK]", "[/THINK]"))  # Qwen, DeepSeek; Mistral


@dataclass(frozen=True)
class ThinkingForm:
    """The tags of one model. tokens: those of them that are one token each."""

    begin: str
    end: str
    tokens: tuple[int, ...]

    @staticmethod
    def of(tokenizer: Tokenizer) -> ThinkingForm | None:
        """None for a model whose chat template does not tell that it thinks."""
        template = tokenizer.template or ""
        for begin, end in TAGS:
            if begin in template or end in template:
                found = (tokenizer.token(begin), tokenizer.token(end))
                return ThinkingForm(begin, end, tuple(n for n in found if n is not None))
        return None

    def reader(self, prompt: str) -> ThinkingReader:
        """Of the reply to this prompt, which may open the thoughts itself."""
        return ThinkingReader(self, prompt.rstrip().endswith(self.begin))


class ThinkingReader:
    """Parts a reply as it comes. It thinks from its beginning on, or not at all."""

    def __init__(self, form: ThinkingForm, thinking: bool) -> None:
        self._form, self._held, self._told = form, "", False
        self._state = "thinking" if thinking else "begin"

    def push(self, piece: str, ended: bool = False) -> tuple[str, str]:
        """(thoughts, answer) that are certain now."""
        self._held += piece
        begin, thoughts = self._form.begin, ""
        if self._state == "begin":
            said = self._held.lstrip()
            if said.startswith(begin):
                self._held, self._state = said[len(begin) :], "thinking"
            elif ended or not begin.startswith(said):
                self._state = "answer"
        if self._state == "thinking":
            thoughts = self._thoughts(ended)
        if self._state == "space":  # between thoughts and answer
            self._held = self._held.lstrip()
            self._state = "answer" if self._held else "space"
        if self._state != "answer":
            return thoughts, ""
        answer, self._held = self._held, ""
        return thoughts, answer

    def _thoughts(self, ended: bool) -> str:
        """Without the space around them."""
        if not self._told:
            self._held = self._held.lstrip()
        place = self._held.find(self._form.end)
        if place >= 0:
            thoughts = self._held[:place].rstrip()
            self._held, self._state = self._held[place + len(self._form.end) :], "space"
            return thoughts
        certain = len(self._held) - (0 if ended else overlap(self._held, self._form.end))
        thoughts = self._held[:certain].rstrip()
        self._held, self._told = self._held[len(thoughts) :], self._told or bool(thoughts)
        return thoughts
