"""The style and the script of a report's page. The page is complete without the script."""

from __future__ import annotations

# Dark text on white, one column of comfortable length, numbers that stand below each other; paper gets the same.
STYLE = """
:root { color-scheme: light; --ink: #1a1a1a; --soft: #555; --line: #d4d4d4; --link: #00558a; --pale: #f5f7f9; }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-behavior: smooth; }
body { margin: 0; background: #fff; color: var(--ink); overflow-wrap: anywhere;
  font: 400 1.0625rem/1.6 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", "Liberation Sans", sans-serif; }
header, nav, main, footer { max-width: 46rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 3rem; }
h1 { font-size: 1.9rem; line-height: 1.2; margin: 0 0 .4rem; letter-spacing: -.01em; font-weight: 650; }
h2 { font-size: 1.3rem; line-height: 1.3; margin: 3.25rem 0 .5rem; padding-top: 1rem; border-top: 1px solid var(--line);
  font-weight: 650; }
h3 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; font-weight: 650; }
p, ul, dl, pre, figure { margin: .7rem 0; }
ul { padding-left: 1.2rem; }
li { margin: .3rem 0; }
a { color: var(--link); }
b { font-weight: 600; }
.meta { color: var(--soft); margin: 0; }
.skip { position: absolute; left: -999rem; }
.skip:focus { left: 1rem; top: 1rem; background: #fff; padding: .3rem .6rem; }
nav ul { list-style: none; margin: 1.1rem 0 0; padding: 0; display: flex; flex-wrap: wrap; gap: .1rem 1.1rem;
  font-size: .95rem; }
nav li { margin: 0; }
section.summary { background: var(--pale); border-radius: 6px; padding: .35rem 1.4rem 1rem; margin: 1.6rem 0 0; }
section.summary h2 { border: 0; margin: .4rem 0 0; padding-top: .5rem; }
section.summary h3 { margin-top: 1.1rem; }
figure { margin: 1.4rem 0 1rem; }
figure img { display: block; width: 100%; height: auto; }
figcaption, dl.columns, .small { font-size: .875rem; line-height: 1.5; color: var(--soft); }
figcaption { margin-top: .25rem; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: 0 1.5rem; }
.pair figure { margin: .8rem 0; }
.scroll { overflow-x: auto; margin: 1.4rem 0 .4rem; }
.scroll:focus-visible, button:focus-visible, a:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
table { border-collapse: collapse; width: 100%; font-size: .95rem; line-height: 1.35;
  font-variant-numeric: tabular-nums; }
caption { text-align: left; font-weight: 600; padding: 0 0 .45rem; }
th, td { padding: .32rem 0 .32rem .9rem; text-align: right; white-space: nowrap; vertical-align: baseline; }
th.name { text-align: left; padding-left: 0; white-space: normal; min-width: 7rem; overflow-wrap: anywhere; }
thead th { border-bottom: 1.5px solid var(--ink); font-weight: 600; vertical-align: bottom; white-space: normal;
  overflow-wrap: normal; max-width: 7.5rem; }
thead th.name { white-space: nowrap; }
tbody th { font-weight: 400; }
tbody td, tbody th { border-bottom: 1px solid #ececec; }
tbody tr:hover { background: var(--pale); }
thead button { all: unset; cursor: pointer; font: inherit; }
thead button::after { content: " \\2195"; color: #767676; font-size: .8em; }
th[aria-sort="ascending"] button::after { content: " \\2191"; color: var(--ink); }
th[aria-sort="descending"] button::after { content: " \\2193"; color: var(--ink); }
table.plain { width: auto; }
table.plain th, table.plain td { text-align: left; padding-left: 0; padding-right: 2rem; white-space: normal; }
dl.columns { display: grid; grid-template-columns: max-content 1fr; gap: .05rem .9rem; margin: .3rem 0 1.2rem; }
dl.columns dt { color: var(--ink); max-width: 11rem; }
dl.columns dd { margin: 0; }
pre, code { font: .875rem/1.5 ui-monospace, "SFMono-Regular", Menlo, Consolas, "Liberation Mono", monospace; }
pre { background: var(--pale); padding: .7rem .9rem; border-radius: 6px; white-space: pre-wrap; }
.note { border-left: 4px solid #b45309; background: #fdf6ec; padding: .6rem 1rem; border-radius: 0 6px 6px 0; }
footer { color: var(--soft); font-size: .875rem; padding-top: 2.5rem; padding-bottom: 3rem; }
.tip { position: fixed; z-index: 9; max-width: 19rem; background: var(--ink); color: #fff; font-size: .85rem;
  line-height: 1.4; padding: .35rem .6rem; border-radius: 4px; pointer-events: none; }
.tip[hidden] { display: none; }
@media screen and (max-width: 36rem) {
  body { font-size: 1rem; }
  header { padding-top: 1.5rem; }
  h1 { font-size: 1.5rem; }
  .pair { grid-template-columns: 1fr; }
  .wide { overflow-x: auto; }
  .wide img { width: 30rem; max-width: none; }
  table { font-size: .875rem; }
  th, td { padding-left: .6rem; }
  th.name { min-width: 4.5rem; }
  section.summary { padding: .2rem 1rem .8rem; }
  dl.columns { grid-template-columns: 1fr; }
  dl.columns dd { margin-bottom: .35rem; }
}
@media (prefers-reduced-motion: reduce) { html { scroll-behavior: auto; } }
@page { margin: 16mm 17mm; }
@media print {
  html { font-size: 9.5pt; }
  body { font-size: 1rem; }
  header, nav, main, footer { max-width: none; padding-left: 0; padding-right: 0; }
  header { padding-top: 0; }
  nav, .skip, .tip { display: none; }
  h2 { margin-top: 1.6rem; }
  h2, h3, h2 + p, caption { break-after: avoid; }
  figure, thead, tr, pre, .note, section.summary, table.short, dl.columns { break-inside: avoid; }
  .scroll { break-after: avoid; }
  .wide { overflow: visible; }
  figure img { max-width: 13.5cm; max-height: 21cm; width: auto; }
  .pair figure img { max-width: 100%; }
  .scroll { overflow: visible; }
  thead { display: table-header-group; }
  thead button::after { content: ""; }
  section.summary, pre, .note { background: none; border: 1px solid var(--line); }
  a { color: inherit; text-decoration: none; }
}
"""

SCRIPT = """
"use strict";
(() => {
  const tip = document.createElement("div");
  tip.className = "tip"; tip.id = "tip"; tip.hidden = true; tip.setAttribute("role", "tooltip");
  document.body.append(tip);
  let owner = null;
  const hide = () => { tip.hidden = true; if (owner) owner.removeAttribute("aria-describedby"); owner = null; };
  const show = (target, words) => {
    hide();
    tip.textContent = words; tip.hidden = false; owner = target;
    target.setAttribute("aria-describedby", "tip");
    const at = target.getBoundingClientRect(), own = tip.getBoundingClientRect();
    tip.style.left = Math.max(4, Math.min(at.left, innerWidth - own.width - 4)) + "px";
    tip.style.top = (at.bottom + own.height + 6 < innerHeight ? at.bottom + 4 : at.top - own.height - 4) + "px";
  };
  const words = (target) => target.dataset.tip || (target.dataset.value === "nan" ? "not known" : target.dataset.value);
  const watch = (event) => {
    const target = event.target.closest ? event.target.closest("[data-tip], [data-value]") : null;
    if (target) show(event.type === "focusin" ? event.target : target, words(target)); else hide();
  };
  document.addEventListener("mouseover", watch);
  document.addEventListener("focusin", watch);
  document.addEventListener("focusout", hide);
  document.addEventListener("scroll", hide, true);
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") hide(); });

  const inWords = new Intl.Collator(undefined, { numeric: true });
  const number = (cell) => Number(cell.dataset.value.replace("inf", "Infinity"));
  const compare = (place, down) => (one, other) => {
    const a = one.cells[place], b = other.cells[place];
    if (a.dataset.value === undefined) return (down ? -1 : 1) * inWords.compare(a.textContent, b.textContent);
    const x = number(a), y = number(b);
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
    return x === y ? 0 : (down ? -1 : 1) * (x < y ? -1 : 1);
  };
  for (const table of document.querySelectorAll("table.sortable")) {
    const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0];
    heads.forEach((head, place) => {
      const button = document.createElement("button");
      button.type = "button";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const was = head.getAttribute("aria-sort");
        const down = was ? was === "ascending" : place > 0;
        heads.forEach((one) => one.removeAttribute("aria-sort"));
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        body.append(...[...body.rows].sort(compare(place, down)));
      });
    });
  }
})();
"""
