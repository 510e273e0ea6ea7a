"""What clients may ask, checked field by field. Names and ranges are OpenAI's, some are vLLM's.
What is not known is told in the log; what would change the reply but is not built is refused.
"""

from .base import MOST_CHOICES, Body, Generation
from .chat import Chat
from .others import Completion, Detokenize, Embeddings, Images, Rerank, Speech, Tokenize
from .responses import Responses

__all__ = [
    "MOST_CHOICES", "Body", "Chat", "Completion", "Detokenize", "Embeddings", "Generation",
    "Images", "Rerank", "Responses", "Speech", "Tokenize",
]  # fmt: skip
