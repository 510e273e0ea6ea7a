"""What the stages of the compiler mean, for tests alone: slow and obvious, in Python and NumPy.

`terms` evaluates a program over named axes, `engine` saturates an e-graph with egglog, `program`
runs a loop program statement by statement. (What graphs and kernels mean, which
the compiler itself asks for, is in `luminal.backend.reference`.)
"""
