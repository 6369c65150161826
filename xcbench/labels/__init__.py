"""What is derived from the label side of a dataset: label graphs, centroids and clusterings.

Graphs are sparse L x L matrices of counts or weights. A clustering puts every label into exactly one cluster. Kernels
run on all threads and are seeded per label, so that the number of threads never changes a result.

May import `data` and `kernels`. `shortlist`, `runner`, `report`, `cli` and methods may import it.
"""

from xcbench.labels.centroids import dense_centroids, sparse_centroids
from xcbench.labels.clustering import balanced_clusters, cluster_count, random_clusters
from xcbench.labels.graph import cluster_graph, conditional_probabilities, cooccurrence, prune_by_cosine
from xcbench.labels.information import information_lost, loss_of_mutual_information, mutual_information
from xcbench.labels.meta_labels import meta_targets, meta_text
from xcbench.labels.normalise import by_row, perron, stationary_vector, two_sided
from xcbench.labels.pagerank import personalised_pagerank
from xcbench.labels.partition import Clustering
from xcbench.labels.walk import random_walk_graph

__all__ = [
    "Clustering",
    "balanced_clusters",
    "by_row",
    "cluster_count",
    "cluster_graph",
    "conditional_probabilities",
    "cooccurrence",
    "dense_centroids",
    "information_lost",
    "loss_of_mutual_information",
    "meta_targets",
    "meta_text",
    "mutual_information",
    "perron",
    "personalised_pagerank",
    "prune_by_cosine",
    "random_clusters",
    "random_walk_graph",
    "sparse_centroids",
    "stationary_vector",
    "two_sided",
]
