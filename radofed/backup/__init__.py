"""Backups of a node or of an operator's directory: one archive that is made while the node runs, checked and restored.

An archive is an uncompressed tar file (POSIX ustar). Its first member is `manifest.json`. The others are the files that
the manifest lists, in its order, as `files/PATH`. It has no links, no directories and no extensions of tar.
docs/reference/backups.md describes the format.
"""
