"""Search and prediction on a GPU, in plain torch: what `to(device)` of a shortlister or a predictor returns.

- `selection`: the k best of many scores, with the tie rule of the CPU.
- `blocks`: how much is computed at once, so that it fits the memory that is free.
- `copies`: what all objects on a device have in common.
- `rows`: rows of sparse matrices, listed side by side, and sums of equal labels.
- `search`, `beam`, `index`, `shortlist`, `cascade` and `game`: the operations of the modules of the same names on the
  CPU.

Tables are copied to the device once, when the object is made. A prediction copies points to the device and results
back. Results are those of the compiled loops up to float tolerance: sums are added in another order, so that scores may
differ in their last bits, and labels whose scores differ by no more than that may change places. Of labels with equal
scores the smaller id comes first, here as there. Nothing here depends on the order in which threads of a GPU finish, so
that the same prediction on the same device gives the same result.

Modules here take what they need from the objects of the CPU, and never import their classes.
"""

from xcbench.shortlist.device.beam import DeviceBeamPredictor, DeviceBeamShortlister
from xcbench.shortlist.device.cascade import DeviceCascade, DeviceEncoder
from xcbench.shortlist.device.index import DeviceIndexShortlister
from xcbench.shortlist.device.search import DeviceExactShortlister
from xcbench.shortlist.device.shortlist import DeviceShortlistPredictor

__all__ = [
    "DeviceBeamPredictor",
    "DeviceBeamShortlister",
    "DeviceCascade",
    "DeviceEncoder",
    "DeviceExactShortlister",
    "DeviceIndexShortlister",
    "DeviceShortlistPredictor",
]
