"""Damaged files, one after the other: each ends in an error of ours or in a right load.

    python tests/weights/damage.py FIRST COUNT

in a process of its own, as a crash would end it. Prints what ended otherwise, one a line.
"""

from __future__ import annotations

import faulthandler
import random
import resource
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import mutations as m
import numpy as np
import safetensors

from luminal.errors import LuminalError
from luminal.models import SentenceEncoder
from luminal.models.llm.loading import load
from luminal.models.llm.program import recorded
from luminal.models.llm.weights import fitting
from luminal.weights import Safetensors

SECONDS = 60
MEMORY = 1 << 20  # KiB above what a right load takes
LLMS = {family: m.decoder(family) for family in m.FAMILIES}
ENCODER = m.encoder()


class Slow(BaseException):
    """A case took too long."""


def language_model(path: Path) -> None:
    """Everything that is made of a model's files before its program is compiled, and its texts."""
    found = load(path)
    made = recorded(found.config, found.context, 8, found.storage, found.kv)
    for tensor, value in fitting(made.model, found.state):
        assert tuple(tensor.shape) == value.shape
    if isinstance(found.text, LuminalError):
        raise found.text
    ids = found.text.encode("ab cd hello, \U0001f642 world")
    found.text.decode(ids)
    found.text.decode([0, 1, 2, 5])
    found.text.chat([{"role": "user", "content": "hello"}])


def sentence_model(path: Path) -> None:
    encoder = SentenceEncoder(path, device="reference")
    encoder.tokenize(["ab cd", "hello"])


def weights_alone(path: Path) -> None:
    """Whatever is read equals what the reference library reads."""
    ours = Safetensors(path)
    with safetensors.safe_open(path, "numpy") as theirs:
        assert sorted(ours) == sorted(theirs.keys())
        for name in ours:
            np.testing.assert_array_equal(ours[name], theirs.get_tensor(name))


def case(number: int, directory: Path) -> Any:
    """(what to call, with what) of one damaged model."""
    draw = random.Random(number)
    which = draw.random()
    if which < 0.3:
        kind, file = draw.choice(["gpt2", "llama"]), directory / "model.gguf"
        if draw.random() < 0.6:
            raw = m.damaged_gguf(kind, draw)
        else:
            raw = m.damaged(m.gguf(m.gguf_entries(kind), m.gguf_tensors()), draw)
        file.write_bytes(raw)
        return language_model, file
    files = dict(ENCODER if which < 0.45 else LLMS[draw.choice(list(LLMS))])
    name, raw = m.damage(files, draw)
    m.write(directory, files | {name: raw})
    if name.endswith(".safetensors") and draw.random() < 0.5:
        return weights_alone, directory / name
    return (sentence_model if files["config.json"] == ENCODER["config.json"] else language_model), (
        directory
    )


def tried(number: int) -> str:
    """How a case ended: "loaded", "refused", or what went wrong."""
    with tempfile.TemporaryDirectory() as directory:
        call, path = case(number, Path(directory))
        signal.alarm(SECONDS)
        try:
            call(path)
            return "loaded"
        except LuminalError as error:
            str(error).encode()  # it can be printed
            return "refused"
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt):
                raise
            last = traceback.extract_tb(error.__traceback__)[-1]
            return f"{type(error).__name__}: {error} ({last.filename}:{last.lineno})"[:400]
        finally:
            signal.alarm(0)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def ring(signal_number: int, frame: Any) -> None:
    raise Slow(f"more than {SECONDS} s")


def right_files_load() -> None:
    with tempfile.TemporaryDirectory() as directory:
        for number, files in enumerate([*LLMS.values(), ENCODER]):
            place = Path(directory) / str(number)
            place.mkdir()
            m.write(place, files)
            (sentence_model if files is ENCODER else language_model)(place)
        for kind in ("gpt2", "llama"):
            file = Path(directory) / f"{kind}.gguf"
            file.write_bytes(m.gguf(m.gguf_entries(kind), m.gguf_tensors()))
            language_model(file)


def main(first: int, count: int) -> None:
    signal.signal(signal.SIGALRM, ring)
    right_files_load()
    usual, ends = peak(), {"loaded": 0, "refused": 0}
    for number in range(first, first + count):
        faulthandler.dump_traceback_later(3 * SECONDS, exit=True)  # code that no signal ends
        before, end = peak(), tried(number)
        if peak() - before > MEMORY:
            end = f"{peak() - before} KiB of memory"
        if end in ends:
            ends[end] += 1
        else:
            print(f"case {number}: {end}", flush=True)
    faulthandler.cancel_dump_traceback_later()
    print(f"{ends['loaded']} loaded, {ends['refused']} refused, {(peak() - usual) >> 10} MiB more")


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
