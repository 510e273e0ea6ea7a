"""The running program: its plan, its memory, and what the user holds in hand."""
