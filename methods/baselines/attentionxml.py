"""AttentionXML: an LSTM reads the words of a title, and each label attends to the words that speak for it.

H = BiLSTM(words); a label's weights over the words are softmax(H q_l), the vector that it sees is v_l, the mean of H by
these weights, and its score is the same small network f for all labels, sigma(f(v_l)): only q_l is a label's own.
Attention to every label is costly, so labels hang in a shallow tree: first all clusters are scored, then the labels of
a point's likeliest clusters, by a second network that starts where the first one ended.
P(l | x) = P(cluster | x) P(l | cluster, x).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn
from torch.nn.functional import binary_cross_entropy_with_logits, relu
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from xcbench.data import Dataset, TopK
from xcbench.data.text import TextEncoder
from xcbench.data.word_vectors import learn_vectors
from xcbench.errors import InputError
from xcbench.kernels.arrays import Floats, Ints, Longs
from xcbench.kernels.csr import SparseRows
from xcbench.labels import Clustering, balanced_clusters, meta_targets, sparse_centroids
from xcbench.nn import LabelBank, TokenEmbeddings
from xcbench.nn.dropout import dropout
from xcbench.plugins import (
    Method,
    Patch,
    Predictor,
    Run,
    SavedByArguments,
    StageWork,
    Values,
    register_method,
    stage,
)
from xcbench.train import (
    Batch,
    Candidates,
    Points,
    Schedule,
    Training,
    learnable,
    log_odds,
    scaled_training,
    targets_of,
    train,
)

TITLES_AT_ONCE = 256
"""How many titles are read at a time: each has a vector per candidate label."""

WORD_LENGTH = 2.0
"""The length of every word vector at the start."""


@dataclass(frozen=True)
class AttentionConfig:
    """Small for a CPU; docs/methods/baselines.md says how it was chosen. The authors' settings are presets."""

    word_dim: int = 128
    length: int = 32
    """A longer title is cut."""
    hidden: int = 64
    """Units of the LSTM in each direction."""
    inner: int = 32
    """Units of f, which has one hidden layer."""
    word_dropout: float = 0.25
    dropout: float = 0.5
    """Of the LSTM's output."""
    cluster_labels: int = 32
    """Labels in a cluster."""
    beam: int = 8
    """How many clusters a point keeps."""
    clusters: Training = field(default_factory=lambda: scaled_training(0.02, 10, 250))
    labels: Training = field(default_factory=lambda: scaled_training(0.02, 25, 600))

    def __post_init__(self) -> None:
        sizes = (self.word_dim, self.length, self.hidden, self.inner, self.cluster_labels, self.beam)
        if min(sizes) < 1:
            raise ValueError("word_dim, length, hidden, inner, cluster_labels and beam are at least 1")
        if not (0 <= self.word_dropout < 1 and 0 <= self.dropout < 1):
            raise ValueError("word_dropout and dropout are at least 0 and below 1")


@stage(settings=["length"], data=("data", "unaugmented"), seeded=False)
def words(work: StageWork[AttentionConfig]) -> Values:
    """The vocabulary, of training and label text, and the words of each training title in their order."""
    original = work.unaugmented
    texts = itertools.chain(original.train.titles or (), original.label_titles or ())
    encoder = TextEncoder.fit(texts)
    return {
        "encoder": encoder.to_values(),
        "train": encoder.sequences(work.data.train.titles or (), work.config.length),
    }


@stage(settings=["cluster_labels"], data="unaugmented")
def tree(work: StageWork[AttentionConfig]) -> Values:
    """Clusters of the labels' centroids, balanced."""
    data = work.unaugmented
    K = max(1, -(-data.label_count // work.config.cluster_labels))
    clustering = balanced_clusters(sparse_centroids(data.train.Y, data.train.X), K, seed=work.seed)
    return {"cluster_of": clustering.cluster_of, "K": clustering.K}


class AttentionNetwork(nn.Module):
    """The network of one level: scores of labels, or of clusters, for titles."""

    def __init__(self, E: TokenEmbeddings, count: int, sizes: Mapping[str, Any], true_share: float = 0.5) -> None:
        super().__init__()
        hidden = sizes["hidden"]
        self.E = E
        self.lstm = nn.LSTM(E.weight.shape[1], hidden, batch_first=True, bidirectional=True)
        self.f1 = nn.Linear(2 * hidden, sizes["inner"])
        self.f2 = nn.Linear(sizes["inner"], 1)
        self.q = LabelBank(count, 2 * hidden, nn.init.xavier_uniform_(torch.empty(count, 2 * hidden)))
        self.word_dropout = float(sizes["word_dropout"])
        self.dropout = float(sizes["dropout"])
        nn.init.xavier_uniform_(self.f1.weight)
        nn.init.xavier_uniform_(self.f2.weight)
        nn.init.constant_(self.f2.bias, log_odds(true_share))

    def read(self, titles: SparseRows) -> tuple[Tensor, Tensor]:
        """H [points, words, 2 hidden], and which of its places hold a word; a title without words has one of zeros."""
        lengths = np.diff(titles.indptr)
        n = len(titles)
        longest, places = titles.in_table()
        T = max(1, longest)

        vectors = dropout(self.E.of_words(titles), self.word_dropout, self.training)
        table = vectors.new_zeros(n * T, vectors.shape[1])
        index = torch.from_numpy(places).to(table.device)
        padded = table.index_copy(0, index, vectors).view(n, T, -1)

        read_lengths = torch.from_numpy(np.maximum(lengths, 1))
        packed = pack_padded_sequence(padded, read_lengths, batch_first=True, enforce_sorted=False)
        H, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=T)
        is_word = torch.arange(T)[None] < read_lengths[:, None]
        return dropout(H, self.dropout, self.training), is_word.to(H.device)

    def scores(self, H: Tensor, is_word: Tensor, q: Tensor) -> Tensor:
        """Logits [points, labels].

        f's first layer is linear: it is applied to the words, which are few, instead of to the vector of every label.

        Parameters
        ----------
        H, is_word
            As `read` returns them.
        q
            [labels, D] the same for all points, or [points, labels, D] for each point its own.
        """
        attention = H @ q.transpose(-1, -2)
        attention = attention.masked_fill(~is_word[:, :, None], -torch.inf)
        shares = torch.softmax(attention, dim=1)
        inner = shares.transpose(1, 2) @ (H @ self.f1.weight.T) + self.f1.bias
        logits: Tensor = self.f2(relu(inner))
        return logits.squeeze(-1)

    def loss(self, batch: Batch) -> Tensor:
        """Binary cross-entropy, over all labels or over each point's candidates."""
        if not isinstance(batch.X, SparseRows):
            raise TypeError("the network reads words")
        H, is_word = self.read(batch.X)
        if batch.shortlists is None:
            logits = self.scores(H, is_word, self.q(None))
            targets = _dense(batch.targets).to(logits.device)
            is_ranked = ~torch.isnan(targets)
        else:
            places, values = padded_candidates(batch.shortlists.entries)
            q = self.q(batch.shortlists.labels)
            index = torch.from_numpy(np.maximum(places, 0)).to(q.device)
            logits = self.scores(H, is_word, q[index])
            targets = torch.from_numpy(values).to(q.device)
            is_ranked = torch.from_numpy(places >= 0).to(q.device)
        loss = binary_cross_entropy_with_logits(logits, torch.nan_to_num(targets), reduction="none")
        return torch.where(is_ranked, loss, 0).sum() / len(batch.rows)


def _dense(targets: SparseRows) -> Tensor:
    """The targets of a batch, as a matrix."""
    rows = sp.csr_array((targets.data, targets.indices, targets.indptr), shape=(len(targets), targets.width))
    return torch.from_numpy(rows.toarray())


def padded_candidates(entries: SparseRows) -> tuple[Longs, Floats]:
    """Each point's candidates as places in the batch's labels, [points, most], -1 where it has fewer; and targets."""
    counts = np.diff(entries.indptr)
    most = max(1, int(counts.max(initial=0)))
    is_used = np.arange(most) < counts[:, None]
    places = np.full((len(entries), most), -1, np.int64)
    targets = np.zeros((len(entries), most), np.float32)
    places[is_used] = entries.indices
    targets[is_used] = entries.data
    return places, targets


SIZES = ("hidden", "inner", "word_dropout", "dropout")


def sizes_of(c: AttentionConfig) -> dict[str, Any]:
    return {name: getattr(c, name) for name in SIZES}


@stage(settings=["word_dim", *SIZES, "clusters"], data=("data", "unaugmented"), after=[words, tree])
def cluster_network(work: StageWork[AttentionConfig]) -> Values:
    """The first level. Word vectors start at vectors learnt on the training text.

    Learnt ones have unit length, which leaves the LSTM's gates half open whatever the words are. They are made longer.
    """
    c = work.config
    encoder = TextEncoder.from_dict(work[words]["encoder"])
    texts = encoder.encode(list(work.unaugmented.train.titles or ()))
    E = TokenEmbeddings.of(WORD_LENGTH * learn_vectors(texts, c.word_dim, work.seed))
    clustering = Clustering.of(work[tree]["cluster_of"], work[tree]["K"])
    points = learnable(replace(work.data.train, X=work[words]["train"]))
    targets = meta_targets(targets_of(points), clustering)
    true_share = targets.nnz / max(1, targets.shape[0] * clustering.K)
    network = AttentionNetwork(E, clustering.K, sizes_of(c), true_share)
    train(network, Points(points.X, targets), c.clusters, work, "clusters")
    return {"tensors": _tensors(network)}


@stage(settings=[*SIZES, "beam", "labels"], after=[words, tree, cluster_network])
def label_network(work: StageWork[AttentionConfig]) -> Values:
    """The second level, on the labels of each point's likeliest clusters and on its own; it starts at the first."""
    c = work.config
    first = network_of(work[cluster_network]["tensors"], sizes_of(c)).eval()
    clustering = Clustering.of(work[tree]["cluster_of"], work[tree]["K"])
    points = learnable(replace(work.data.train, X=work[words]["train"]))
    found = likeliest(first, points.X, min(c.beam, clustering.K))
    members = SparseRows.of(clustering.to_csr().T.tocsr())
    candidates = Candidates(found.indices, members, with_positives=True)

    network = AttentionNetwork(first.E, work.data.label_count, sizes_of(c))
    network.lstm.load_state_dict(first.lstm.state_dict())
    network.f1.load_state_dict(first.f1.state_dict())
    network.f2.load_state_dict(first.f2.state_dict())
    train(network, Points(points.X, targets_of(points), candidates), c.labels, work, "labels")
    return {"tensors": _tensors(network)}


def _tensors(network: AttentionNetwork) -> dict[str, Tensor]:
    return {name: tensor.cpu() for name, tensor in network.state_dict().items()}


def network_of(tensors: Mapping[str, Tensor], sizes: Mapping[str, Any]) -> AttentionNetwork:
    """A trained network."""
    E = TokenEmbeddings.of(tensors["E.weight"].numpy())
    network = AttentionNetwork(E, len(tensors["q.weight"]), sizes)
    network.load_state_dict(tensors)
    return network


def likeliest(network: AttentionNetwork, titles: sp.csr_array, k: int) -> TopK:
    """The k likeliest clusters of each title."""
    parts = [TopK(np.empty((0, k), np.int32), np.empty((0, k), np.float32))]
    for first in range(0, titles.shape[0], TITLES_AT_ONCE):
        rows = SparseRows.of(titles[first : first + TITLES_AT_ONCE])
        parts.append(_likeliest_of_part(network, rows, k))
    return TopK.concatenate(parts)


@torch.no_grad()
def _likeliest_of_part(network: AttentionNetwork, titles: SparseRows, k: int) -> TopK:
    H, is_word = network.read(titles)
    P = torch.sigmoid(network.scores(H, is_word, network.q(None)))
    best = P.topk(k, dim=1)
    return TopK.of(best.indices.cpu().numpy(), best.values.cpu().numpy())


class AttentionPredictor(SavedByArguments, Predictor):
    """The vocabulary, both networks, and the cluster of each label."""

    def __init__(
        self,
        words: Values,
        clusters: Mapping[str, Tensor],
        labels: Mapping[str, Tensor],
        cluster_of: Ints,
        sizes: Mapping[str, Any],
        length: int,
        beam: int,
    ) -> None:
        self.words = words
        self.clusters = clusters
        self.labels = labels
        self.cluster_of = cluster_of
        self.sizes = sizes
        self.length = length
        self.beam = beam
        self.encoder = TextEncoder.from_dict(words)
        self.first = network_of(clusters, sizes).eval()
        self.second = network_of(labels, sizes).eval()
        self.members = _padded_members(Clustering.of(cluster_of, len(clusters["q.weight"])))

    def predict(self, X: sp.csr_array, k: int) -> TopK:
        raise InputError("AttentionXML reads the words of a title in their order, which rows of X do not have")

    def predict_titles(self, titles: Sequence[str], k: int) -> TopK:
        sequences = self.encoder.sequences(titles, self.length)
        parts = [TopK(np.empty((0, k), np.int32), np.empty((0, k), np.float32))]
        for first in range(0, len(titles), TITLES_AT_ONCE):
            rows = SparseRows.of(sequences[first : first + TITLES_AT_ONCE])
            parts.append(self._predict_part(rows, k))
        return TopK.concatenate(parts)

    @torch.no_grad()
    def _predict_part(self, titles: SparseRows, k: int) -> TopK:
        beam = min(self.beam, len(self.members))
        clusters = _likeliest_of_part(self.first, titles, beam)
        candidates = self.members[clusters.indices].reshape(len(titles), -1)
        P_cluster = np.repeat(clusters.scores, self.members.shape[1], axis=1)

        H, is_word = self.second.read(titles)
        q = self.second.q.weight[torch.from_numpy(np.maximum(candidates, 0))]
        P_label = torch.sigmoid(self.second.scores(H, is_word, q)).numpy()
        best = TopK.of(candidates, P_cluster * P_label).cut(k)
        return best.padded(k)


def _padded_members(clustering: Clustering) -> Ints:
    """The labels of each cluster, [K, most], -1 where there are fewer."""
    sizes = clustering.sizes
    members = np.full((clustering.K, int(sizes.max())), -1, np.int32)
    members[np.arange(members.shape[1]) < sizes[:, None]] = clustering.indices
    return members


def _official(cluster_labels: int, beam: int, epochs: int) -> dict[str, Any]:
    """The authors' settings for data whose tree has two levels. They start at GloVe's vectors and average weights."""
    training = Training(0.001, 200, epochs, schedule=Schedule("constant"))
    return {
        "word_dim": 300,
        "length": 500,
        "hidden": 512,
        "inner": 512,
        "dropout": 0.5,
        "cluster_labels": cluster_labels,
        "beam": beam,
        "clusters": training,
        "labels": training,
    }


@register_method("attentionxml")
class AttentionXML(Method[AttentionConfig]):
    """AttentionXML: an LSTM over the words of a title, and one attention per label in a shallow tree (torch)"""

    config_type = AttentionConfig
    predictor_type = AttentionPredictor
    stages = (words, tree, cluster_network, label_network)
    can_ignore_pairs = True
    needs_titles = True
    presets: ClassVar[Mapping[str, Patch]] = {
        "Wikipedia-500K": _official(64, 15, 5),
        "LF-Wikipedia-500K": _official(64, 15, 5),
    }
    citation = "You et al., AttentionXML: Label Tree-based Attention-Aware Deep Model, NeurIPS 2019"

    def fit(self, data: Dataset, run: Run) -> AttentionPredictor:
        c = self.config
        return AttentionPredictor(
            run.stage(words, data)["encoder"],
            run.stage(cluster_network, data)["tensors"],
            run.stage(label_network, data)["tensors"],
            run.stage(tree, data)["cluster_of"],
            sizes_of(c),
            c.length,
            c.beam,
        )
