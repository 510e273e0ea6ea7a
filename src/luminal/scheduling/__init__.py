"""The schedule of a kernel without any search: from structure, sizes and facts of the machine."""
