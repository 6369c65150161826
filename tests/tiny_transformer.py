"""A transformer of two layers with random weights, laid out as Hugging Face does it."""

import torch

WORDS = ["topic", "group", "word", *(f"##{digit}" for digit in range(10))]


def make_model(folder, kind="bert"):
    """Write the model and a tokenizer that knows the words of the toy data; returns the folder's name."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, DistilBertConfig, DistilBertModel, PreTrainedTokenizerFast

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS]
    ids = {piece: number for number, piece in enumerate(vocabulary)}
    cutter = Tokenizer(models.WordPiece(ids, unk_token="[UNK]"))
    cutter.normalizer = normalizers.BertNormalizer()
    cutter.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    cutter.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(tokenizer_object=cutter, **special).save_pretrained(folder)

    torch.manual_seed(0)
    if kind == "bert":
        sizes = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}
        config = BertConfig(vocab_size=len(ids), max_position_embeddings=40, initializer_range=0.3, **sizes)
        BertModel(config).save_pretrained(folder)
    else:
        config = DistilBertConfig(
            vocab_size=len(ids), max_position_embeddings=40, dim=32, n_layers=2, n_heads=2, hidden_dim=64
        )
        DistilBertModel(config).save_pretrained(folder)
    return str(folder)
