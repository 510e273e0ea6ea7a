"""Beam search, sampling, windows and times of words, on random weights."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tokenizers import pre_tokenizers
from transformers.models.whisper import tokenization_whisper as theirs

from luminal.errors import InputError
from luminal.models.speech import Options, Whisper
from luminal.models.speech.decoding import Decoding, Heard, log_softmax
from luminal.models.speech.languages import NAMES, code_of, name_of
from luminal.models.speech.rules import Rules
from luminal.models.speech.timing import (
    Word,
    after_pause,
    bounded,
    exact,
    filtered,
    merged,
    path,
    shortened,
    split,
    token_times,
)
from luminal.models.speech.transcript import Segment, Transcript, clock
from luminal.models.speech.windows import ahead

from .checkpoints import LANGUAGES, sound, whisper
from .test_whisper import loaded, mels


def rules(model: Whisper, timestamps: bool = False) -> Rules:
    return Rules(model.specials, model.config.suppress, model.config.suppress_first, timestamps)


def searched(mel: np.ndarray, prompt: list[int], own: Rules, width: int, limit: int) -> Heard:
    """Beam search with transformers' logits, all computed anew for each hypothesis."""
    model, end = whisper()[1], own.specials.end
    going, ended = [Heard((), 0.0)], []
    with torch.no_grad():
        memory = model.model.encoder(torch.tensor(mel[None]))
        for _ in range(limit):
            found = []
            for each in going:
                ids = torch.tensor([[*prompt, *each.tokens]])
                logits = model(encoder_outputs=memory, decoder_input_ids=ids).logits[:, -1].numpy()
                own.apply(logits, [each.tokens])
                shares = log_softmax(logits)[0]
                found += [Heard((*each.tokens, int(t)), each.score + float(shares[t]))
                          for t in np.argsort(-shares)[: width + 1]]  # fmt: skip
            found.sort(key=lambda each: -each.score)
            going = []
            for each in found:
                if len(going) == width:
                    break
                if each.tokens[-1] != end:
                    going.append(each)
                elif len(ended) < width:
                    ended.append(Heard(each.tokens[:-1], each.score))
            if len(ended) >= width:
                going = []
                break
    several = ended + going[: max(0, width - len(ended))]
    return max(several, key=lambda each: each.score / max(1, len(each.tokens)))


@pytest.mark.parametrize("timestamps", [False, True])
def test_beams_find_what_a_search_without_a_cache_finds(timestamps: bool) -> None:
    model, mel = loaded(), mels(loaded(), 5)
    own, prompt = rules(model, timestamps), model.prompt("en", "transcribe", timestamps)
    how = Decoding(model.decoder, own, hypotheses=3, limit=12)
    (heard,) = how.hear(model.encoder(mel), prompt)
    expected = searched(mel[0], prompt, own, 3, 12)
    assert heard.tokens == expected.tokens
    assert heard.score == pytest.approx(expected.score, abs=1e-3)


def test_sampling_keeps_to_the_rules_and_its_seed() -> None:
    model = loaded()
    encoded, prompt = model.encoder(mels(model, 6)), model.prompt("fr", "transcribe")
    own = rules(model, timestamps=True)

    def drawn(seed: int) -> Heard:
        how = Decoding(model.decoder, own, 4, temperature=1.0, limit=30, seed=seed)
        return how.hear(encoded, prompt)[0]

    first, again, other = drawn(1), drawn(1), drawn(2)
    assert first == again != other
    for tokens in (first.tokens, other.tokens):
        assert not {*model.config.suppress} & {*tokens}
        times = [token for token in tokens if token >= model.specials.time]
        assert times == sorted(times) and tokens[0] == times[0] <= model.specials.time + 50


def test_long_recordings_are_heard_window_after_window() -> None:
    model, samples = loaded(), sound(4.7, 3)
    found = model.transcribe(samples, temperatures=(0.0,), words=True)
    assert found.language in LANGUAGES and found.duration == pytest.approx(4.7)
    assert len({each.seek for each in found.segments}) > 1
    assert found.text == "".join(each.text for each in found.segments).strip() != ""
    for one, following in zip(found.segments, found.segments[1:]):
        assert one.seek <= following.seek
    for each in found.segments:
        assert 0 <= each.start <= each.end <= 4.8
        assert "".join(word.text for word in each.words).strip() == each.text.strip()
    for several in (found.segments, [word for each in found.segments for word in each.words]):
        times = [time for each in several for time in (each.start, each.end)]
        assert times == sorted(times)
    assert found == model.transcribe(samples, temperatures=(0.0,), words=True)


def test_the_next_window_begins_where_the_last_word_ends() -> None:
    """Unless the window ends in a single token of time. Without words, where its tokens say."""
    zero, words = 100, (Word(" a", 10.0, 10.5, 1.0), Word(" b", 11.0, 12.34, 1.0))
    said = [Segment(10.0, 11.9, " a b", words=words)]
    pair, alone = (100, 1, 2, 195, 195), (100, 1, 2, 195)
    assert ahead(pair, said, zero, 1000, 190) == ahead((100, 1, 2), said, zero, 1000, 190) == 234
    assert ahead(alone, said, zero, 1000, 200) == 200
    assert ahead(pair, [Segment(10.0, 11.9, " a b")], zero, 1000, 190) == 190
    still = [Segment(10.0, 10.0, " a", words=(Word(" a", 10.0, 10.0, 1.0),))]
    assert ahead(pair, still, zero, 1000, 190) == 190


def test_what_a_model_does_not_know_is_refused() -> None:
    model = loaded()
    for wrong, message in (
        ({"language": "xx"}, "no language 'xx'"), ({"task": "sing"}, "task 'sing'"),
        ({"beams": 9}, "9 beams"), ({"temperatures": ()}, "temperatures"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=message):
            model.transcribe(sound(0.5), **wrong)


# ---- times of words


def test_the_cheapest_path_is_found() -> None:
    cost = np.random.default_rng(0).standard_normal((7, 19))
    total = np.full((8, 20), np.inf)
    total[0, 0] = 0
    for i in range(1, 8):
        for j in range(1, 20):
            total[i, j] = cost[i - 1, j - 1] + total[i - 1 : i + 1, j - 1 : j + 1].min(
                where=np.array([[True, True], [True, False]]), initial=np.inf)  # fmt: skip
    rows, columns = path(cost)
    assert (rows[0], columns[0], rows[-1], columns[-1]) == (0, 0, 6, 18)
    assert {(a, b) for a, b in zip(np.diff(rows), np.diff(columns))} <= {(0, 1), (1, 0), (1, 1)}
    assert cost[rows, columns].sum() == pytest.approx(total[7, 19])


def test_the_median_filter_mirrors_at_the_ends() -> None:
    np.testing.assert_array_equal(filtered(np.array([0.0, 9, 0, 0, 5, 5, 5]), 3),
                                  [9, 0, 0, 0, 5, 5, 5])  # fmt: skip


def test_text_is_divided_into_words() -> None:
    model = loaded()
    tokens = model.tokenizer.encode(" Hé, you! (Me)", special=False)
    words = [text for text, _ in split(tokens, model.tokenizer, False)]
    assert words == [" Hé", ",", " you", "!", " ", "(Me", ")"]
    assert [n for _, ids in split(tokens, model.tokenizer, False) for n in ids] == tokens
    letters = [text for text, _ in split(tokens[:4], model.tokenizer, True)]
    assert letters == [" ", "H", "é"]


def test_what_is_no_character_keeps_no_words_together() -> None:
    """A byte of no character, in the middle and at the end, as transformers splits it."""
    tokenizer = loaded().tokenizer
    byte = sorted(pre_tokenizers.ByteLevel.alphabet()).index("ÿ")
    start, more = (tokenizer.encode(text, special=False) for text in (" é", " b c"))
    tokens = [*start, byte, *more, byte]
    like = SimpleNamespace(decode=lambda ids, **_: tokenizer.decode(ids))
    wanted, ids, _ = theirs._split_tokens_on_unicode(like, tokens)
    assert split(tokens, tokenizer, True) == list(zip(wanted, ids))
    words = [" é\ufffd", " b", " c\ufffd"]
    assert [piece for piece, _ in split(tokens, tokenizer, False)] == words


def test_marks_join_words_and_pauses_are_no_words() -> None:
    words = [Word(" a", 0.0, 0.5, 1.0), Word(".", 0.5, 4.0, 1.0), Word(" (", 4.0, 4.1, 1.0),
             Word("b", 4.1, 4.6, 1.0)]  # fmt: skip
    found = merged(shortened(words, 0.5))
    assert found == [Word(" a.", 0.0, 0.5, 1.0), Word(" (b", 4.1, 4.6, 1.0)]
    late = shortened([Word(".", 0.0, 0.1, 1.0), Word(" b", 0.1, 5.0, 1.0)], 0.5)
    assert late[1].start == 4.0
    alone = [Word(text, 0.0, 0.5, 1.0) for text in (" a", " ", "b", ' "')]
    assert [word.text for word in merged(alone)] == [" a", " b", ' "']


def test_words_after_a_pause_are_not_long() -> None:
    """Figures of OpenAI's rule, by hand; usual words have 0.25 s."""
    first, second = Word(" a", 2.0, 6.0, 1.0), Word(" b", 6.0, 6.25, 1.0)
    late = replace(first, start=5.5)
    assert after_pause([first], 0.0, 0.25) == [late]
    assert after_pause([first, second], 0.0, 0.25) == [late, second]
    assert after_pause([first, second], 5.5, 0.25) == [first, second]
    assert after_pause([late], 0.0, 0.25) == [late] and after_pause([], 0.0, 0.25) == []
    found = after_pause([first, replace(second, end=9.0)], 0.0, 0.25)
    assert [(word.start, word.end) for word in found] == [(8.0, 8.5), (8.5, 9.0)]


def test_times_are_of_shares_among_all_tokens() -> None:
    """What the prompt and the end take counts for the mean and the deviation."""
    shares = torch.from_numpy(np.random.default_rng(0).random((2, 12, 40)))
    given = shares / shares.sum(-1, keepdim=True)
    spread, mean = torch.std_mean(given, dim=-2, keepdim=True, unbiased=False)
    table = filtered(((given - mean) / spread).numpy()).mean(0)[3:-1]
    rows, columns = path(-table)
    first = np.unique(rows, return_index=True)[1]
    starts, ends = token_times(shares.numpy(), 4)
    np.testing.assert_allclose(starts, columns[first][:-1] * 0.02)
    np.testing.assert_allclose(ends, columns[first][1:] * 0.02)


def test_silence_at_the_ends_makes_no_word_longer() -> None:
    words = [Word(" a", 1.0, 1.6, 1.0), Word(" b", 1.6, 2.0, 1.0), Word(" c", 2.0, 2.6, 1.0)]
    found = bounded(Segment(1.55, 2.05, " a b c"), words, 0.7)
    assert found.words == tuple(words) and (found.start, found.end) == (1.55, 2.05)


def test_equal_times_are_equal_numbers() -> None:
    found = exact(Segment(0.1 + 0.2, 0.5, " a", words=(Word(" a", 0.1 + 0.2, 0.5, 1.0),)))
    assert found.start == found.words[0].start == 0.3


def test_languages_have_codes_and_names() -> None:
    """As transformers has them, from OpenAI."""
    assert NAMES == theirs.LANGUAGES
    assert {name: code_of(name.title()) for name in theirs.TO_LANGUAGE_CODE} == (
        theirs.TO_LANGUAGE_CODE)  # fmt: skip
    assert Options(language="DE").language == "de" and Options(language="xx").language == "xx"
    assert Transcript("", "haw", 0.0, ()).json()["language"] == "hawaiian"
    assert name_of("xx") == "xx"


# ---- subtitles


def test_subtitles() -> None:
    assert clock(3725.0426, ",") == "01:02:05,043"
    said = (Segment(0.0, 1.5, " A <b> & c"), Segment(1.5, 61.0, " ---> d"))
    found = Transcript("A <b> & c ---> d", "en", 61.0, said)
    assert found.srt() == (
        "1\n00:00:00,000 --> 00:00:01,500\nA <b> & c\n\n"
        "2\n00:00:01,500 --> 00:01:01,000\n-> d\n\n"
    )
    assert found.vtt() == (
        "WEBVTT\n\n00:00:00.000 --> 00:00:01.500\nA &lt;b&gt; &amp; c\n\n"
        "00:00:01.500 --> 00:01:01.000\n-&gt; d\n\n"
    )
