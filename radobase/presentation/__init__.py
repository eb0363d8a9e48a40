"""How figures are shown to people: words, plots and pages, for reports, the console and the pictures of commands."""
