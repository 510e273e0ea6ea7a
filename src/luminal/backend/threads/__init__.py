"""A unit of work for the threads of a GPU: passes over a finished loop program that share its lanes
out, copy operands ahead and set barriers. No CPU needs them."""
