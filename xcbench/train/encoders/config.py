"""The settings of an encoder."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from xcbench.nn.pretrained import model_identity
from xcbench.nn.transformer import Pooling, Precision


@dataclass(frozen=True)
class EncoderConfig:
    """What maps the text of a point to its vector. Not every kind has every setting."""

    kind: Literal["bag", "inception", "transformer"] = "bag"
    """A bag of tokens with DECAF's embedding block; InceptionXML's convolutions over words; or a transformer."""
    model: str | None = field(default=None, metadata={"identity": model_identity})
    """Of a transformer: `minilm`, a folder, or a name at Hugging Face that is in this machine's cache."""
    dim: int = 256
    """The length of a bag's vectors, or of a word's in `inception`. A transformer has its own."""
    start: Literal["words", "random"] = "words"
    """Where vectors of tokens and words start: at vectors learnt from the co-occurrence of words, or at random."""
    length: int = 32
    """How many words or word pieces of a text are read, the first ones."""
    pooling: Pooling = "mean"
    """Of a transformer: the mean over all word pieces, or the first one's vector (BERT's [CLS])."""
    dropout: float = 0.5
    """Of the vectors that come out."""
    precision: Precision = "float32"
    """Of the matrix products in a transformer, on any device."""
    layer_decay: float = 1.0
    """Each layer of a transformer learns at the rate of the layer above it times this."""
    frozen: bool = False
    """Whether a transformer stays as it is. Then each text is encoded once."""

    def __post_init__(self) -> None:
        if self.dim < 1 or self.length < 1 or not 0 <= self.dropout < 1:
            raise ValueError(
                "dim and length are at least 1, dropout at least 0 and below 1, "
                f"got {self.dim}, {self.length} and {self.dropout}"
            )
        if not 0 < self.layer_decay <= 1:
            raise ValueError(f"layer_decay is above 0 and at most 1, got {self.layer_decay}")

    @property
    def reads_titles(self) -> bool:
        """Whether it reads the words of a title in their order."""
        return self.kind != "bag"
