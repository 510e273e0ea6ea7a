"""Language models: load, generate, stream; families as data over one decoder."""

from .config import DecoderConfig, Experts, Rope
from .decoder import Decoder
from .engine import Busy, Engine
from .grammar import Grammars, json_grammar
from .llm import LLM, Completion
from .program import DecoderProgram
from .reply import Known, Piece, Wishes
from .sampling import Sampling
from .storage import Storage
from .text import Tokenizer

__all__ = [
    "LLM",
    "Busy",
    "Completion",
    "Decoder",
    "DecoderConfig",
    "DecoderProgram",
    "Engine",
    "Experts",
    "Grammars",
    "Known",
    "Piece",
    "Rope",
    "Sampling",
    "Storage",
    "Tokenizer",
    "Wishes",
    "json_grammar",
]
