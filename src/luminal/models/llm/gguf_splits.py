"""How a text is cut before pairs are merged: what `tokenizer.ggml.pre` of a GGUF file names. The
patterns are those of the models' own tokenizer.json files, cut after cut."""

from __future__ import annotations

SHORT = "'s|'t|'re|'ve|'m|'ll|'d"
GPT2 = rf"{SHORT}| ?\p{{L}}+| ?\p{{N}}+| ?[^\s\p{{L}}\p{{N}}]+|\s+(?!\S)|\s+"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
MARKS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
SIGNS = r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"
WORDS = rf"{SIGNS}|[^\r\n\p{{L}}\p{{P}}\p{{S}}]?[\p{{L}}\p{{M}}]+| ?[\p{{P}}\p{{S}}]+"
CHINESE = "[一-龥぀-ゟ゠-ヿ]+"
OLD_CHINESE = "[一-龥ࠀ-一가-\ud7ff]+"
ASIAN = ("[一-鿿㐀-䶿豈-\ufaff぀-ゟ゠-ヿ･-ﾟ⼀-\u2fdf\u0e00-\u0e7f\u0e80-\u0effក-\u17ffက-႟"
         "ꩠ-ꩿꧠ-\ua9ff가-\ud7afᄀ-ᇿ]+")  # fmt: skip
SENTENCE = r" ?[^(\s|.,!?…。，、।۔،)]+"
THREES = r"\d{1,3}(?=(?:\d{3})*\b)"  # digits by threes from the right
DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽ"
    "ᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅ"
    "ὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ"
    "-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎ"
    "ꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)


def _plain(letters: str = r"\p{L}+", digits: str = r"\p{N}", marks: str = MARKS) -> str:
    """Words with one sign before them, numbers, signs, spaces: the kind of Llama 3 and Qwen 2."""
    return rf"(?i:{SHORT})|[^\r\n\p{{L}}\p{{N}}]?{letters}|{digits}|{marks}|{SPACES}"


def _cased(ending: str, digits: str, less: str = "") -> str:
    """Words change at a small letter before a large one. ending: what may follow a word. less: what
    letters are not."""
    upper, lower = (f"[{kind}&&[^{less}]]" if less else kind for kind in (UPPER, LOWER))
    words = (f"{upper}*{lower}+", f"{upper}+{lower}*")
    rest = rf"| ?[^\s\p{{L}}\p{{N}}]+[\r\n{'' if less else '/'}]*|{SPACES}"
    return "|".join(rf"[^\r\n\p{{L}}\p{{N}}]?{word}{ending}" for word in words) + f"|{digits}{rest}"


SUFFIX = rf"(?i:{SHORT})?"
LLAMA3, QWEN2 = _plain(digits=r"\p{N}{1,3}"), _plain()
FEWER = "|".join(rf"\s{{{n}}}(?!\S)" for n in (512, 256, 128, 64, 32, 16, 8, 4, "1,2")) + r"|\s"
GPT4O = _cased(SUFFIX, r"\p{N}{1,3}")
KINDS: dict[tuple[str, ...], tuple[str, ...]] = {
    (GPT2,): (
        "default", "gpt-2", "phi-2", "olmo", "jais", "mpt", "jina-es", "jina-de", "jina-v2-es",
        "jina-v2-de", "gigachat", "a.x-4.0", "mellum", "modern-bert", "jina-v1-en", "jina-v2-code",
        "roberta-bpe", "exaone4", "trillion", "granite-docling",
    ),
    (r"\p{N}", GPT2): (
        "smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b",
        "mellum2",
    ),
    (LLAMA3,): (
        "llama-bpe", "llama3", "llama-v3", "dbrx", "smaug-bpe", "chatglm-bpe", "glm4", "glm5",
        "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano",
    ),
    (LLAMA3.replace(r"\s+(?!\S)|\s+", FEWER),): ("jais-2",),
    (QWEN2,): (
        "qwen2", "stablelm2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "hunyuan",
        "solar-open", "grok-2",
    ),
    (_plain(r"[\p{L}\p{M}]+", marks=r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*"),): ("qwen35",),
    (_plain(r"(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+", marks=r" ?[^\s\p{L}\p{N}]+[\r\n/]?"),): (
        "exaone-moe",
    ),
    (_plain(marks=r" ?[^\s\p{L}\p{N}\r\n]+"),): ("seed-coder",),
    (_plain().replace(r"\s*[\r\n]+", r"\s*[\r\n]"),): ("bailingmoe", "bailingmoe2", "llada-moe"),
    ("[^" + QWEN2.partition("|[^")[2],): ("ufakzeka",),
    (r"[^\n]+|[\n]+", QWEN2): ("laguna",),
    (r"\p{N}{1,3}", _plain(digits=r"\p{N}+")): ("minicpm5",),
    (GPT4O,): (
        "gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2", "granite-embed-multi-97m",
    ),
    (THREES, GPT4O): ("tiny_aya", "cohere2moe"),
    (_cased("", r"\p{N}"),): ("tekken",),
    (r"\p{Han}+|" + _cased(SUFFIX, r"\p{N}{1,3}", r"\p{Han}"),): ("kimi-k2",),
    (r"\p{N}{1,3}", CHINESE, rf"{WORDS}[\r\n]*|{SPACES}"): (
        "deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4",
    ),
    (r"\p{N}{1,3}", CHINESE, rf"{WORDS}|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"): ("spark2_5",),
    (THREES, ASIAN, rf"{WORDS}[\r\n]*|{SPACES}"): ("afmoe",),
    (f"[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|{CHINESE}", _cased(SUFFIX, r"\p{N}")): (
        "youtu",
    ),
    (r"[\r\n]", rf"\s?[{DEEPSEEK_LETTERS}]+", r"\s?[!-/:-~！-／：-～‘-‟　-。]+", r"\s+$",
     OLD_CHINESE, r"\p{N}+"): ("deepseek-llm",),
    (r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", OLD_CHINESE, r"\p{N}"): ("deepseek-coder",),
    (r"[\p{P}\$\+<=>\^~\|`]+", GPT2, "[0-9][0-9][0-9]"): ("falcon",),
    (SENTENCE,): ("poro-chat", "bloom", "gpt3-finnish"),
    (SENTENCE, r"\p{N}"): ("viking",),
    (r"\p{N}+", r"(?=(\d{3})+(?!\d))"): ("superbpe",),
    ("<sentinel:[0-9]+>", "(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", r"\p{N}",
     r"[\p{P}!-/:-@\[-`{-~]", GPT2): ("chameleon",),
}  # fmt: skip
SPLITS = {name: patterns for patterns, names in KINDS.items() for name in names}
WHOLE = frozenset((  # a piece that is a token stays one, whatever its merges are
    "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
    "jina-v5-nano", "tekken", "youtu", "minicpm5", "granite-embed-multi-97m", "glm4", "glm5",
))  # fmt: skip
BEGUN = frozenset((  # a begin token comes before every text, unless the file says otherwise
    "llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2",
    "jina-v5-nano", "tekken", "chameleon",
))  # fmt: skip
WORDS_ALONE = ("whitespace",)  # cut at spaces, which are not kept
UNCUT = ("gemma4", "sarvam-moe", "granite-embed-multi-311m")  # spaces as "▁", bytes as <0x..>
