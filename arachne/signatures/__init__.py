"""Signatures of Standard Webhooks 1.0, made and checked. Light: clients load this and no server."""
