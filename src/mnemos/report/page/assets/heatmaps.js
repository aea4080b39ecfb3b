// ---- Heat-maps: matrices as colours, with a slider over their frames ----------------------------------------------

const APART = 0.35; // of a cell, between the matrix and the means beneath and beside it

class MapFigure extends Figure {
  constructor(map) { super(); this.map = map; }

  /** What is drawn: a matrix, and perhaps a row beneath and a column beside. */
  set(block, item, frame) {
    const { map } = this;
    this.rows = frame.rows; this.columns = frame.columns; this.frame = frame;
    this.cells = map.shows === "lost" ? frame.values.map((row) => row.map((value, k) => frame.before[k] - value)) : frame.values;
    this.own = frame.before && !frame.owners.length ? (i, k) => this.rows[i] === this.columns[k] : () => false;
    this.beneath = this.beside = null;
    if (map.shows === "lost") {
      // Means over other clients: a client's own data doesn't count.
      this.beneath = this.columns.map((_, k) => average(this.cells.map((row, i) => (this.own(i, k) ? NaN : row[k]))));
      this.beside = this.cells.map((row, i) => average(row.map((value, k) => (this.own(i, k) ? NaN : value))));
      this.corner = average(this.beneath);
    } else if (frame.before) this.beneath = frame.before;
    this.byGroup = frame.owners.length > 0;
    const mean = this.corner !== undefined && map.shows === "lost" ? ` Mean ${say(this.corner)}.` : "";
    this.describe(`${block.title}: ${map.title}, ${item.label}, ${block.frame} ${frame.label}`, `${this.rows.length} rows and ${this.columns.length} columns.${mean}`);
    this.stale();
  }

  layout(width) {
    // Cells of two maps side by side are of the same size, with a column beside them or without.
    const across = this.columns.length + (this.frame.before ? 1 + APART : 0);
    const down = this.rows.length + (this.beneath ? 1 + APART : 0);
    const widest = Math.max(0, ...this.rows.map((name) => wide(String(name))));
    const names = this.byGroup ? Math.min(width * 0.4, 16 + widest) : Math.max(62, Math.min(width * 0.4, 28 + widest));
    const w = Math.min(this.byGroup ? 90 : 46, (width - names - 8) / across);
    const h = this.byGroup ? Math.max(12, Math.min(28, 1400 / this.rows.length)) : Math.min(46, w);
    return { left: names, top: 6, w, h, across, down, bottom: 6 + h * down };
  }

  height(width) { return this.layout(width).bottom + 106; }

  shade(value) {
    if (!Number.isFinite(value)) return colour("--soft");
    if (this.map.shows !== "value") return mix(["--gain", "--gain2", "--middle", "--lost2", "--lost"].map(colour), (value / this.map.most + 1) / 2);
    return mix(["--low", "--ramp1", "--ramp2", "--ramp3", "--high"].map(colour), value / this.map.most);
  }

  paint(context, width) {
    const at = (this.at = this.layout(width));
    const gap = at.w >= 14 && at.h >= 12 ? 1 : 0;
    const numbered = at.w >= 27 && at.h >= 15;
    context.textBaseline = "middle";
    for (const [i, k, value] of this.everything()) {
      const [x, y] = this.topLeft(i, k);
      context.fillStyle = this.shade(value);
      context.fillRect(x, y, at.w - gap, at.h - gap);
      if (numbered && Number.isFinite(value)) {
        const [r, g, b] = context.fillStyle.startsWith("#") ? rgb(context.fillStyle) : [0, 0, 0];
        context.fillStyle = 0.299 * r + 0.587 * g + 0.114 * b > 140 ? "#14181c" : "#ffffff";
        context.textAlign = "center";
        context.font = FONT.replace("12px", at.w < 34 ? "10px" : "11.5px");
        context.fillText(tiny(value), x + (at.w - gap) / 2, y + (at.h - gap) / 2 + 0.5);
      }
    }
    context.font = FONT;
    context.strokeStyle = colour("--text");
    context.lineWidth = gap ? 1.4 : 0.7;
    for (let i = 0; i < this.rows.length; i++) for (let k = 0; k < this.columns.length; k++) {
      if (this.own(i, k)) { const [x, y] = this.topLeft(i, k); context.strokeRect(x + 0.5, y + 0.5, at.w - gap - 1, at.h - gap - 1); }
    }
    context.lineWidth = 1;
    this.names(context, at);
    this.scale(context, width, at);
  }

  /** All cells: row, column, value; the row beneath and the column beside come last. */
  *everything() {
    for (let i = 0; i < this.rows.length; i++) {
      for (let k = 0; k < this.columns.length; k++) yield [i, k, this.cells[i][k]];
      if (this.beside) yield [i, this.columns.length, this.beside[i]];
    }
    if (this.beneath) {
      for (let k = 0; k < this.columns.length; k++) yield [this.rows.length, k, this.beneath[k]];
      if (this.beside) yield [this.rows.length, this.columns.length, this.corner];
    }
  }

  topLeft(i, k) {
    const { left, top, w, h } = this.at;
    return [left + (k + (k === this.columns.length ? APART : 0)) * w, top + (i + (i === this.rows.length ? APART : 0)) * h];
  }

  names(context, at) {
    context.fillStyle = colour("--dim");
    context.textAlign = "right";
    const every = Math.ceil(11 / at.h);
    this.rows.forEach((name, i) => i % every || context.fillText(cut(context, String(name), at.left - 26 + (this.byGroup ? 18 : 0)), at.left - 6, this.topLeft(i, 0)[1] + at.h / 2));
    if (this.beneath) context.fillText(this.map.shows === "lost" ? "Fₖ" : "before", at.left - 6, this.topLeft(this.rows.length, 0)[1] + at.h / 2);
    context.textAlign = "center";
    const step = Math.ceil((Math.max(...this.columns.map((name) => String(name).length)) * 7 + 6) / at.w);
    this.columns.forEach((name, k) => k % step || context.fillText(String(name), this.topLeft(0, k)[0] + at.w / 2, at.bottom + 10));
    if (this.beside) context.fillText("mean", this.topLeft(0, this.columns.length)[0] + at.w / 2, at.bottom + 10);
    context.fillText(this.map.columns, at.left + (this.columns.length * at.w) / 2, at.bottom + 28);
    if (!this.byGroup) {
      // Beside the rows; a label that is longer than they are begins at the top and goes on below them.
      const middle = Math.max(at.top + (this.rows.length * at.h) / 2, wide(this.map.rows) / 2 + 2);
      context.save(); context.translate(10, middle); context.rotate(-Math.PI / 2);
      context.fillText(cut(context, this.map.rows, this.high - 4), 0, 0); context.restore();
    }
  }

  /** What the colours mean. */
  scale(context, width, at) {
    const long = Math.min(220, width - at.left - 20), y = at.bottom + 60, { most } = this.map;
    const low = this.map.shows === "value" ? 0 : -most;
    for (let x = 0; x < long; x++) { context.fillStyle = this.shade(low + (x / (long - 1)) * (most - low)); context.fillRect(at.left + x, y, 1.5, 9); }
    context.fillStyle = colour("--dim");
    [0, 0.5, 1].forEach((share, i) => {
      context.textAlign = ["left", "center", "right"][i];
      context.fillText(tiny(low + share * (most - low)), at.left + share * long, y + 19);
    });
    context.textAlign = "left";
    context.fillText(this.map.scale, at.left, y - 9);
  }

  point(x, y) {
    if (!this.at || this.dirty) return;
    const { left, top, w, h } = this.at;
    const find = (share, count, more) => (share < count ? Math.floor(share) : more && share >= count + APART && share < count + 1 + APART ? count : -1);
    const k = find((x - left) / w, this.columns.length, this.beside), i = find((y - top) / h, this.rows.length, this.beneath);
    if (x < left || y < top || i < 0 || k < 0) this.unpoint();
    else this.show(i, k);
  }

  step(dx, dy) {
    if (!this.at) return;
    const now = this.pointed ?? { i: 0, k: 0 };
    const clamp = (value, most) => Math.max(0, Math.min(most, value));
    this.show(clamp(now.i + (this.pointed ? dy : 0), this.rows.length - (this.beneath ? 0 : 1)), clamp(now.k + (this.pointed ? dx : 0), this.columns.length - (this.beside ? 0 : 1)));
  }

  show(i, k) {
    const [x, y] = this.topLeft(i, k), { w, h } = this.at;
    this.pointed = { i, k };
    const context = this.layer(this.over);
    context.strokeStyle = colour("--accent");
    context.lineWidth = 2;
    context.strokeRect(x - 0.5, y - 0.5, w, h);
    this.say(x + w, y + h / 2, ...this.words(i, k).map((line, place) => el(place ? "div" : "strong", {}, line)));
  }

  words(i, k) {
    const { map, frame } = this, row = this.rows[i], column = this.columns[k];
    const lost = map.shows === "lost";
    if (i === this.rows.length && k === this.columns.length) return [`mean of all: ${say(this.corner)}`];
    if (i === this.rows.length) return [`${map.columns} ${column}`, lost ? `Fₖ, mean of the others' models: ${say(this.beneath[k])}` : `before training: ${say(this.beneath[k], "percent")}`];
    if (k === this.columns.length) return [`${map.rows} ${row}`, `mean over the others' data: ${say(this.beside[i])}`];
    const value = lost ? `F = ${say(this.cells[i][k])}` : say(this.cells[i][k], map.shows === "value" ? "percent" : undefined);
    const more = frame.before ? [`before ${say(frame.before[k], "percent")}, after ${say(frame.values[i][k], "percent")}`] : [value];
    return [this.byGroup ? String(row) : `${map.rows.replace(/ [ik]$/, "")} ${row}`, `${map.columns.replace(/ [ik]$/, "")} ${column}`, ...(lost ? [value] : []), ...more];
  }
}

function average(values) {
  const known = values.filter(Number.isFinite);
  return known.length ? known.reduce((sum, value) => sum + value, 0) / known.length : NaN;
}

/** A frame of an item, cut out of the item's row of numbers; only what is visible of it. */
function frameOf(item, place) {
  const data = unpack(item.data);
  let at = 0;
  for (let i = 0; i < place; i++) at += size(item, item.frames[i]);
  const { label, rows, columns: other, owners } = item.frames[place], columns = other ?? rows;
  const before = item.before ? data.slice(at, (at += columns.length)) : null;
  const number = item.signed ? (value) => 2 * value - 1 : (value) => value; // see encode.py
  const values = rows.map((_, i) => Array.from(data.subarray(at + i * columns.length, at + (i + 1) * columns.length), number));
  const kept = rows.map((_, i) => i).filter((i) => !owners.length || state.visible.has(owners[i]));
  return { label, columns, before: before && Array.from(before), rows: kept.map((i) => rows[i]), values: kept.map((i) => values[i]), owners: kept.map((i) => owners[i]).filter((id) => id !== undefined) };
}

function size(item, frame) {
  const columns = (frame.columns ?? frame.rows).length;
  return frame.rows.length * columns + (item.before ? columns : 0);
}

class HeatmapsView {
  constructor(root, block) {
    this.key = block.id;
    this.chooser = chooser(block.choice, block.id, () => this.update());
    this.slider = el("input", { type: "range", min: "0", step: "1", "aria-label": block.frame, oninput: () => {
      const last = this.slider.value === this.slider.max;
      state.frames.set(this.key, last ? "last" : this.item.frames[Number(this.slider.value)].label);
      this.draw();
    } });
    this.output = el("output");
    this.sliding = el("label", {}, block.frame, this.slider, this.output);
    this.figures = block.maps.map((map) => new MapFigure(map));
    this.plots = el("div", { class: block.maps.length > 1 ? "plots" : "plots one" },
      ...this.figures.map((figure) => el("figure", {}, block.maps.length > 1 ? el("figcaption", {}, figure.map.title) : null, figure.node)));
    this.nothing = el("p", { class: "nothing" }, "No heat-maps: the filter leaves none.");
    root.append(el("div", { class: "controls" }, this.chooser.node, this.sliding), this.plots, this.nothing);
  }

  set(block) {
    this.block = block;
    this.figures.forEach((figure, place) => { figure.map = block.maps[place]; });
    this.update();
  }

  update() {
    const items = this.block.items.filter((item) => state.shows(item.groups) && state.shows(item.frames[0].owners));
    this.nothing.hidden = items.length > 0;
    this.plots.hidden = this.sliding.hidden = items.length === 0;
    const place = this.chooser.offer(items.map((item) => item.label));
    if (!items.length) return;
    this.item = items[place];
    this.slider.max = String(this.item.frames.length - 1);
    this.sliding.hidden = this.item.frames.length < 2;
    this.draw();
  }

  draw() {
    const { frames } = this.item, wanted = state.frames.get(this.key) ?? "last";
    // The same frame in another run, or the last round before it.
    let place = wanted === "last" ? frames.length - 1 : frames.findIndex((frame) => frame.label === wanted);
    if (place < 0) place = frames.findLastIndex((frame) => Number(frame.label) <= Number(wanted));
    place = Math.max(0, place);
    this.slider.value = String(place);
    this.slider.setAttribute("aria-valuetext", `${this.block.frame} ${frames[place].label}`);
    this.output.textContent = `${frames[place].label} (${place + 1} of ${frames.length})`;
    const frame = frameOf(this.item, place);
    for (const figure of this.figures) figure.set(this.block, this.item, frame);
  }

  gone() { this.figures.forEach((figure) => figure.gone()); }
}
