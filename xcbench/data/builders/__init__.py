"""How the embedded datasets were made, so that anyone can make them again, byte for byte, or make similar ones.

`debian` and `wordnet` turn a public source into points and labels; `related` splits, prunes and writes them. Run as
`python -m xcbench.data.builders.debian --help`.
"""
