"""The frame of a page: head, style, title and foot."""

from __future__ import annotations

from .markup import text
from .style import CSS


def document(title: str, body: str, foot: str) -> str:
    """One HTML document that needs nothing else; ``body`` is markup, ``foot`` text or markup."""
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{CSS}</style>\n</head>\n<body>\n<h1>{text(title)}</h1>\n{body}\n"
        f"<footer>{text(foot)}</footer>\n</body>\n</html>\n"
    )
