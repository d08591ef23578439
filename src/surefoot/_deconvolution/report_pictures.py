"""Pictures on a page, in it as PNG files."""

from __future__ import annotations

import base64

import numpy as np

from .._data.pictures import Picture, Pixels, write_png
from .._report.markup import Markup, scrolling, text

PAIR = "display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: .8rem"


def pictured(picture: Picture, caption: str) -> str:
    """A picture with its caption; one that is too wide scrolls."""
    content = base64.b64encode(write_png(picture)).decode("ascii")
    shown = scrolling(f'<img alt="{text(caption)}" src="data:image/png;base64,{content}">', caption)
    return f"<figure>{shown}<figcaption>{text(caption)}</figcaption></figure>"


def pair(before: Picture, after: Picture, captions: tuple[str, str] = ("Before", "After")) -> Markup:
    """Two pictures side by side, where there is room."""
    return Markup(
        f'<div class="pair" style="{PAIR}">{pictured(before, captions[0])}{pictured(after, captions[1])}</div>'
    )


def enlarged(pixels: Pixels, least: int) -> tuple[Picture, int]:
    """Grey values (rows, columns), each as a square of so many pixels that the longer side has ``least``; and how many."""
    times = max(1, -(-least // max(pixels.shape)))
    return Picture(np.kron(pixels, np.ones((times, times), pixels.dtype))), times
