"""Models as people have them, built from `luminal.nn`."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .bert import Bert, BertConfig
    from .diffusion import Pipeline
    from .llm import LLM
    from .ranking import MultiVectorEncoder, Reranker, SparseEncoder
    from .sentence import SentenceEncoder
    from .seq2seq import T5
    from .speech import Whisper

__all__ = [
    "LLM",
    "T5",
    "Bert",
    "BertConfig",
    "MultiVectorEncoder",
    "Pipeline",
    "Reranker",
    "SentenceEncoder",
    "SparseEncoder",
    "Whisper",
]  # fmt: skip

_LATER = {
    "LLM": ".llm", "Bert": ".bert", "BertConfig": ".bert", "SentenceEncoder": ".sentence",
    "MultiVectorEncoder": ".ranking", "Reranker": ".ranking", "SparseEncoder": ".ranking",
    "Whisper": ".speech", "Pipeline": ".diffusion", "T5": ".seq2seq",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Each is imported when first asked for."""
    if name not in _LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_LATER[name], __name__), name)
