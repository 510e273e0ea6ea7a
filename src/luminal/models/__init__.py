"""Models as people have them, built from `luminal.nn`."""

from .bert import Bert, BertConfig
from .sentence import SentenceEncoder

__all__ = ["Bert", "BertConfig", "SentenceEncoder"]
