"""Public-domain English from Debian packages: six novels by Jane Austen, Moby Dick, the World
English Bible, the Devil's Dictionary. The end of every text is held out."""

from __future__ import annotations

import re
import struct
import subprocess
import zlib
from collections.abc import Iterator
from pathlib import Path

HELD_OUT = 0.04  # of each text, its end
PACKAGES = ("r-cran-janeaustenr", "r-cran-tokenizers", "sword-text-web", "dict-devil")
LIBRARY = "usr/lib/R/site-library"
BIBLE = "usr/share/sword/modules/texts/ztext/engWEB2015eb"
ENDS = {  # without introductions and the glossary
    "ot": ("In the beginning, God", "To him be glory forever and ever. Amen."),
    "nt": ("The book of the genealogy", "be with all the saints. Amen."),
}


def split(folder: Path) -> tuple[list[str], list[str]]:
    """(texts to learn from, their ends, which are held out)."""
    found = texts(folder)
    cuts = [text.rindex("\n", 0, int(len(text) * (1 - HELD_OUT))) for text in found]
    return [t[:cut] for t, cut in zip(found, cuts)], [t[cut:] for t, cut in zip(found, cuts)]


def texts(folder: Path) -> list[str]:
    """Whole works; paragraphs are lines. Packages that are not in the folder are downloaded there
    by apt-get."""
    for name in PACKAGES:
        if not (folder / name).is_dir():
            folder.mkdir(parents=True, exist_ok=True)
            subprocess.run(["apt-get", "download", name], cwd=folder, check=True)
            (archive,) = folder.glob(f"{name}_*.deb")
            subprocess.run(["dpkg-deb", "-x", archive, folder / name], check=True)
    austen = _r_texts(folder / PACKAGES[0] / LIBRARY / "janeaustenr/data/Rdata.rdb")
    (whale,) = _r_texts(folder / PACKAGES[1] / LIBRARY / "tokenizers/data/Rdata.rdb")
    whale = whale.replace("\r", "").split("End of Project")[0]
    whale = whale[whale.index("CHAPTER 1. Loomings") :]
    bible = [_verses(folder / PACKAGES[2] / BIBLE, part) for part in ("ot", "nt")]
    devil = folder / PACKAGES[3] / "usr/share/dictd/devil.dict.dz"
    entries = zlib.decompress(devil.read_bytes(), 31).decode("latin1")
    entries = entries[entries.index("ABASEMENT") : entries.rindex("abcdefg")]
    wrapped = (*austen, whale, entries)
    return [_plain(text).strip() for text in (*map(_unwrapped, wrapped), *bible)]


def _plain(text: str) -> str:
    """ASCII marks for typographic ones; nothing else that is not ASCII."""
    marks = {"“": '"', "”": '"', "‘": "'", "’": "'", "—": "--", "–": "-", "…": "...", "\t": " "}
    text = text.translate(str.maketrans(marks))
    return re.sub(r" *\n+ *", "\n", re.sub(r" {2,}", " ", text.encode("ascii", "ignore").decode()))


def _unwrapped(text: str) -> str:
    """Lines of a paragraph joined."""
    return "\n".join(part.replace("\n", " ").strip() for part in re.split(r"\n\s*\n", text))


def _r_texts(path: Path) -> Iterator[str]:
    """The character vectors of an R package's data, their elements as lines. Entries (4 bytes of
    length, zlib) hold R's XDR serialisation; see "R Internals", 1.8."""
    data, at = path.read_bytes(), 0
    while at < len(data):
        unpacking = zlib.decompressobj()
        raw = unpacking.decompress(data[at + 4 :])
        at = len(data) - len(unpacking.unused_data)
        lines = list(_strings(raw))
        if sum(map(len, lines)) > 10_000:
            yield "\n".join(lines)


def _strings(raw: bytes) -> Iterator[str]:
    """Of a character vector (type 16) behind the header, which names an encoding: flags, length,
    then (flags, length, bytes) for each."""
    at = 18 + struct.unpack_from(">I", raw, 14)[0]
    flags, count = struct.unpack_from(">II", raw, at)
    count = count if flags & 255 == 16 else 0
    at += 8
    for _ in range(count):
        (size,) = struct.unpack_from(">i", raw, at + 4)
        at += 8
        yield raw[at : at + max(size, 0)].decode("utf-8", "replace")
        at += max(size, 0)


def _verses(folder: Path, part: str) -> str:
    """A SWORD zText module without its markup, notes and headings: an index of (offset, size, size
    unpacked) over zlib blocks of OSIS."""
    index = (folder / f"{part}.bzs").read_bytes()
    packed = (folder / f"{part}.bzz").read_bytes()
    blocks = [packed[at : at + size] for at, size, _ in struct.iter_unpack("<III", index) if size]
    marked = b"".join(map(zlib.decompress, blocks)).decode("utf-8")
    marked = re.sub(r"<(note|title|list)\b.*?</\1>", " ", marked, flags=re.S)
    marked = re.sub(r"<div eID=[^>]*x-p\"/>|<l eID[^>]*>|</lg>|<lb[^>]*>", "\n", marked)
    text = re.sub(r"<[^>]*>", "", marked).replace("&amp;", "&")
    start, end = ENDS[part]
    return text[text.index(start) : text.index(end) + len(end)]
