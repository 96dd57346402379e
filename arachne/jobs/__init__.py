"""Jobs and their images: submitted, claimed, finished, cancelled, read."""
