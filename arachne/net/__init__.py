"""Outgoing requests: what may be called, checked by form and at connect."""
