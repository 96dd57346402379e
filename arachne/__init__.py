"""Arachne reads screenshots: text, structure and descriptions over HTTP, with signed webhooks."""

__version__ = "0.1.0"
