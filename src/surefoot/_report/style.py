"""The style sheet of a report."""

CSS = """
:root { color-scheme: light dark; --ink: #1f2328; --soft: #59626c; --faint: #8a9099; --line: #d5d9de; --paper: #ffffff;
  --panel: #f5f7f9; --blue: #0072b2; --sky: #56b4e9; --red: #d55e00; --green: #009e73; --pink: #b8578f;
  --orange: #c98500;
  --ok: #00734f; --okback: #e5f5ef; --warn: #7a5200; --warnback: #fdf3dc; --bad: #a53d00; --badback: #fdeae0; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ec; --soft: #a4adb7; --faint: #7d8690; --line: #3a4149;
  --paper: #15181c; --panel: #1e2329; --blue: #4fb0f0; --sky: #8fd0f5; --red: #ff8a3d; --green: #2fc79b;
  --pink: #e59cc6; --orange: #f0b23a; --ok: #63d3ac; --okback: #12302a; --warn: #f0c35c; --warnback: #33290f;
  --bad: #ff9d66; --badback: #3a2013; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1.25rem 3rem; max-width: 56rem; color: var(--ink); background: var(--paper);
  font: 1rem/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; line-height: 1.25; margin: 0 0 1rem; }
h2 { font-size: 1.2rem; margin: 2.4rem 0 .5rem; padding-top: .3rem; border-top: 1px solid var(--line); }
p { margin: .5rem 0; max-width: 46rem; }
.soft { color: var(--soft); font-size: .92rem; }
.verdict { border-left: .4rem solid; border-radius: .3rem; padding: .8rem 1rem; margin: 0 0 1.2rem; }
.verdict b.badge { display: block; letter-spacing: .06em; font-size: .85rem; }
.verdict ul { margin: .3rem 0; color: var(--ink); }
.verdict p { font-size: 1.06rem; color: var(--ink); }
.verdict.ok { color: var(--ok); background: var(--okback); }
.verdict.warn { color: var(--warn); background: var(--warnback); }
.verdict.bad { color: var(--bad); background: var(--badback); }
.keys { display: grid; grid-template-columns: repeat(auto-fit, minmax(11.5rem, 1fr)); gap: .6rem; margin: 0; }
.keys div { background: var(--panel); border-radius: .3rem; padding: .5rem .75rem; }
.keys dt { color: var(--soft); font-size: .85rem; }
.keys dd { margin: 0; font-size: 1.15rem; font-weight: 600; font-variant-numeric: tabular-nums;
  overflow-wrap: break-word; }
.keys dd small { display: block; font-weight: 400; font-size: .82rem; line-height: 1.35; color: var(--soft); }
.wide { overflow-x: auto; margin: .6rem 0; }
table { border-collapse: collapse; width: 100%; font-size: .92rem; font-variant-numeric: tabular-nums;
  overflow-wrap: normal; }
th, td { text-align: left; vertical-align: top; padding: .35rem .9rem .35rem 0; border-bottom: 1px solid var(--line); }
th { font-weight: 600; color: var(--soft); }
td.n, th.n { text-align: right; white-space: nowrap; }
td.whole { white-space: nowrap; }
td.text { overflow-wrap: anywhere; min-width: 12rem; }
td small { color: var(--soft); line-height: 1.4; display: inline-block; }
td.good { color: var(--ok); font-weight: 600; white-space: nowrap; }
td.fail { color: var(--bad); font-weight: 600; white-space: nowrap; }
code, .hash { font-family: ui-monospace, "DejaVu Sans Mono", monospace; font-size: .88em; }
.hash { overflow-wrap: anywhere; min-width: 9rem; }
pre { background: var(--panel); padding: .7rem .9rem; border-radius: .3rem; overflow-x: auto; }
figure { margin: 1rem 0 1.5rem; }
figure svg { display: block; width: 100%; min-width: 32rem; height: auto; }
figcaption { color: var(--soft); font-size: .92rem; margin-top: .4rem; max-width: 46rem; }
summary { cursor: pointer; color: var(--soft); margin: .5rem 0; }
footer { margin-top: 2.5rem; color: var(--soft); font-size: .85rem; }
@media print {
  :root { color-scheme: light; --ink: #000; --soft: #444; --faint: #777; --line: #bbb; --paper: #fff; --panel: #f3f3f3;
    --blue: #0072b2; --sky: #56b4e9; --red: #d55e00; --green: #009e73; --pink: #b8578f; --orange: #c98500;
    --ok: #00734f; --okback: #fff; --warn: #7a5200; --warnback: #fff; --bad: #a53d00; --badback: #fff; }
  body { max-width: none; padding: 0; font-size: 10pt; }
  h2 { break-after: avoid; } figure, tr, .verdict, .keys div { break-inside: avoid; }
  figure svg { min-width: 0; max-width: 15cm; } .wide { overflow: visible; }
}
"""
"""Light and dark by the reader's system, narrow screens, paper; nothing is fetched."""
