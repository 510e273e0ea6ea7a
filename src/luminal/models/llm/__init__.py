"""Language models: load, generate, stream; families as data over one decoder."""

from .config import DecoderConfig, Experts, Rope
from .decoder import Decoder
from .llm import LLM, Completion, Piece
from .program import DecoderProgram
from .sampling import Sampling
from .storage import Storage
from .text import Tokenizer

__all__ = [
    "LLM",
    "Completion",
    "Decoder",
    "DecoderConfig",
    "DecoderProgram",
    "Experts",
    "Piece",
    "Rope",
    "Sampling",
    "Storage",
    "Tokenizer",
]
