// What a page can do beside being read: light and dark, tables that filter and sort, plots that zoom and hide curves.
"use strict";
(() => {
  const root = document.documentElement;
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  const make = (tag, attributes = {}, ...children) => {
    const drawn = ["g", "line", "text"].includes(tag);
    const element = document.createElementNS((drawn ? document.querySelector("svg") : root).namespaceURI, tag);
    for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
    element.append(...children);
    return element;
  };
  const button = (label, name, act) => {
    const made = make("button", { type: "button", ...(name && { "aria-label": name }) }, label);
    made.addEventListener("click", act);
    return made;
  };

  // ---- Light and dark: by the system, or as it was last chosen where the browser may remember it.
  const KEY = "surefoot-theme";
  const remembered = (value) => {
    try {
      if (value) localStorage.setItem(KEY, value);
      return localStorage.getItem(KEY);
    } catch {
      return value;
    }
  };
  const dark = () => (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) === "dark";
  const chosen = remembered();
  if (chosen === "dark" || chosen === "light") root.dataset.theme = chosen;

  function theme() {
    const toggle = button("", "", () => {
      root.dataset.theme = dark() ? "light" : "dark";
      remembered(root.dataset.theme);
      named();
    });
    const named = () => { toggle.textContent = dark() ? "Light" : "Dark"; toggle.title = "Change to these colours"; };
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", named);
    named();
    document.querySelector(".top").append(toggle);
  }

  // ---- Contents are open where they stand beside the page; a box is a stop of the Tab key only while it scrolls.
  function layout() {
    const beside = matchMedia("(min-width: 78rem)");
    const open = () => all(".contents details").forEach((details) => { details.open = beside.matches; });
    beside.addEventListener("change", open);
    open();
    const watch = new ResizeObserver((entries) => entries.forEach(({ target }) => {
      const scrolls = target.scrollWidth > target.clientWidth + 1;
      target[scrolls ? "setAttribute" : "removeAttribute"]("tabindex", "0");
      target.classList.toggle("scrolls", scrolls);
    }));
    all(".wide").forEach((box) => watch.observe(box));
  }

  // ---- Tables: a text field keeps the rows that have every word of it, a head sorts by its column.
  const DIGITS = "⁰¹²³⁴⁵⁶⁷⁸⁹";
  const ascii = (text) => text.replace(/⁻/g, "-").replace(/[⁰¹²³⁴⁵⁶⁷⁸⁹]/g, (digit) => DIGITS.indexOf(digit));
  function value(text) { // the number at the start of a cell, as wording.py writes numbers
    const plain = text.replace(/,/g, "").replace(/−/g, "-").trim();
    const one = plain.match(/^1 - (.+)/);
    if (one) return 1 - value(one[1]);
    const power = plain.match(/^(?:more than )?(?:(-?[\d.]+) × )?10([⁻⁰¹²³⁴⁵⁶⁷⁸⁹]+)/);
    if (power) return Number(power[1] ?? 1) * 10 ** Number(ascii(power[2]));
    const infinite = plain.match(/^-?∞/);
    return infinite ? (plain[0] === "-" ? -Infinity : Infinity) : parseFloat(plain.replace(/^sum /, ""));
  }

  function order(table, rows, heads, column) {
    const before = heads[column].getAttribute("aria-sort");
    const now = before === "ascending" ? "descending" : before === "descending" ? null : "ascending";
    heads.forEach((head) => head.removeAttribute("aria-sort"));
    const sorted = [...rows];
    if (now) {
      heads[column].setAttribute("aria-sort", now);
      const text = (row) => row.cells[column].textContent;
      const numbers = rows.some((row) => !Number.isNaN(value(text(row))));
      const compare = (a, b) => {
        const [x, y] = [value(text(a)), value(text(b))];
        if (!numbers) return text(a).localeCompare(text(b));
        return Number.isNaN(x) || Number.isNaN(y) ? Number.isNaN(x) - Number.isNaN(y) : x < y ? -1 : x > y ? 1 : 0;
      };
      sorted.sort((a, b) => (now === "ascending" ? compare(a, b) : compare(b, a)));
    }
    table.tBodies[0].append(...sorted);
  }

  function tools(table) {
    const rows = [...table.tBodies[0].rows];
    const heads = [...table.tHead.rows[0].cells];
    if (rows.length < 8 || table.closest("figure")) return;
    heads.forEach((head, column) => {
      const sort = button("", "", () => order(table, rows, heads, column));
      sort.append(...head.childNodes);
      head.append(sort);
    });
    const field = make("input", { type: "search" });
    const shown = make("output", {}, `${rows.length} rows`);
    field.addEventListener("input", () => {
      const words = field.value.toLowerCase().split(/\s+/);
      rows.forEach((row) => { row.hidden = !words.every((word) => row.textContent.toLowerCase().includes(word)); });
      shown.textContent = `${rows.filter((row) => !row.hidden).length} of ${rows.length} rows`;
    });
    const box = table.closest(".wide") ?? table;
    box.before(make("div", { class: "tools" }, make("label", {}, "Filter ", field), shown));
  }

  // ---- Plots. A view is a part of the axes, in units of their width and height, with y upwards; 0, 0, 1, 1 is all.
  const limits = (axis, low, high) => [low, high].map((u) => valueAt(axis, u));
  function valueAt({ limits: [from, to], log, turn }, u) {
    if (turn) { // linear up to a place, logarithmic from there on
      const [place, middle] = turn;
      return u <= place ? from + ((middle - from) * u) / place : middle * (to / middle) ** ((u - place) / (1 - place));
    }
    return log ? from * (to / from) ** u : from + (to - from) * u;
  }
  function placeOf({ limits: [from, to], log, turn }, number) {
    if (turn) {
      const [place, middle] = turn;
      if (number <= middle) return (place * (number - from)) / (middle - from);
      return place + ((1 - place) * Math.log(number / middle)) / Math.log(to / middle);
    }
    return log ? Math.log(number / from) / Math.log(to / from) : (number - from) / (to - from);
  }
  function written(number, axis) { // as wording.py does
    if (axis.percent) return `${Number((100 * number).toPrecision(4))} %`;
    if (number === 0) return "0";
    const [mantissa, exponent] = number.toExponential(3).split("e").map(Number);
    const power = axis.log && mantissa === 1;
    if (exponent >= -4 && exponent < 6 && !power) {
      return Number(number.toPrecision(4)).toLocaleString("en", { maximumFractionDigits: 8 }).replace("-", "−");
    }
    const raised = `10${String(exponent).replace("-", "⁻").replace(/\d/g, (digit) => DIGITS[digit])}`;
    return mantissa === 1 ? raised : `${String(mantissa).replace("-", "−")} × ${raised}`;
  }
  function ticks(axis, low, high) {
    if (axis.turn) {
      const middle = axis.turn[1];
      const along = low < middle ? ticks({}, low, Math.min(high, middle)) : [];
      return high > middle ? [...along, ...ticks({ log: true }, Math.max(low, middle), high)] : along;
    }
    const span = Math.log10(high / low);
    if (axis.log && span >= 1) {
      const stride = Math.ceil(span / 8);
      const powers = Array.from({ length: 700 }, (_, k) => k - 350).filter((k) => k % stride === 0).map((k) => 10 ** k);
      const marks = span < 2 ? powers.flatMap((power) => [power, 2 * power, 5 * power]) : powers;
      return marks.filter((mark) => mark >= low && mark <= high);
    }
    const rough = (high - low) / 5;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((k) => k * power).find((size) => size >= rough);
    const first = Math.ceil(low / step);
    return Array.from({ length: Math.floor(high / step) - first + 1 }, (_, k) => Number(((first + k) * step).toPrecision(12)));
  }

  function zoomable(svg) { // returns what shows a view
    const panels = JSON.parse(svg.dataset.axes).map((panel, index) => {
      const group = svg.querySelector(`[data-panel="${index}"]`);
      const clip = group.querySelector("[clip-path]")?.getAttribute("clip-path");
      for (const mark of all("[data-mark]", group)) {
        for (const part of all("[clip-path]", mark)) part.removeAttribute("clip-path");
        const window = make("g", clip ? { "clip-path": clip } : {});
        mark.replaceWith(window);
        window.append(mark);
      }
      const scale = make("g", { "aria-hidden": "true" });
      group.append(scale);
      return { ...panel, group, scale };
    });
    return (view) => panels.forEach((panel) => show(panel, view));
  }

  function show({ box: [left, top, right, bottom], x, y, group, scale }, view) {
    const [sx, sy] = [1 / (view.x1 - view.x0), 1 / (view.y1 - view.y0)];
    const [tx, ty] = [left - sx * (left + view.x0 * (right - left)), bottom - sy * (bottom - view.y0 * (bottom - top))];
    const whole = sx === 1 && sy === 1;
    for (const mark of all("[data-mark]", group)) {
      mark.setAttribute("transform", `matrix(${sx} 0 0 ${sy} ${tx} ${ty})`);
      for (const path of all("path", mark)) path.setAttribute("vector-effect", "non-scaling-stroke");
      for (const use of all("use", mark)) { // a marker moves and keeps its size
        const [at, on] = [use.getAttribute("x"), use.getAttribute("y")];
        use.setAttribute("transform", `translate(${at} ${on}) scale(${1 / sx} ${1 / sy}) translate(${-at} ${-on})`);
      }
    }
    for (const said of all("[data-moves]", group)) {
      const { x: at, y: on, width, height } = said.getBBox();
      const [cx, cy] = [at + width / 2, on + height / 2];
      const dx = said.dataset.moves.includes("x") ? sx * cx + tx - cx : 0;
      const dy = said.dataset.moves.includes("y") ? sy * cy + ty - cy : 0;
      said.setAttribute("transform", `translate(${dx} ${dy})`);
      const inside = cx + dx >= left && cx + dx <= right && cy + dy >= top && cy + dy <= bottom;
      said.classList.toggle("off", !whole && !inside);
    }
    all("[data-tick]", group).forEach((tick) => tick.classList.toggle("off", !whole));
    scale.replaceChildren();
    if (whole) return;
    const at = (axis, low, high, number) => (placeOf(axis, number) - low) / (high - low);
    for (const tick of ticks(x, ...limits(x, view.x0, view.x1))) {
      const place = left + at(x, view.x0, view.x1, tick) * (right - left);
      scale.append(make("line", { x1: place, x2: place, y1: top, y2: bottom, class: "grid" }));
      if (x.named) scale.append(make("text", { x: place, y: bottom + 14, "text-anchor": "middle", class: "tick" }, written(tick, x)));
    }
    for (const tick of ticks(y, ...limits(y, view.y0, view.y1))) {
      const place = bottom - at(y, view.y0, view.y1, tick) * (bottom - top);
      scale.append(make("line", { x1: left, x2: right, y1: place, y2: place, class: "grid" }));
      if (y.named) scale.append(make("text", { x: left - 6, y: place + 3.5, "text-anchor": "end", class: "tick" }, written(tick, y)));
    }
  }

  function zoom(stage) {
    const svgs = all("svg[data-axes]", stage);
    const shows = svgs.map(zoomable);
    const first = JSON.parse(svgs[0].dataset.axes)[0];
    let view = { x0: 0, y0: 0, x1: 1, y1: 1 };
    const said = make("output", { class: "hidden" });
    const set = (x0, y0, x1, y1) => {
      const [w, h] = [Math.min(1, Math.max(1e-4, x1 - x0)), Math.min(1, Math.max(1e-4, y1 - y0))];
      const [x, y] = [Math.min(Math.max(0, x0), 1 - w), Math.min(Math.max(0, y0), 1 - h)];
      view = { x0: x, y0: y, x1: x + w, y1: y + h };
      const whole = w === 1 && h === 1;
      shows.forEach((show) => show(view));
      stage.classList.toggle("zoomed", !whole);
      if (whole && more.includes(document.activeElement)) tools.querySelector("button").focus();
      more.forEach((one) => { one.hidden = whole; });
      const range = (axis, low, high) => limits(axis, low, high).map((end) => written(end, axis)).join(" to ");
      said.textContent = whole ? "all shown" : `shown: ${range(first.x, view.x0, view.x1)}, and ${range(first.y, view.y0, view.y1)}`;
    };
    const by = (factor, u = 0.5, v = 0.5) => {
      const [w, h] = [view.x1 - view.x0, view.y1 - view.y0];
      const [x, y] = [view.x0 + w * u * (1 - factor), view.y0 + h * v * (1 - factor)];
      set(x, y, x + w * factor, y + h * factor);
    };
    const pan = (u, v) => {
      const [dx, dy] = [u * (view.x1 - view.x0), v * (view.y1 - view.y0)];
      set(view.x0 + dx, view.y0 + dy, view.x1 + dx, view.y1 + dy);
    };
    const reset = () => set(0, 0, 1, 1);
    const [closer, farther] = [() => by(0.5), () => by(2)];
    const moves = { ArrowLeft: [-0.25, 0], ArrowRight: [0.25, 0], ArrowUp: [0, 0.25], ArrowDown: [0, -0.25] };
    const more = [
      button("−", "Zoom out", farther),
      ...Object.entries(moves).map(([key, move], k) => button("←→↑↓"[k], `Move ${key.slice(5).toLowerCase()}`, () => pan(...move))),
      button("Reset", "Reset zoom", reset),
    ];
    const tools = make("div", { class: "tools", role: "group", "aria-label": "Zoom" }, "Zoom", button("+", "Zoom in", closer), ...more, said);
    more.forEach((one) => { one.hidden = true; });
    stage.before(tools);
    const keys = { "+": closer, "=": closer, "-": farther, 0: reset };
    stage.tabIndex = 0;
    stage.setAttribute("role", "group");
    stage.setAttribute("aria-label", "Plot: plus and minus zoom, arrows move, 0 shows all");
    stage.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const act = keys[event.key] ?? (stage.classList.contains("zoomed") && moves[event.key] && (() => pan(...moves[event.key])));
      if (act) { event.preventDefault(); act(); }
    });
    const place = (event) => { // in units of the first axes
      const svg = svgs.find((one) => one.getBoundingClientRect().width > 0);
      const { box: [left, top, right, bottom] } = JSON.parse(svg.dataset.axes)[0];
      const point = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
      return [(point.x - left) / (right - left), (bottom - point.y) / (bottom - top)];
    };
    const within = (u) => Math.min(Math.max(u, 0), 1);
    stage.addEventListener("wheel", (event) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const [u, v] = place(event);
      by(event.deltaY < 0 ? 0.8 : 1.25, within(u), within(v));
    }, { passive: false });
    let held = null;
    stage.addEventListener("pointerdown", (event) => { held = event.pointerType === "mouse" && event.button === 0 ? place(event) : null; });
    stage.addEventListener("pointermove", (event) => {
      if (!held || !event.buttons) return;
      const [u, v] = place(event);
      pan(held[0] - u, held[1] - v);
      held = [u, v];
    });
  }

  function legend(list) {
    const figure = list.closest("figure");
    for (const item of all("[data-curve]", list)) {
      const toggle = button("", "", () => {
        const shown = toggle.getAttribute("aria-pressed") !== "true";
        toggle.setAttribute("aria-pressed", shown);
        all(`svg [data-curve="${item.dataset.curve}"]`, figure).forEach((curve) => curve.classList.toggle("off", !shown));
      });
      toggle.setAttribute("aria-pressed", "true");
      toggle.append(...item.childNodes);
      item.append(toggle);
    }
  }

  document.addEventListener("DOMContentLoaded", () => {
    theme();
    layout();
    all("table").forEach(tools);
    all(".stage").filter((stage) => stage.querySelector("svg[data-axes]")).forEach(zoom);
    all(".legend").forEach(legend);
  });
})();
