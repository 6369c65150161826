"""GLaS: a bag of word vectors, one vector per label, and a regulariser that spreads labels as their points say.

x_hat = drop(ReLU(E x)), scores <x_hat, v_l>. Beside the loss, a softmax over the labels of a batch, the Gram matrix of
the labels is drawn to S = (A Z^-1 + Z^-1 A) / 2, with A = Y^T Y and Z its diagonal: S_ij is the mean of P(i | j) and
P(j | i). The regulariser is lambda times the mean of (<v_i, v_j> - S_ij)^2, in each step over the pairs of the batch's
labels.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from xcbench.data import Dataset, TopK
from xcbench.data.matrices import binary_targets
from xcbench.kernels.arrays import Floats, Longs
from xcbench.kernels.csr import SparseRows
from xcbench.nn import LabelBank, TokenEmbeddings, relu_dropout
from xcbench.nn.dropout import first_point
from xcbench.nn.embeddings import weighted_sums
from xcbench.plugins import (
    Ablation,
    Method,
    Predictor,
    Run,
    SavedByArguments,
    StageWork,
    Values,
    all_but,
    register_method,
    stage,
)
from xcbench.shortlist import exact_topk
from xcbench.shortlist.predictors import as_array
from xcbench.shortlist.predictors.cascade import predict_in_parts
from xcbench.train import Batch, Candidates, Points, Schedule, Training, learnable, train

from ._towers import cross_entropy


@dataclass(frozen=True)
class GlasConfig:
    """No public code says more. lambda was chosen on a held-out fifth of lf-debian-4k; other sizes were not varied."""

    dim: int = 256
    dropout: float = 0.5
    weight: float = 10.0
    """lambda, of the regulariser; 0 leaves it out."""
    negatives: int = 20
    """Random labels that each point brings into a batch."""
    lr: float = 0.005
    batch_size: int = 256
    epochs: int = 20

    def __post_init__(self) -> None:
        if min(self.dim, self.batch_size, self.epochs) < 1 or self.negatives < 0:
            raise ValueError("dim, batch_size and epochs are at least 1, negatives is not negative")
        if not 0 <= self.dropout < 1 or self.weight < 0 or self.lr <= 0:
            raise ValueError("dropout is at least 0 and below 1, weight not negative, lr positive")


def target_gram(Y: sp.csr_array) -> sp.csr_array:
    """S, sparse: only labels that come together have an entry."""
    positives = binary_targets(Y)
    A = (positives.T.tocsr() @ positives).tocsr()
    frequency = A.diagonal()
    inverse = np.divide(1, frequency, out=np.zeros_like(frequency), where=frequency > 0)
    conditional = A @ sp.diags_array(inverse, format="csr")
    S: sp.csr_array = ((conditional + conditional.T) / 2).tocsr().astype(np.float32)
    S.sort_indices()
    return S


def gram_loss(V: Tensor, S: SparseRows) -> Tensor:
    """The mean over all pairs of (<v_i, v_j> - S_ij)^2, without a matrix of all pairs.

    sum_ij <v_i, v_j>^2 = |V^T V|^2, and sum_ij S_ij <v_i, v_j> = <V, S V>.

    Parameters
    ----------
    V
        [labels, dim].
    S
        [labels, labels], symmetric.
    """
    squares = (V.T @ V).square().sum()
    agreement = (V * weighted_sums(S, V)).sum()
    constant = float(np.dot(S.data, S.data))
    return (squares - 2 * agreement + constant) / len(V) ** 2


class BagClassifier(nn.Module):
    """E, the labels' vectors, and the loss."""

    def __init__(self, vocabulary: int, S: sp.csr_array, c: GlasConfig) -> None:
        super().__init__()
        self.E = TokenEmbeddings(vocabulary, c.dim)
        labels = S.shape[0]
        start = torch.empty(labels, c.dim).normal_(0, c.dim**-0.5)  # about unit length, and nearly orthogonal
        self.V = LabelBank(labels, c.dim, start)
        self.S = S
        self.dropout = c.dropout
        self.weight = c.weight

    def encode(self, X: SparseRows) -> Tensor:
        return relu_dropout(self.E(X), self.dropout, self.training, first_point())

    def loss(self, batch: Batch) -> Tensor:
        """Softmax over the batch's labels, plus the regulariser on these."""
        if batch.shortlists is None or not isinstance(batch.X, SparseRows):
            raise TypeError("the classifier reads tokens, of points with candidates")
        labels = batch.shortlists.labels
        V = self.V(labels)
        logits = self.encode(batch.X) @ V.T
        loss = cross_entropy(logits, batch.shortlists.entries)
        if self.weight:
            loss = loss + self.weight * gram_loss(V, self._gram_of(labels))
        return loss

    def _gram_of(self, labels: Longs) -> SparseRows:
        return SparseRows.of(self.S[labels][:, labels])


@stage(settings=all_but(), data=("data", "unaugmented"))
def classifier(work: StageWork[GlasConfig]) -> Values:
    """Train E and the labels' vectors."""
    c = work.config
    points = learnable(work.data.train)
    S = target_gram(work.unaugmented.train.Y)
    module = BagClassifier(work.data.feature_count, S, c)

    none = np.full((len(points), 1), -1, np.int32)
    candidates = Candidates.of_labels(none, work.data.label_count, with_positives=True, random=c.negatives)
    settings = Training(c.lr, c.batch_size, c.epochs, schedule=Schedule("linear", warmup=0.1))
    train(module, Points(points.X, points.Y, candidates), settings, work, "classifier")
    return {"E": as_array(module.E.weight), "V": as_array(module.V.weight)}


class GlasPredictor(SavedByArguments, Predictor):
    """Word vectors and label vectors."""

    def __init__(self, E: Floats, V: Floats) -> None:
        self.E = E
        self.V = V

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        return predict_in_parts(X, lambda part: self._predict_part(part, k))

    def _predict_part(self, X: sp.csr_array, k: int) -> TopK:
        x = np.maximum(X @ self.E, 0)
        best = exact_topk(x, self.V, k)
        return TopK.of(best.indices, torch.sigmoid(torch.from_numpy(best.scores)).numpy())


@register_method("glas")
class Glas(Method[GlasConfig]):
    """GLaS: a bag of word vectors, with labels spread as their points say (torch)"""

    config_type = GlasConfig
    predictor_type = GlasPredictor
    stages = (classifier,)
    ablations: ClassVar = {"no-regulariser": Ablation("GLaS without its regulariser", {"weight": 0.0})}
    citation = (
        "Guo et al., Breaking the Glass Ceiling for Embedding-Based Classifiers for Large Output Spaces, NeurIPS 2019"
    )

    def fit(self, data: Dataset, run: Run) -> GlasPredictor:
        trained = run.stage(classifier, data)
        return GlasPredictor(trained["E"], trained["V"])
