"""Programs and packed weights as files: saved by users, kept between processes."""
