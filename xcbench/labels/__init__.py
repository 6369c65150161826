"""What is derived from the label side of a dataset: label graphs, centroids and clusterings.

Graphs are sparse L x L matrices of counts or weights; a clustering puts every label into exactly one cluster.
The kernels are parallel and seeded per label, so no thread count changes a result. May import `data`.
"""

from xcbench.labels.partition import Clustering

__all__ = ["Clustering"]
