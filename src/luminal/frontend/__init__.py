"""Other systems' programs as graphs of ours: `torch` is a backend of torch.compile."""
