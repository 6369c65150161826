"""InceptionXML's encoder: attention between the words of a title, then convolutions along the embedding axis.

X0 has a row per word, S at most, and D columns. With maps W1 [S, S] and W2 [D, D] and gates g1, g2 that start at 0,

- attention between words: X1 = X0 + g1 (X0 X0^T)(W1 X0);
- attention between dimensions: X2^T = X1^T + g2 (X1^T X0)(W2 X1^T);
- a projection P of the S words to 32 rows, GELU, BatchNorm;
- three convolutions of width 4, 8, 16 and stride 4 along the D dimensions, side by side, GELU, BatchNorm;
- a convolution of width 16 and stride 4 over these, GELU, BatchNorm. For D = 300 this leaves 32 x 15 = 480 numbers.

Padding rows of X0 are 0, and neither attention changes that. So a batch is padded to its own longest title and not to
S, and no title's vector depends on the others'. Both attentions mix rows of X0 by matrices that are no larger than
T x T, where T is the number of words. With A = X0 X0^T W1 and C = (X0 W2^T) X0^T,

    P X2 = P (I + g2 (I + g1 A) C) (I + g1 A) X0,

and nothing of the size D x D is ever made per title.

The convolutions move on by 4 places. So 4 neighbouring places with all their channels are one row of a matrix, and a
convolution is a single matrix product, of these rows and of the kernels cut into pieces of 4 places, followed by a sum
of rows that are shifted against each other. For that, channels are the last dimension of every table.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import batch_norm, gelu, linear, pad

from xcbench.errors import InputError
from xcbench.kernels.arrays import Longs
from xcbench.kernels.csr import MixedRows, SparseRows
from xcbench.nn.device_arrays import on_device
from xcbench.nn.dropout import dropout
from xcbench.nn.embeddings import TokenEmbeddings
from xcbench.nn.shifted_sums import shifted_sums
from xcbench.nn.spectral import SpectralWeight

FILTERS = 32
WIDTHS = (4, 8, 16)
STRIDE = 4


def inception_size(dim: int) -> int:
    """Return the length of the encoder's vectors for words of `dim` numbers: 480 for 300."""
    places = dim // STRIDE
    return FILTERS * ((places - WIDTHS[-1]) // STRIDE + 1)


class InceptionEncoder(nn.Module):
    """Maps titles, as words in their order, to vectors [points, `inception_size(D)`].

    Parameters
    ----------
    E
        Word vectors, [words, D]. D is a multiple of 4 and at least 64.
    length
        S, the largest number of words in a title.
    dropout
        The dropout rate of words and between layers.
    """

    def __init__(self, E: TokenEmbeddings, length: int = 32, dropout: float = 0.25) -> None:
        super().__init__()
        dim = E.weight.shape[1]
        if dim % STRIDE or dim < STRIDE * WIDTHS[-1]:
            raise InputError(f"InceptionXML needs word vectors of 64, 68, 72 ... numbers, got {dim}")
        self.E = E
        self.W1 = SpectralWeight(nn.init.xavier_normal_(torch.empty(length, length)))
        self.W2 = SpectralWeight(nn.init.xavier_normal_(torch.empty(dim, dim)))
        self.g1 = nn.Parameter(torch.zeros(()))
        self.g2 = nn.Parameter(torch.zeros(()))
        self.projection = _convolution(length, FILTERS, 1)
        self.projection_norm = nn.BatchNorm1d(FILTERS)
        self.branches = nn.ModuleList(_convolution(FILTERS, FILTERS, width) for width in WIDTHS)
        self.branches_norm = nn.BatchNorm1d(len(WIDTHS) * FILTERS)
        self.last = _convolution(len(WIDTHS) * FILTERS, FILTERS, WIDTHS[-1])
        self.last_norm = PointNorm(FILTERS)
        self.length = length
        self.dropout = dropout

    def forward(self, titles: SparseRows | MixedRows) -> Tensor:
        """Return one vector per title. An entry of `titles` is a word; entries stand in the order of the title."""
        rows = self._projected(titles)
        rows = self._dropped(_normed(gelu(rows), self.projection_norm))
        rows = self._dropped(_normed(gelu(self._branches(rows)), self.branches_norm))
        rows = _normed(gelu(self._last(rows)), self.last_norm)
        return rows.transpose(1, 2).flatten(1)

    def _projected(self, titles: SparseRows | MixedRows) -> Tensor:
        """P X2 plus its bias, [points, D, 32]."""
        if isinstance(titles, MixedRows):
            X0, X0_W2 = self._mixed_tables(titles, self.W2())
        else:
            X0, X0_W2 = self._tables(titles, self.W2())
        T = X0.shape[1]

        X0_T = X0.transpose(1, 2)
        A = X0 @ X0_T @ self.W1()[:T, :T]
        C = X0_W2 @ X0_T
        P = self.projection.weight[:, :T, 0]
        PB = P + self.g2 * (P @ C + self.g1 * (P @ A @ C))
        mixed = PB + self.g1 * (PB @ A)
        assert self.projection.bias is not None
        return torch.baddbmm(self.projection.bias, X0_T, mixed.transpose(1, 2))

    def _tables(self, titles: SparseRows, W2: Tensor) -> tuple[Tensor, Tensor]:
        """X0 and X0 W2^T, [points, T, D]."""
        T, places = titles.in_table()
        if self.length < T:
            raise ValueError(f"titles of up to {T} words met an encoder for {self.length}")
        words = self._dropped(self.E.of_words(titles))
        X0 = _in_table(words, places, len(titles), T)
        return X0, _in_table(linear(words, W2), places, len(titles), T)

    def _mixed_tables(self, titles: MixedRows, W2: Tensor) -> tuple[Tensor, Tensor]:
        """The same, word by word a mixture of two titles."""
        first = self._tables(titles.first, W2)
        second = self._tables(titles.second, W2)
        T = max(first[0].shape[1], second[0].shape[1])
        weights = torch.from_numpy(titles.weights).to(first[0])[:, None, None]
        X0, X0_W2 = (
            weights * _padded(one, T) + (1 - weights) * _padded(other, T)
            for one, other in zip(first, second, strict=True)
        )
        return X0, X0_W2

    def _branches(self, rows: Tensor) -> Tensor:
        """The three convolutions side by side, [points, D / 4, 96]; the ends of the embedding axis meet."""
        beyond = (WIDTHS[-1] - STRIDE) // 2
        around = torch.cat([rows[:, -beyond:], rows, rows[:, :beyond]], 1)
        return _convolved(around, [branch for branch in self.branches if isinstance(branch, nn.Conv1d)])

    def _last(self, rows: Tensor) -> Tensor:
        """The last convolution, [points, places, 32]. What is left of the places at the end is not read."""
        whole = rows.shape[1] // STRIDE * STRIDE
        return _convolved(rows[:, :whole], [self.last])

    def _dropped(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.training)


class PointNorm(nn.BatchNorm1d):
    """BatchNorm. One number alone has no variance: a batch of one point is then normed by the running figures."""

    def forward(self, x: Tensor) -> Tensor:
        if x.numel() != self.num_features:
            return super().forward(x)
        return batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, False, 0.0, self.eps)


def _normed(rows: Tensor, norm: nn.BatchNorm1d) -> Tensor:
    """BatchNorm of channels that are the last dimension."""
    normed: Tensor = norm(rows.flatten(0, 1))
    return normed.view(rows.shape)


def _convolved(rows: Tensor, layers: Sequence[nn.Conv1d]) -> Tensor:
    """Convolve rows [points, places, channels] by each layer, with stride 4; outputs are side by side.

    Narrow kernels lie in the middle of the widest one: that is where the authors' padding puts them.
    """
    points, places, channels = rows.shape
    widest = layers[-1].kernel_size[0]
    pieces = []
    branches: list[int] = []
    shifts: list[int] = []
    for number, layer in enumerate(layers):
        width = layer.kernel_size[0]
        first, left = divmod((widest - width) // 2, STRIDE)
        right = -(left + width) % STRIDE
        kernel = pad(layer.weight, (left, right)).permute(2, 1, 0)  # [width, channels, filters]
        whole = kernel.reshape(-1, STRIDE * channels, FILTERS)
        pieces.append(whole)
        branches += [number] * len(whole)
        shifts += range(first, first + len(whole))

    blocks = rows.reshape(points * places // STRIDE, STRIDE * channels)
    W = torch.cat(pieces).transpose(0, 1).flatten(1)  # [4 channels, pieces x filters]
    products = (blocks @ W).view(points, places // STRIDE, len(shifts), FILTERS)
    bias = torch.cat([layer.bias for layer in layers if layer.bias is not None])
    return shifted_sums(products, branches, shifts) + bias


def _convolution(inputs: int, outputs: int, width: int) -> nn.Conv1d:
    layer = nn.Conv1d(inputs, outputs, width)
    nn.init.xavier_uniform_(layer.weight)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


def _padded(table: Tensor, T: int) -> Tensor:
    """A table [points, words, D] with zeros behind its words, up to T words."""
    return pad(table, (0, 0, 0, T - table.shape[1]))


def _in_table(rows: Tensor, places: Longs, points: int, T: int) -> Tensor:
    """Spread rows [words, D] over a table [points, T, D], with zeros where there is no word."""
    table = rows.new_zeros(points * T, rows.shape[1])
    return table.index_copy(0, on_device(places, rows.device), rows).view(points, T, rows.shape[1])
