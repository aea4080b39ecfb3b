// ---- Lines: means over seeds with their bands ------------------------------------------------------------------

const MOST_BANDS = 12; // with more curves, only the one pointed at has its band
const MOST_NAMED = 10; // curves in a tooltip

class LineFigure extends Figure {
  height(width) { return Math.max(240, Math.min(400, width * 0.46)); }

  set(block, view) {
    this.block = block;
    this.view = view;
    this.series = view.series.filter((one) => state.shows(one.groups)).map((one) => visiblePart(one)).filter((one) => one.x.length);
    this.xs = [...new Set(this.series.flatMap((one) => [...one.x]))].sort((a, b) => a - b);
    const last = this.series.slice(0, 10).map((one) => `${one.label}: ${say(one.mean[one.mean.length - 1], this.unit)}`);
    this.describe(`${block.title}: ${view.label}`, `${this.series.length} curves over ${block.x}. Last values: ${last.join("; ")}`);
    this.stale();
  }

  get unit() { return this.view.percent ? "percent" : ""; }

  paint(context, width, height) {
    if (!this.series.length) return;
    const { low, high } = this.ends();
    const marks = ticks(low, high, height / 55);
    const names = marks.map((mark) => (this.view.percent ? `${Number((100 * mark).toFixed(6))} %` : say(mark)));
    const left = Math.max(...names.map((name) => context.measureText(name).width)) + 30;
    const box = (this.box = { left, right: width - 14, top: 12, bottom: height - 42 });
    const first = this.xs[0], last = this.xs[this.xs.length - 1];
    const at = this.block.log ? Math.log10 : (x) => x;
    // A single round stands in the middle; marked points stand clear of the frame.
    const room = first === last ? 0.5 : (at(last) - at(first)) * (this.block.marked ? 0.04 : 0);
    const from = at(first) - room, to = at(last) + room;
    this.toX = (x) => box.left + ((at(x) - from) / (to - from)) * (box.right - box.left);
    this.toY = (y) => box.bottom - ((y - low) / (high - low)) * (box.bottom - box.top);
    this.axes(context, marks, names, first, last);
    context.save();
    this.within(context, 6); // markers on an axis are whole
    if (this.series.length <= MOST_BANDS) for (const one of this.series) this.band(context, one, 0.16);
    context.globalAlpha = this.series.length > 40 ? 0.6 : 1;
    for (const one of this.series) this.line(context, one, this.series.length > 20 ? 1.2 : 2);
    context.restore();
  }

  /** Draw only inside the axes, and so many pixels around them, until the context is restored. */
  within(context, around) {
    const { left, right, top, bottom } = this.box;
    context.beginPath();
    context.rect(left - around, top - around, right - left + 2 * around, bottom - top + 2 * around);
    context.clip();
  }

  /** The lowest and the highest that is drawn, with a little room. */
  ends() {
    let low = Infinity, high = -Infinity;
    const banded = this.series.length <= MOST_BANDS;
    for (const { mean, std } of this.series) {
      for (let i = 0; i < mean.length; i++) {
        const spread = std && banded ? std[i] : 0;
        if (mean[i] - spread < low) low = mean[i] - spread;
        if (mean[i] + spread > high) high = mean[i] + spread;
      }
    }
    const room = (high - low) * 0.05 || Math.abs(high) * 0.05 || 0.05;
    low -= room;
    high += room;
    return this.view.percent ? { low: Math.max(0, low), high: Math.min(1, Math.max(high, low + 0.01)) } : { low, high };
  }

  axes(context, marks, names, first, last) {
    const { left, right, top, bottom } = this.box;
    context.lineWidth = 1;
    context.textBaseline = "middle";
    context.textAlign = "right";
    marks.forEach((mark, i) => {
      const y = Math.round(this.toY(mark)) + 0.5;
      context.strokeStyle = colour("--grid");
      context.beginPath(); context.moveTo(left, y); context.lineTo(right, y); context.stroke();
      context.fillStyle = colour("--dim");
      context.fillText(names[i], left - 8, y);
    });
    context.textAlign = "center";
    context.textBaseline = "top";
    let places = this.block.log ? logTicks(first, last) : first === last ? [first] : ticks(first, last, (right - left) / 90).filter(Number.isInteger);
    // The rates that were run say more than round numbers, where there is room for them.
    if (this.block.marked && this.xs.length <= (right - left) / 60) places = this.xs;
    let taken = -Infinity;
    for (const place of places) {
      const x = this.toX(place), text = String(Number(place.toPrecision(6))), half = context.measureText(text).width / 2;
      if (x - half < taken) continue;
      taken = x + half + 8;
      context.strokeStyle = colour("--axis");
      context.beginPath(); context.moveTo(Math.round(x) + 0.5, bottom); context.lineTo(Math.round(x) + 0.5, bottom + 4); context.stroke();
      context.fillStyle = colour("--dim");
      context.fillText(text, Math.max(left + half - 20, Math.min(x, right + 12 - half)), bottom + 7);
    }
    context.strokeStyle = colour("--axis");
    context.beginPath(); context.moveTo(left, bottom + 0.5); context.lineTo(right, bottom + 0.5); context.stroke();
    context.fillStyle = colour("--dim");
    context.fillText(this.block.x, (left + right) / 2, bottom + 25);
    context.save();
    context.translate(12, (top + bottom) / 2);
    context.rotate(-Math.PI / 2);
    context.fillText(cut(context, this.view.y, bottom - top), 0, -6);
    context.restore();
  }

  band(context, { x, mean, std, style }, alpha) {
    if (!std) return;
    context.save();
    this.within(context, 0);
    context.globalAlpha = alpha;
    context.fillStyle = context.strokeStyle = colour(styleOf(style).colour);
    context.beginPath();
    for (let i = 0; i < x.length; i++) context.lineTo(this.toX(x[i]), this.toY(mean[i] + std[i]));
    for (let i = x.length - 1; i >= 0; i--) context.lineTo(this.toX(x[i]), this.toY(mean[i] - std[i]));
    context.closePath();
    context.fill();
    if (x.length === 1) { context.lineWidth = 5; context.stroke(); }
    context.restore();
  }

  line(context, { x, mean, style }, thick) {
    const look = styleOf(style);
    context.strokeStyle = context.fillStyle = colour(look.colour);
    context.lineWidth = thick;
    context.lineJoin = "round";
    context.setLineDash(look.dash);
    context.beginPath();
    for (let i = 0; i < x.length; i++) context.lineTo(this.toX(x[i]), this.toY(mean[i]));
    context.stroke();
    context.setLineDash([]);
    if (x.length <= 40 || this.block.marked) for (let i = 0; i < x.length; i++) marker(context, look.marker, this.toX(x[i]), this.toY(mean[i]), thick > 1.5 ? 3.4 : 2.4);
  }

  point(x, y) {
    if (!this.series?.length || !this.box || this.dirty) return;
    let best = 0;
    for (let i = 1; i < this.xs.length; i++) if (Math.abs(this.toX(this.xs[i]) - x) < Math.abs(this.toX(this.xs[best]) - x)) best = i;
    this.show(best, y);
  }

  step(dx, dy) {
    if (!this.series?.length || !this.box) return;
    const now = this.pointed ?? { place: dx < 0 ? this.xs.length : -1, y: (this.box.top + this.box.bottom) / 2 };
    this.show(Math.max(0, Math.min(this.xs.length - 1, now.place + dx)), now.y + dy * 24);
  }

  show(place, y) {
    const value = this.xs[place], near = this.toX(value);
    const here = this.series.map((one) => ({ one, i: nearest(one.x, value) })).filter(({ one, i }) => one.x[i] === value)
      .map(({ one, i }) => ({ one, i, off: Math.abs(this.toY(one.mean[i]) - y) })).sort((a, b) => a.off - b.off);
    if (!here.length) return;
    this.pointed = { place, y };
    const context = this.layer(this.over);
    context.strokeStyle = colour("--axis");
    context.beginPath(); context.moveTo(Math.round(near) + 0.5, this.box.top); context.lineTo(Math.round(near) + 0.5, this.box.bottom); context.stroke();
    this.band(context, here[0].one, 0.25);
    this.line(context, here[0].one, 3);
    for (const { one, i } of here.slice(0, MOST_NAMED)) {
      context.fillStyle = colour(styleOf(one.style).colour);
      marker(context, styleOf(one.style).marker, near, this.toY(one.mean[i]), 4.5);
    }
    const named = here.slice(0, MOST_NAMED).sort((a, b) => b.one.mean[b.i] - a.one.mean[a.i]);
    const rest = here.length - named.length;
    this.say(near, y, el("strong", {}, `${this.block.x} ${say(value)}`),
      ...named.map(({ one, i }) => el("div", { class: one === here[0].one ? "line near" : "line" }, swatch(one.style), el("span", {}, one.label),
        el("b", {}, say(one.mean[i], this.unit) + (one.std ? ` ± ${say(one.std[i], this.unit)}` : "")))),
      rest > 0 ? el("div", {}, `and ${rest} more`) : null);
  }
}

/** A curve without the points of groups that aren't shown. */
function visiblePart(one) {
  const x = unpack(one.x), mean = unpack(one.mean), std = unpack(one.std);
  const kept = { label: one.label, style: one.style, x, mean, std };
  if (!one.owners.length || one.owners.every((id) => state.visible.has(id))) return kept;
  const places = one.owners.map((id, i) => (state.visible.has(id) ? i : -1)).filter((i) => i >= 0);
  const pick = (values) => values && Float64Array.from(places, (i) => values[i]);
  return { ...kept, x: pick(x), mean: pick(mean), std: pick(std) };
}

/** The place of a value in rising numbers, or of one beside it. */
function nearest(values, wanted) {
  let low = 0, high = values.length - 1;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] < wanted) low = middle + 1;
    else high = middle;
  }
  return low;
}

class LinesView {
  constructor(root, block) {
    this.figure = new LineFigure();
    this.chooser = chooser("show", block.id, () => this.update());
    this.nothing = el("p", { class: "nothing" }, "No curves: the filter leaves none.");
    root.append(el("div", { class: "controls" }, this.chooser.node), this.figure.node, this.nothing, (this.key = el("ul", { class: "stacks" })));
  }

  set(block) { this.block = block; this.update(); }

  update() {
    const view = this.block.views[this.chooser.offer(this.block.views.map((one) => one.label))];
    const some = view.series.some((one) => state.shows(one.groups));
    this.figure.node.hidden = !some;
    this.nothing.hidden = some;
    const shown = view.series.filter((one) => state.shows(one.groups));
    // With many curves, the legend at the side and the tooltip name them.
    this.key.replaceChildren(...(shown.length <= MOST_BANDS ? shown.map((one) => el("li", {}, swatch(one.style), ` ${one.label}`)) : []));
    this.figure.set(this.block, view);
  }

  gone() { this.figure.gone(); }
}
