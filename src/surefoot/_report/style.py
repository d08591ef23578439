"""The style sheet of a page: colours as data, so that their contrast can be tested, and the rules."""

from __future__ import annotations

from collections.abc import Mapping

LIGHT = {
    "ink": "#1f2328", "soft": "#545d67", "faint": "#878d96", "line": "#d5d9de", "paper": "#ffffff", "panel": "#f5f7f9",
    "link": "#0b5c9e", "blue": "#0072b2", "sky": "#2e8ec7", "red": "#d55e00", "green": "#008f68", "pink": "#b8578f",
    "orange": "#b87a00", "ok": "#00694a", "okback": "#e5f5ef", "warn": "#735000", "warnback": "#fdf3dc",
    "bad": "#9c3a00", "badback": "#fdeae0",
}  # fmt: skip
"""Colours of a page by variable: text, lines and grounds, then the curves of plots, then the verdicts."""
DARK = {
    "ink": "#e6e9ec", "soft": "#a9b2bc", "faint": "#7d8690", "line": "#3a4149", "paper": "#15181c", "panel": "#1e2329",
    "link": "#74c0fa", "blue": "#4fb0f0", "sky": "#8fd0f5", "red": "#ff8a3d", "green": "#2fc79b", "pink": "#e59cc6",
    "orange": "#f0b23a", "ok": "#63d3ac", "okback": "#12302a", "warn": "#f0c35c", "warnback": "#33290f",
    "bad": "#ff9d66", "badback": "#3a2013",
}  # fmt: skip
"""The same in the dark."""
PAPER = LIGHT | {
    "ink": "#000000", "soft": "#444444", "faint": "#777777", "line": "#bbbbbb", "okback": "#ffffff",
    "warnback": "#ffffff", "badback": "#ffffff",
}  # fmt: skip
"""The same in print."""


def _variables(colours: Mapping[str, str]) -> str:
    return " ".join(f"--{name}: {colour};" for name, colour in colours.items())


COLOURS = f"""
:root, :root[data-theme="light"] {{ color-scheme: light; {_variables(LIGHT)} }}
:root[data-theme="dark"] {{ color-scheme: dark; {_variables(DARK)} }}
@media screen and (prefers-color-scheme: dark) {{
  :root:not([data-theme]) {{ color-scheme: dark; {_variables(DARK)} }}
}}
@media print {{ :root, :root[data-theme] {{ color-scheme: light; {_variables(PAPER)} }} }}
"""
"""Light or dark by the reader's system, unless the page's own button (``data-theme``) says otherwise."""

TEXT = """
* { box-sizing: border-box; }
[hidden] { display: none !important; }
:root { --measure: 58rem; }
html { scroll-padding-top: 1rem; }
body { margin: 0 auto; padding: 1.25rem 1.25rem 3rem; max-width: var(--measure); color: var(--ink); background: var(--paper);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
.top { display: flex; gap: 1rem; align-items: flex-start; justify-content: space-between; margin: 0 0 1rem; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0; text-wrap: balance; }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 2.4rem 0 .5rem; padding-top: .9rem; border-top: 1px solid var(--line); }
h3 { font-size: 1rem; margin: 1.4rem 0 .4rem; }
p { margin: .5rem 0; max-width: 46rem; }
a { color: var(--link); }
small, .soft, .legend, .tools { font-size: .875rem; }
.soft { color: var(--soft); }
.hidden { position: absolute; width: 1px; height: 1px; margin: -1px; overflow: hidden; clip-path: inset(50%);
  white-space: nowrap; }
.skip { position: absolute; left: .5rem; top: -4rem; z-index: 2; padding: .4rem .8rem; background: var(--paper); }
.skip:focus { top: .5rem; }
:focus-visible { outline: 3px solid var(--link); outline-offset: 2px; }
main:focus { outline: none; }
button, input { font: inherit; color: var(--ink); background: var(--paper); border: 1px solid var(--faint);
  border-radius: .3rem; }
button { cursor: pointer; white-space: nowrap; min-width: 2rem; min-height: 2rem; padding: .1rem .6rem; }
.top button { flex: none; }
button:hover { background: var(--panel); }
code, .hash { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .88em; }
pre { background: var(--panel); padding: .7rem .9rem; border-radius: .3rem; margin: .6rem 0; }
pre.command { white-space: pre-wrap; }
.wide pre { background: none; width: max-content; min-width: 100%; margin: 0; }
summary { cursor: pointer; color: var(--link); padding: .25rem 0; width: fit-content; }
.contents { font-size: .9rem; margin: 0 0 1rem; }
.contents ol { list-style: none; margin: .2rem 0; padding: 0; }
.contents a { display: block; padding: .2rem 0; text-decoration: none; }
.contents a:hover { text-decoration: underline; }
footer { margin-top: 2.5rem; padding-top: .8rem; border-top: 1px solid var(--line); color: var(--soft);
  font-size: .875rem; }
.verdict { border-left: .4rem solid; border-radius: .3rem; padding: .8rem 1rem; margin: 0 0 1.2rem; }
.verdict h2 { margin: 0; padding: 0; border: 0; letter-spacing: .05em; font-size: .95rem; }
.verdict ul { margin: .3rem 0; }
.verdict p, .verdict ul { color: var(--ink); }
.verdict p { font-size: 1.06rem; }
.verdict.ok { color: var(--ok); background: var(--okback); }
.verdict.warn { color: var(--warn); background: var(--warnback); }
.verdict.bad { color: var(--bad); background: var(--badback); }
.keys { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 10.2rem), 1fr)); gap: .6rem; margin: 0; }
.keys div { background: var(--panel); border-radius: .3rem; padding: .5rem .75rem; }
.keys dt { color: var(--soft); font-size: .875rem; }
.keys dd { margin: 0; font-size: 1.15rem; font-weight: 600; font-variant-numeric: tabular-nums;
  overflow-wrap: break-word; }
.keys small { display: block; font-weight: 400; line-height: 1.35; color: var(--soft); }
"""

TABLES = """
.wide { position: relative; overflow-x: auto; margin: .6rem 0; background:
  linear-gradient(to right, var(--paper) 40%, transparent) left / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--paper) 40%, transparent) right / 3rem 100% no-repeat local,
  linear-gradient(to right, var(--faint), transparent) left / .7rem 100% no-repeat scroll,
  linear-gradient(to left, var(--faint), transparent) right / .7rem 100% no-repeat scroll; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums;
  overflow-wrap: normal; }
th, td { text-align: left; vertical-align: top; padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line); }
thead th { font-weight: 600; color: var(--soft); vertical-align: bottom; }
tbody th { font-weight: 400; }
.n { text-align: right; white-space: nowrap; }
thead .n { white-space: normal; }
.whole, td.good, td.fail { white-space: nowrap; }
.text { overflow-wrap: anywhere; min-width: 12rem; }
td small, th small { color: var(--soft); line-height: 1.4; display: inline-block; }
td.good { color: var(--ok); font-weight: 600; }
td.fail { color: var(--bad); font-weight: 600; }
.hash { overflow-wrap: anywhere; min-width: 9rem; }
.tools { position: relative; display: flex; flex-wrap: wrap; gap: .4rem; align-items: center; margin: .5rem 0;
  color: var(--soft); }
.tools input { padding: .25rem .5rem; width: 14rem; max-width: 100%; }
th button { white-space: inherit; min-height: 0; padding: 0 .3rem; margin: 0 -.3rem; border-color: transparent; color: inherit;
  font-weight: inherit; text-align: inherit; background: none; }
th button::after { content: " ↕" / ""; color: var(--faint); }
[aria-sort="ascending"] button::after { content: " ↑" / ""; color: var(--ink); }
[aria-sort="descending"] button::after { content: " ↓" / ""; color: var(--ink); }
@media screen and (max-width: 40rem) {
  table, caption, tbody { display: block; }
  thead, thead tr { display: flex; flex-wrap: wrap; gap: .3rem; }
  thead th { border: 0; padding: 0; }
  thead th:not(:has(button)) { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
  th button { border-color: var(--line); margin: 0; }
  tbody tr { display: flex; flex-direction: column; padding: .5rem 0; border-bottom: 1px solid var(--line); }
  tbody td, tbody th { display: grid; grid-template-columns: minmax(6rem, 34%) 1fr; gap: .6rem; border: 0;
    padding: .1rem 0; min-width: 0; white-space: normal; overflow-wrap: anywhere; }
  tbody .n, tbody .whole, tbody td.good, tbody td.fail { text-align: left; white-space: normal; }
  tbody th { order: -1; display: block; font-weight: 600; }
  tbody th.n::before { content: attr(data-label) " " / ""; }
  tbody td::before { content: attr(data-label) / ""; color: var(--soft); font-weight: 400;
    font-family: system-ui, sans-serif; }
  tbody td:empty { display: none; }
}
"""
"""Tables are wide with a scroll cue, or stacked records on a narrow screen, each value named by its column."""

PLOTS = """
figure { display: flex; flex-direction: column; margin: 1.2rem 0 1.8rem; max-width: 46rem; }
figure svg { display: block; width: 100%; height: auto; }
figure .narrow { display: none; }
figure .fixed { min-width: 34rem; }
.scrolls + figcaption::before, .stage:has(.scrolls) ~ figcaption::before { content: "↔ scrolls sideways. "; font-weight: 600; }
figcaption { color: var(--soft); font-size: .92rem; margin-top: .4rem; }
figure details { order: 1; margin-top: .3rem; font-size: .92rem; }
.legend { list-style: none; display: flex; flex-direction: column; align-items: flex-start; gap: .15rem; margin: .3rem 0;
  padding: 0; }
.legend li, .legend button { display: flex; gap: .6rem; align-items: baseline; text-align: left; }
.legend button { border-color: transparent; white-space: normal; }
.legend button:hover { border-color: var(--line); }
.legend svg { flex: none; width: 2.4rem; height: .8rem; }
.legend [aria-pressed="false"] { text-decoration: line-through; color: var(--soft); }
.legend [aria-pressed="false"] svg { opacity: .3; }
.off { display: none; }
.zoomed svg { cursor: grab; }
.tick { font: 10px system-ui, sans-serif; fill: var(--ink); }
.grid { stroke: var(--faint); stroke-width: .6; opacity: .4; }
@media screen and (max-width: 40rem) {
  figure .narrow { display: block; }
  figure tbody td { grid-template-columns: 1fr 6.5rem; }
  figure .broad:has(~ .narrow) { display: none; }
}
"""
"""Each drawing is there twice, for broad and for narrow screens, unless it is of fixed size and scrolls."""

SCREENS = """
@media screen and (min-width: 78rem) {
  body:has(.contents) { max-width: calc(var(--measure) + 18rem); display: grid; gap: 0 3rem;
    grid-template-columns: 13rem minmax(0, 1fr); }
  .top, main, footer { grid-column: 2; }
  .contents { grid-column: 1; grid-row: 1 / span 3; position: sticky; top: 1.25rem; align-self: start; }
}
@media screen and (max-width: 40rem) {
  body { padding-inline: 1rem; }
  h1 { font-size: 1.3rem; }
}
@media (prefers-reduced-motion: no-preference) { html { scroll-behavior: smooth; } }
@media print {
  body { max-width: none; padding: 0; font-size: 10pt; }
  .skip, .contents, .tools, .top button, figure details { display: none; }
  th button::after { content: none; }
  h2 { break-after: avoid; } figure, tr, .verdict, .keys div { break-inside: avoid; }
  figure svg { min-width: 0; max-width: 15cm; } .wide { overflow: visible; background: none; }
  summary { list-style: none; color: inherit; }
  details::details-content { content-visibility: visible; height: auto; }
}
"""

CSS = COLOURS + TEXT + TABLES + PLOTS + SCREENS
"""Light and dark, narrow screens, paper; nothing is fetched."""
