"""One lowering: from a kernel and its schedule to a loop program, and the rules of both."""
