"""ECLARE's label classifiers: the text of a label, of its neighbours, and a free vector, mixed by attention."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor, nn

from xcbench.kernels.arrays import Floats, Longs
from xcbench.nn.attention import ComponentAttention
from xcbench.nn.embeddings import LabelBank
from xcbench.nn.label_text import NeighbourText


class ComponentClassifiers(nn.Module):
    """w_l = sum_j alpha_lj z^j_l with z1 = E_L(E z_l), z2 = E_G((G E z)_l) and a free z3_l.

    Parameters
    ----------
    text
        E z_l, (G E z)_l and so on; None for labels without text.
    blocks
        One per order of `text`: E_L, E_G and so on.
    z3
        The free vectors, or None.
    bias
        One number per label, or None.
    attention
        What mixes the components; None adds them up.
    """

    def __init__(
        self,
        text: NeighbourText | None,
        blocks: Sequence[nn.Module],
        z3: LabelBank | None,
        bias: LabelBank | None,
        attention: ComponentAttention | None,
    ) -> None:
        super().__init__()
        self.text = text
        self.blocks = nn.ModuleList(blocks)
        self.z3 = z3
        self.bias = bias
        self.attention = attention

    def components(self, labels: Longs | None) -> list[Tensor]:
        """z1, z2, ... and z3, each [labels, D], as far as there are such."""
        z: list[Tensor] = []
        if self.text is not None:
            for block, r in zip(self.blocks, self.text(labels), strict=True):
                z.append(block(r))
        if self.z3 is not None:
            z.append(self.z3(labels))
        return z

    def forward(self, labels: Longs | None) -> tuple[Tensor, Tensor | None]:
        """Classifiers and biases of the labels given; None means all labels."""
        z = self.components(labels)
        w = sum(z[1:], z[0]) if self.attention is None else self.attention(*z)
        bias = None if self.bias is None else self.bias(labels)
        return w, bias

    @torch.no_grad()
    def strengths(self, count: int, block: int = 1 << 16) -> dict[str, Floats]:
        """How much each component adds to each of `count` classifiers: its weight times its length (Figure 9)."""
        self.eval()
        blocks = [self._strengths(np.arange(first, min(first + block, count))) for first in range(0, count, block)]
        return dict(zip(self._component_names(), np.concatenate(blocks, axis=1), strict=True))

    def _strengths(self, labels: Longs) -> Floats:
        """[components, labels] for some labels: all components of all labels at once may be too much for memory."""
        z = self.components(labels)
        strengths = torch.stack([torch.linalg.vector_norm(part, dim=1) for part in z], 1)
        if self.attention is not None:
            strengths = strengths * self.attention.weights(*z)
        return strengths.T.cpu().numpy()

    def _component_names(self) -> list[str]:
        names = []
        if self.text is not None:
            known = {0: "LTE", 1: "GALE"}
            names += [known.get(order, f"GALE, {order} hops") for order in self.text.orders]
        if self.z3 is not None:
            names.append("refinement")
        return names
