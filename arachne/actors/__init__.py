"""Dramatiq actors: broker, middleware and the worker processes."""
