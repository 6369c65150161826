"""Methods, one file each: a typed config, the ablations of its paper, and `fit`. Installed as `xcbench.methods`.

A method may import every core room and what `xcbench.bench` exports, never another method. The registry finds the
files here by reading them; nothing imports them by name. docs/writing-a-method.md says how to add one.
"""
