"""Requests: connections, retries, time-outs, idempotency keys, cancelling."""
