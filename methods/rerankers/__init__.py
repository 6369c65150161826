"""Rerankers: each changes the predictions of any method after the fact (`--rerank`)."""
