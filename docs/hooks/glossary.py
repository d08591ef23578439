"""Links the first occurrence of each word of the glossary on a page to its entry."""

from __future__ import annotations

import re
from pathlib import Path

from markdown.extensions.toc import slugify
from mkdocs.structure.pages import Page
from mkdocs.utils import get_relative_url

GLOSSARY = "glossary.md"
UNTOUCHED = ("api.md", "papers.md", "errata.md", "experiments.md", GLOSSARY)
"""Pages of names and formulas, on which links to words would be in the way."""
PROTECTED = re.compile(
    r"^ *```.*?^ *```|`[^`]*`|\$\$.*?\$\$|\$[^$]+\$|!?\[[^\]]*\]\([^)]*\)|^ *(?:#|!!!|\|)[^\n]*|<[^>]+>",
    re.MULTILINE | re.DOTALL,
)
"""Code, formulas, links, headings, tables and HTML."""


def words(glossary: str) -> dict[str, str]:
    """The anchor of each word; a heading of a word may name its other forms after commas."""
    headings = re.findall(r"^### (.*)$", glossary, re.MULTILINE)
    return {word.lower(): slugify(heading, "-") for heading in headings for word in heading.split(", ")}


def linked(text: str, anchors: dict[str, str], address: str) -> str:
    """A page's Markdown with links to ``address``, longer words first, each entry once."""
    names = sorted(anchors, key=len, reverse=True)
    pattern = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, names))})(s?)(?![\w-])", re.IGNORECASE)
    seen: set[str] = set()

    def link(match: re.Match[str]) -> str:
        anchor = anchors[match[1].lower()]
        if anchor in seen:
            return match[0]
        seen.add(anchor)
        return f"[{match[0]}]({address}#{anchor}){{ .glossary }}"

    parts, end = [], 0
    for kept in PROTECTED.finditer(text):
        parts += [pattern.sub(link, text[end : kept.start()]), kept[0]]
        end = kept.end()
    return "".join([*parts, pattern.sub(link, text[end:])])


def on_page_markdown(markdown: str, page: Page, config: dict[str, str], **_: object) -> str:
    """The hook of mkdocs."""
    if page.file.src_uri in UNTOUCHED:
        return markdown
    anchors = words((Path(config["docs_dir"]) / GLOSSARY).read_text())
    return linked(markdown, anchors, get_relative_url(GLOSSARY, page.file.src_uri))
