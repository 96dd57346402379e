"""The eight stages, one file each: pure functions with typed input and output."""
