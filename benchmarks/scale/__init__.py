"""The whole way at the size of a published dataset: what each step takes, how much memory, and how much disk.

    python -m benchmarks scale --like LF-AmazonTitles-131K
    python -m benchmarks scale --like LF-AmazonTitles-1.3M --share 0.1
    python -m benchmarks scale --growth --picture growth.png  (each part among 10,000 to 1,000,000 labels: growth.py)
    python -m benchmarks scale --like LF-AmazonTitles-131K --scale 0.1 --distributed

Every step is a process of its own, whose rows are kept when it ends, so the same command goes on where it stopped. The
data is synthetic (`xcbench data synth`): what it costs is real, what is learnt means nothing.

Methods train with the paper's settings, for a few steps per module. The time of a whole training is that of a steady
step times the steps that the settings ask for.

With `--distributed`: DECAF by one process and by two ranks of `torchrun`, and a small table over two Ray workers. A
rank, a worker and a run are killed on the way, and what comes out is compared with the runs in which nothing was.
"""
