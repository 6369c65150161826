"""The example of docs/guides/training.md runs as it stands there, if smaller and for fewer epochs, and learns."""

import re
from pathlib import Path

import numpy as np

DOCS = Path(__file__).parent.parent.parent / "docs" / "guides" / "training.md"


def test_the_example_runs():
    code = re.findall(r"```python\n(.*?)```", DOCS.read_text("utf-8"), re.DOTALL)[0]
    names = {}
    exec(code.replace("epochs=10", "epochs=2").replace("D = 128", "D = 16"), names)
    Y = names["data"].test.Y
    scores = names["scores"]
    assert scores.shape == Y.shape
    hits = Y[np.arange(Y.shape[0]), scores.argmax(1)].sum()
    assert hits > 3 * Y.nnz / Y.shape[1]  # two epochs are few, but chance is far behind
