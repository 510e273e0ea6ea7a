"""A server with OpenAI's interface: chat, completions, embeddings, metrics."""

from .app import create_app
from .run import Options, serve

__all__ = ["Options", "create_app", "serve"]
