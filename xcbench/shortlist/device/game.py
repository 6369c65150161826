"""GAME on a device; see `xcbench.shortlist.game` for what it is.

The same arithmetic is written twice. A core of a CPU takes one point after the other and adds into a hash table that
stays in its cache. Threads of a GPU would add into such a table in any order, and results would change from call to
call: so here the entries of a block of points are listed, sorted and summed. A test compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from xcbench.shortlist.device.blocks import BYTES_PER_ID, DeviceCsr, row_blocks
from xcbench.shortlist.device.rows import keys_of_sums, list_entries, longest_listing, row_sizes, sum_runs
from xcbench.shortlist.device.selection import Found, largest, unpacked

if TYPE_CHECKING:
    from xcbench.shortlist.game import Game


class DeviceGame:
    """Reranks probabilities along a graph, as `Game` does.

    Parameters
    ----------
    game
        Its settings and its graph. A mode other than "off".
    device
        Where the copy of the graph lives.
    """

    def __init__(self, game: Game, device: str | torch.device) -> None:
        self.beam = game.beam
        self.keeps_half = game.mode == "code"
        self.power = game.power
        self.multiplier = DeviceCsr(game.multiplier, device)

    def rerank(self, P: Found) -> Found:
        """Rerank one block of points. This waits for the device once, to know how much memory the block takes."""
        probabilities = P.scores
        if self.power != 1:
            probabilities = probabilities.clamp(min=0) ** self.power  # unused places have the score -inf
        raised = Found(P.labels, probabilities)
        sources = P.labels.masked_fill(~(probabilities > 0), -1)

        length = longest_listing(self.multiplier.indptr, sources)
        parts = []
        for block in row_blocks(len(sources), BYTES_PER_ID * length, sources.device):
            part = Found(raised.labels[block], raised.scores[block])
            parts.append(self._keys(part, sources[block], length))
        result = unpacked(torch.cat(parts))
        if self.power == 1:
            return result
        scores = torch.where(result.labels >= 0, result.scores ** (1 / self.power), result.scores)
        return Found(result.labels, scores)

    def _keys(self, P: Found, sources: Tensor, length: int) -> Tensor:
        """Return the keys of the new scores, best first. `sources` are the labels of P with probability."""
        G = self.multiplier
        listing = list_entries(G.indptr, sources, length)
        neighbours = G.indices[listing.entries].masked_fill_(~listing.is_entry, -1)
        values = P.scores.gather(1, listing.places) * G.data[listing.entries]
        spread = largest(keys_of_sums(neighbours, values, P.labels.shape[1]), self.beam)
        if not self.keeps_half:
            return spread

        new = unpacked(spread)
        labels = torch.cat([new.labels, P.labels], dim=1)
        halves = torch.cat([new.scores, P.scores], dim=1) * 0.5
        return largest(keys_of_sums(labels, halves, 2), labels.shape[1])


class DeviceSpread:
    """Spreads probabilities within a point's shortlist, as `game.spread_in_shortlist` does.

    Parameters
    ----------
    game
        Its power and its graph.
    device
        Where the copy of the graph lives.
    """

    def __init__(self, game: Game, device: str | torch.device) -> None:
        self.power = game.power
        self.graph = DeviceCsr(game.graph_arrays, device)

    def spread(self, labels: Tensor, probabilities: Tensor) -> Tensor:
        """Return (sum over shortlisted j of G_lj p_j^power)^(1 / power) per label l. This waits for the device once.

        Parameters
        ----------
        labels
            [n, m] the shortlists; -1 for none.
        probabilities
            [n, m] their probabilities.
        """
        length = longest_listing(self.graph.indptr, labels)
        raised = probabilities**self.power
        blocks = row_blocks(len(labels), BYTES_PER_ID * length, labels.device)
        parts = [self._sums(labels[block], raised[block], length) for block in blocks]
        return torch.cat(parts) ** (1 / self.power)

    def _sums(self, labels: Tensor, raised: Tensor, length: int) -> Tensor:
        if length == 0:
            return torch.zeros_like(raised)
        G = self.graph
        listing = list_entries(G.indptr, labels, length)
        neighbours = G.indices[listing.entries]

        # Look up each neighbour in the sorted shortlist.
        sorted_labels, order = labels.sort(dim=1)
        position = torch.searchsorted(sorted_labels, neighbours).clamp_(max=labels.shape[1] - 1)
        is_listed = listing.is_entry & (sorted_labels.gather(1, position) == neighbours)
        values = raised.gather(1, order).gather(1, position)
        terms = (G.data[listing.entries] * values).masked_fill_(~is_listed, 0)

        # The entries of a label are next to each other, so the sum is at the last of them.
        sums = sum_runs(listing.places, terms, G.longest_row)
        last = (listing.ends - 1).clamp_(min=0)
        has_entries = row_sizes(G.indptr, labels) > 0
        return sums.gather(1, last).masked_fill_(~has_entries, 0)
