"""Write every generated page: `python -m docs.generate`."""

from docs.generate.pages import generated_pages

for path, text in generated_pages().items():
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
