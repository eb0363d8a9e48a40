"""Backups of a node or of an operator's directory: one archive that is made while the node runs, checked and restored.

An archive is an uncompressed tar file (POSIX ustar) whose first member is `manifest.json`. The others are the files that
the manifest lists, in its order, as `files/PATH`. There is nothing else: no links, no directories, no extensions of tar.
docs/reference/backups.md describes the format.
"""
