"""Speech to text: Whisper."""

from .audio import read_audio
from .transcript import Segment, Transcript, Word
from .whisper import Options, Whisper, speech_model

__all__ = ["Options", "Segment", "Transcript", "Whisper", "Word", "read_audio", "speech_model"]
