"""Writes the parts of the documentation that follow from the code: `python -m docs.generate`.

reference/commands.md        from the command line's own help
reference/configuration.md   from the configuration models and their attributes' docstrings
reference/errors/            from the error catalogue; what follows "Why it happens" on a page is written by hand
"""
