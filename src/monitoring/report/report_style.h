// The fixed parts of report.html: style and script.
#pragma once

namespace carole::monitoring {

inline constexpr char kReportStyle[] = R"css(
:root { color-scheme: light dark; --back: #f6f7f9; --card: #fff; --ink: #1c2430; --soft: #667085;
  --grid: #e4e7ec; --c0: #2563eb; --c1: #d97706; --c2: #059669; --c3: #c026d3; --c4: #dc2626;
  --c5: #64748b; }
@media (prefers-color-scheme: dark) { :root { --back: #0f141b; --card: #18202a; --ink: #e6eaf0;
  --soft: #93a0b4; --grid: #2a3442; --c0: #60a5fa; --c1: #fbbf24; --c2: #34d399; --c3: #e879f9;
  --c4: #f87171; --c5: #94a3b8; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 24px; max-width: 1440px; background: var(--back);
  color: var(--ink); font: 14px/1.45 system-ui, -apple-system, "Segoe UI", sans-serif; }
h1 { margin: 0; font-size: 22px; }
header p { margin: 2px 0 16px; color: var(--soft); }
.tiles { display: grid; gap: 12px; margin-bottom: 16px;
  grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); }
.tiles div, figure { background: var(--card); border: 1px solid var(--grid); border-radius: 8px; }
.tiles div { padding: 10px 14px; }
.tiles b { display: block; white-space: nowrap; font-size: 21px; font-variant-numeric: tabular-nums; }
.tiles span, small { color: var(--soft); font-size: 12.5px; font-weight: normal; }
.charts { display: grid; gap: 16px; grid-template-columns: repeat(2, minmax(0, 1fr)); }
@media (max-width: 900px) { .charts { grid-template-columns: minmax(0, 1fr); } }
figure { margin: 0; padding: 12px 14px; position: relative; }
figure.wide, figure.wide + figure, figure:last-child:nth-child(odd) { grid-column: 1 / -1; }
figcaption { font-weight: 600; }
.none { color: var(--soft); }
.legend { display: flex; flex-wrap: wrap; gap: 2px 14px; margin: 2px 0 4px; font-size: 12.5px;
  color: var(--soft); }
.legend i { display: inline-block; width: 10px; height: 10px; border-radius: 2px;
  margin-right: 5px; }
svg { display: block; width: 100%; height: auto; font-size: 11.5px; overflow: visible; }
svg text { fill: var(--soft); }
.axes path { stroke: var(--grid); }
.line { fill: none; stroke-width: 1.8; stroke-linejoin: round; }
.faint { opacity: .28; stroke-width: 1; }
.dashed { stroke-dasharray: 6 3; }
.area { fill-opacity: .8; stroke: var(--card); }
.edge { fill: none; stroke: none; }
.s0 { stroke: var(--c0); } .s1 { stroke: var(--c1); } .s2 { stroke: var(--c2); }
.s3 { stroke: var(--c3); } .s4 { stroke: var(--c4); } .s5 { stroke: var(--c5); }
.f0 { fill: var(--c0); } .f1 { fill: var(--c1); } .f2 { fill: var(--c2); }
.f3 { fill: var(--c3); } .f4 { fill: var(--c4); } .f5 { fill: var(--c5); }
.b0 { background: var(--c0); } .b1 { background: var(--c1); } .b2 { background: var(--c2); }
.b3 { background: var(--c3); } .b4 { background: var(--c4); } .b5 { background: var(--c5); }
.cursor { stroke: var(--soft); stroke-dasharray: 3 3; }
.tip { position: absolute; pointer-events: none; padding: 5px 9px; border-radius: 6px;
  background: var(--ink); color: var(--back); font-size: 12.5px; white-space: pre;
  font-variant-numeric: tabular-nums; }
.matrix { max-width: 760px; margin: 8px auto 0; }
.matrix .frame { fill: none; stroke: var(--grid); }
.matrix .right { fill: var(--c0); } .matrix .wrong { fill: var(--c4); }
.matrix text { text-anchor: middle; fill: var(--ink); }
.matrix text.label { text-anchor: end; } .matrix text.column { text-anchor: start; }
.matrix text.dark { fill: #fff; }
@media (prefers-color-scheme: dark) { .matrix text.dark, .matrix text.half { fill: #0b1017; } }
table { border-collapse: collapse; width: 100%; margin-top: 6px; }
th, td { text-align: left; padding: 4px 14px 4px 0; border-top: 1px solid var(--grid);
  vertical-align: top; overflow-wrap: anywhere; }
td:first-child { white-space: nowrap; color: var(--soft); }
tr:first-child > * { border-top: none; }
td span { display: inline-block; max-width: 100%; }
@media (max-width: 600px) { svg:not(.matrix) { font-size: 17px; } }
@media print { figure, .tiles div { break-inside: avoid; } }
)css";

// Shows values under the mouse pointer. It computes them from the drawing: the attributes data-x
// and data-y hold the ends of an axis, in values and in drawing units. The script also marks the
// page of a run that has not written a report for 10 minutes; such a run was probably killed.
inline constexpr char kReportScript[] = R"js(
'use strict';
for (const svg of document.querySelectorAll('svg[data-x]')) {
  const [x0, x1, left, right] = svg.dataset.x.split(' ').map(Number);
  const [y0, y1, bottom, top, isLog] = svg.dataset.y.split(' ').map(Number);
  const value = (p) => {
    const share = (p - bottom) / (top - bottom);
    return isLog ? y0 * (y1 / y0) ** share : y0 + share * (y1 - y0);
  };
  const lines = new Map();
  for (const line of svg.querySelectorAll('[data-name]')) {
    const points = lines.get(line.dataset.name) || [];
    lines.set(line.dataset.name, points.concat([...line.points]));
  }
  const stacked = svg.querySelector('[data-stacked]') !== null;
  const all = [...lines.values()].flat();
  const cursor = document.createElementNS(svg.namespaceURI, 'path');
  cursor.setAttribute('class', 'cursor');
  const tip = document.createElement('div');
  tip.className = 'tip';
  const hide = () => { cursor.remove(); tip.remove(); };
  const nearest = (points, x) =>
    points.reduce((a, b) => Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a);
  svg.addEventListener('pointermove', (event) => {
    const box = svg.getBoundingClientRect();
    const scale = svg.viewBox.baseVal.width / box.width;
    const x = nearest(all, (event.clientX - box.left) * scale).x;
    const stepAt = (position) =>
      Math.round(x0 + (position - left) / (right - left) * (x1 - x0)).toLocaleString('en');
    const rows = ['step ' + stepAt(x)];
    let below = 0;
    for (const [name, points] of lines) {
      const at = nearest(points, x);
      if (Math.abs(at.x - x) > 2) continue;
      const v = value(at.y);
      const other = stepAt(at.x) === stepAt(x) ? '' : ' (step ' + stepAt(at.x) + ')';
      rows.push(name + '  ' + Number((v - below).toPrecision(4)) + other);
      if (stacked) below = v;
    }
    cursor.setAttribute('d', `M${x} ${top}V${bottom}`);
    svg.append(cursor);
    tip.textContent = rows.join('\n');
    svg.parentElement.append(tip);
    const card = svg.parentElement.getBoundingClientRect();
    const px = x / scale + box.left - card.left;
    const flip = px + tip.offsetWidth + 24 > card.width;
    tip.style.left = (flip ? px - tip.offsetWidth - 12 : px + 12) + 'px';
    tip.style.top = (box.top - card.top + 12) + 'px';
  });
  svg.addEventListener('pointerleave', hide);
}
const updated = document.querySelector('time.running');
const minutes = updated ? Math.floor((Date.now() - new Date(updated.dateTime)) / 60000) : 0;
if (minutes >= 10)
  updated.append(`, not updated for ${Math.floor(minutes / 60)} h ${minutes % 60} min`);
)js";

}  // namespace carole::monitoring
