"""Models as people have them, built from `luminal.nn`."""

from .bert import Bert, BertConfig
from .llm import LLM
from .sentence import SentenceEncoder

__all__ = ["LLM", "Bert", "BertConfig", "SentenceEncoder"]
