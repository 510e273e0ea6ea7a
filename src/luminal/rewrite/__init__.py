"""From a graph to kernels: named axes, an e-graph, extraction."""
