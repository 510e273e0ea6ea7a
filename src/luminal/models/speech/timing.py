"""Times of words: the path through the attention to sound that dynamic time warping finds, as
OpenAI's implementation of Whisper has it (https://github.com/openai/whisper, timing.py), but that a
word is of one segment, and that none becomes longer where its segment's times are taken."""

from __future__ import annotations

import string
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from ..llm.text import UNFINISHED, Tokenizer
from .decoding import softmax
from .program import Encoded
from .rules import STEP
from .transcript import Segment, Word

if TYPE_CHECKING:
    from .whisper import Whisper

MEDIAN = 7  # frames of the filter along time
MEDIAN_AT_MOST, MARGIN = 0.7, 0.5  # seconds of a usual word; of a pause
ENDS = ".。!！?？"  # of sentences
WITHOUT_BLANKS = ("zh", "ja", "th", "lo", "my", "yue")  # languages
# marks that belong to the next word, and to the last one
BEFORE, AFTER = "\"'“¿([{-", "\"'.。,，!！?？:：”)]}、"


def timed(
    model: Whisper, encoded: Encoded, segments: Sequence[Segment], seek: float, frames: int,
    language: str, task: str, spoken: float = 0.0,
) -> list[Segment]:  # fmt: skip
    """The segments of a window with their words. seek: seconds before it. frames: of its encoded
    sound that are no padding. spoken: when the last word before it ends."""
    end = model.specials.end
    parts = [[token for token in each.tokens if token < end] for each in segments]
    tokens = [token for part in parts for token in part]
    if not tokens:
        return list(segments)
    prompt = model.prompt(language, task, timestamps=False)
    shares, probabilities = listened(model, encoded, prompt, tokens)
    starts, ends = token_times(shares[:, :, :frames], len(prompt))
    words: list[Word] = []
    counts, place = [], 0  # words of each segment
    for part in parts:
        pieces = split(part, model.tokenizer, language in WITHOUT_BLANKS)
        counts.append(len(pieces))
        for text, ids in pieces:
            inside = slice(place, place + len(ids))
            likely = float(probabilities[inside].mean())
            words.append(Word(text, float(starts[inside][0]), float(ends[inside][-1]), likely))
            place += len(ids)
    usual = usual_length(words)
    left, found = iter(shortened(words, usual)), []
    for segment, count in zip(segments, counts):
        own = [replace(word, start=round(seek + word.start, 2), end=round(seek + word.end, 2))
               for word in merged(list(islice(left, count)))]  # fmt: skip
        segment = exact(bounded(segment, after_pause(own, spoken, usual), usual))
        spoken = segment.end if own else spoken
        found.append(segment)
    return found


def listened(
    model: Whisper, encoded: Encoded, prompt: Sequence[int], tokens: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """(how much of each frame each token takes (heads, all tokens, frames), with those of the
    prompt and of the end; the probabilities of the tokens)."""
    program, start = model.aligner, len(prompt)
    ids = np.array([[*prompt, *tokens, model.specials.end]], np.int64)
    program.listen(encoded)
    logits = program.prompt(ids, range(start - 1, start - 1 + len(tokens)))[0]
    likely = softmax(logits[:, : model.specials.end])[np.arange(len(tokens)), list(tokens)]
    return program.shares, likely


def token_times(shares: np.ndarray, start: int) -> tuple[np.ndarray, np.ndarray]:
    """(starts, ends) in seconds of the tokens between a prompt of `start` tokens and the last one,
    from the shares (heads, tokens, frames) of all."""
    shares = shares / shares.sum(-1, keepdims=True)
    spread = shares.std(1, keepdims=True)
    shares = (shares - shares.mean(1, keepdims=True)) / np.maximum(spread, 1e-12)
    # the token that is read predicts the next one: what it takes is for that one
    rows, columns = path(-filtered(shares[:, start - 1 : -1]).mean(0))
    begins = np.diff(rows, prepend=-1) > 0
    times = columns[begins] * STEP
    return times[:-1], times[1:]


def filtered(x: np.ndarray, width: int = MEDIAN) -> np.ndarray:
    """The median of `width` neighbours along the last dimension, mirrored at the ends."""
    side = width // 2
    if x.shape[-1] <= side:
        return x
    padded = np.pad(x, [(0, 0)] * (x.ndim - 1) + [(side, side)], "reflect")
    windows = np.lib.stride_tricks.sliding_window_view(padded, width, -1)
    found: np.ndarray = np.median(windows, -1)
    return found


def path(cost: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The cheapest way (rows, columns) from the first to the last place of a table, each step going
    one down, one right, or both (Sakoe and Chiba 1978). Diagonals are computed at once."""
    count, width = cost.shape
    total = np.full((count + 1, width + 1), np.inf)
    total[0, 0] = 0.0
    step = np.zeros((count + 1, width + 1), np.int8)
    for diagonal in range(2, count + width + 1):
        i = np.arange(max(1, diagonal - width), min(count, diagonal - 1) + 1)
        j = diagonal - i
        both, down, right = total[i - 1, j - 1], total[i - 1, j], total[i, j - 1]
        kind = np.where((both < down) & (both < right), 0,
                        np.where((down < both) & (down < right), 1, 2))  # fmt: skip
        total[i, j] = cost[i - 1, j - 1] + np.minimum(np.minimum(both, down), right)
        step[i, j] = kind
    step[0, :], step[:, 0] = 2, 1
    i, j = count, width
    found = []
    while i > 0 or j > 0:
        found.append((i - 1, j - 1))
        kind = step[i, j]
        i, j = i - int(kind != 2), j - int(kind != 1)
    rows, columns = np.array(found[::-1]).T
    return rows, columns


# ---- words


Piece = tuple[str, list[int]]


def split(tokens: Sequence[int], tokenizer: Tokenizer, without_blanks: bool) -> list[Piece]:
    """Text with the tokens that it is made of: words, or characters in languages without blanks.
    What is unfinished in the whole text too is no part of a character."""
    whole, before = tokenizer.decode(list(tokens)), 0
    pieces: list[Piece] = []
    waiting: list[int] = []
    for token in tokens:
        waiting.append(token)
        text = tokenizer.decode(waiting)
        place = text.find(UNFINISHED)
        if place < 0 or whole.startswith(UNFINISHED, before + place):
            pieces.append((text, waiting))
            waiting, before = [], before + len(text)
    if waiting:
        pieces.append((tokenizer.decode(waiting), waiting))
    if without_blanks:
        return pieces
    words: list[Piece] = []
    for text, ids in pieces:
        alone = text.startswith(" ") or text.strip() in string.punctuation
        if alone or not words:
            words.append((text, list(ids)))
        else:
            words[-1] = (words[-1][0] + text, words[-1][1] + ids)
    return words


def usual_length(words: Sequence[Word]) -> float:
    """The median of the seconds that a word takes, at most MEDIAN_AT_MOST."""
    lengths = [word.end - word.start for word in words if word.end > word.start]
    return min(MEDIAN_AT_MOST, float(np.median(lengths))) if lengths else 0.0


def shortened(words: Sequence[Word], usual: float) -> list[Word]:
    """A word beside the end of a sentence is not much longer than usual: that is a pause."""
    found, most = list(words), 2 * usual
    for n in range(1, len(found)):
        word = found[n]
        if word.end - word.start > most:
            if word.text in ENDS:
                found[n] = replace(word, end=word.start + most)
            elif found[n - 1].text in ENDS:
                found[n] = replace(word, start=word.end - most)
    return found


def merged(words: Sequence[Word]) -> list[Word]:
    """Marks join the words that they belong to, which keep their times."""
    backwards: list[Word] = []
    for word in reversed(words):
        if backwards and word.text.startswith(" ") and word.text.strip() in BEFORE:
            after = backwards.pop()
            word = replace(after, text=word.text + after.text)
        backwards.append(word)
    found: list[Word] = []
    for word in reversed(backwards):
        if found and word.text in AFTER and not found[-1].text.endswith(" "):
            found[-1] = replace(found[-1], text=found[-1].text + word.text)
        else:
            found.append(word)
    return found


def after_pause(words: Sequence[Word], spoken: float, usual: float) -> list[Word]:
    """The first two words of a segment are not much longer than usual where the last one before
    ended long ago, at `spoken`."""
    found, most = list(words), 2 * usual
    if not found or found[0].end - spoken <= 2 * most:
        return found
    first = found[0]
    if first.end - first.start <= most and (
        len(found) == 1 or found[1].end - first.start <= 2 * most
    ):
        return found
    if len(found) > 1 and found[1].end - found[1].start > most:
        edge = max(found[1].end / 2, found[1].end - most)
        first, found[1] = replace(first, end=edge), replace(found[1], start=edge)
    found[0] = replace(first, start=max(0.0, first.end - most))
    return found


def bounded(segment: Segment, words: Sequence[Word], usual: float) -> Segment:
    """A segment with its words. Where its own times leave out much of the first or last word, they
    are the truth: that is silence. Else the words' are. No word becomes longer than it was."""
    if not words:
        return segment
    first, last = words[0], words[-1]
    start, end = segment.start, segment.end
    if start < first.end and start - MARGIN > first.start:
        first = replace(first, start=max(first.start, min(first.end - usual, start)))
    else:
        start = first.start
    last = first if len(words) == 1 else last
    if end > last.start and end + MARGIN < last.end:
        last = replace(last, end=min(last.end, max(last.start + usual, end)))
    else:
        end = last.end
    inside = (first, *words[1:-1], last) if len(words) > 1 else (last,)
    return replace(segment, start=start, end=end, words=inside)


def exact(segment: Segment) -> Segment:
    """Without the last digits of sums, by which equal times would differ."""
    words = tuple(
        replace(w, start=round(w.start, 6), end=round(w.end, 6)) for w in segment.words
    )
    return replace(segment, start=round(segment.start, 6), end=round(segment.end, 6), words=words)
