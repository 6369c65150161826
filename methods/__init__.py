"""Methods, one file each: a typed config, the ablations of its paper, and `fit`. Installed as `xcbench.methods`.

The family of the papers stands here; `baselines`, `augmentations` and `rerankers` have folders of their own. A method
may import every core room, never another method. The registry finds the files by reading them; the core imports none
by name. docs/guides/writing-a-method.md says how to add one.
"""
