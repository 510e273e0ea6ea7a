"""Speech to text: Whisper, Moonshine, Wav2Vec2."""

from .audio import read_audio
from .load import SpeechModel, speech_model
from .moonshine import Moonshine
from .transcript import Segment, Transcript, Word
from .wav2vec2 import Wav2Vec2
from .whisper import Options, Whisper

__all__ = [
    "Moonshine", "Options", "Segment", "SpeechModel", "Transcript", "Wav2Vec2", "Whisper", "Word",
    "read_audio", "speech_model",
]  # fmt: skip
