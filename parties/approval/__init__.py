"""Asking people before this party answers a query."""
