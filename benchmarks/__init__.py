"""Measurements beside what a user would pick instead; README.md says what each figure means."""
