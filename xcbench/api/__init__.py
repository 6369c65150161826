"""What Python programs call; `xcbench` itself exports it: runs, fitting on plain lists, evaluation, an estimator.

These functions check what they are given and call the rooms below. This room may import `data`, `evaluation`,
`plugins` and `runner`; only `xcbench` and programs import it.
"""
