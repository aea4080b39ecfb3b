// ---- Bars: stacked; upright for clients, lying for groups, whose names are long --------------------------------

const DISTINCT = 10; // colours of stacks; up to twice as many are hatched
const WALK = ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"];

/** The colour of a stack: distinct for up to twenty, a walk along viridis beyond. */
function stackColour(place, count) {
  if (count <= 2 * DISTINCT) return colour(`--s${place % DISTINCT}`);
  return mix(WALK, place / (count - 1));
}

/** A colour between others, evenly spaced from 0 to 1. */
function mix(colours, share) {
  const place = Math.max(0, Math.min(1, share)) * (colours.length - 1);
  const low = Math.min(colours.length - 2, Math.floor(place)), part = place - low;
  const [a, b] = [rgb(colours[low]), rgb(colours[low + 1])];
  return `rgb(${a.map((value, i) => Math.round(value + (b[i] - value) * part)).join(" ")})`;
}

function rgb(text) {
  return (rgb.known[text] ??= [1, 3, 5].map((at) => parseInt(text.slice(at, at + 2), 16)));
}
rgb.known = {};

class BarFigure extends Figure {
  height(width) { return this.lying ? 46 + 26 * this.bars.length : Math.max(230, Math.min(340, width * 0.36)); }

  set(block, view) {
    this.block = block;
    this.view = view;
    this.lying = view.owners.length > 0;
    const stacks = view.stacks.map((one) => unpack(one.values));
    this.bars = view.categories.map((name, i) => ({ name, values: stacks.map((values) => values[i]), owner: view.owners[i] }))
      .filter((bar) => bar.owner === undefined || state.visible.has(bar.owner));
    this.most = Math.max(1e-9, ...this.bars.map((bar) => total(bar)));
    this.describe(`${block.title}: ${view.label}`, `${this.bars.length} bars: ${this.bars.slice(0, 10).map((bar) => `${bar.name}: ${say(total(bar), view.unit)}`).join("; ")}`);
    this.stale();
  }

  paint(context, width, height) {
    if (!this.bars.length) return;
    const marks = ticks(0, this.most, this.lying ? Math.min(6, width / 130) : 5);
    const names = marks.map((mark) => say(mark, this.view.unit));
    context.textBaseline = "middle";
    const room = this.lying
      ? Math.min(width * 0.38, Math.max(...this.bars.map((bar) => context.measureText(bar.name).width))) + 12
      : Math.max(...names.map((name) => context.measureText(name).width)) + 26;
    const box = (this.box = { left: room, right: width - 16, top: 8, bottom: height - 36 });
    const along = this.lying ? box.right - box.left : box.bottom - box.top;
    const scale = along / Math.max(this.most, marks[marks.length - 1]);
    const across = (this.lying ? box.bottom - box.top : box.right - box.left) / this.bars.length;
    this.across = across;
    marks.forEach((mark, i) => {
      context.strokeStyle = colour("--grid");
      context.fillStyle = colour("--dim");
      context.beginPath();
      if (this.lying) {
        const x = Math.round(box.left + mark * scale) + 0.5;
        context.moveTo(x, box.top); context.lineTo(x, box.bottom);
        context.textAlign = i === marks.length - 1 && x > width - 40 ? "right" : "center";
        context.fillText(names[i], Math.min(x, width - 4), box.bottom + 12);
      } else {
        const y = Math.round(box.bottom - mark * scale) + 0.5;
        context.moveTo(box.left, y); context.lineTo(box.right, y);
        context.textAlign = "right";
        context.fillText(names[i], box.left - 8, y);
      }
      context.stroke();
    });
    const thick = Math.max(1, Math.min(across * 0.84, across - 1, 34));
    this.bars.forEach((bar, i) => {
      let ground = 0;
      bar.values.forEach((value, stack) => {
        if (!(value > 0)) return;
        const middle = (this.lying ? box.top : box.left) + (i + 0.5) * across - thick / 2;
        const rect = this.lying ? [box.left + ground * scale, middle, value * scale, thick] : [middle, box.bottom - (ground + value) * scale, thick, value * scale];
        context.fillStyle = stackColour(stack, bar.values.length);
        context.fillRect(...rect);
        if (bar.values.length <= 2 * DISTINCT && stack >= DISTINCT) hatch(context, rect);
        if (thick > 6) { context.strokeStyle = colour("--card"); context.lineWidth = 0.6; context.strokeRect(...rect); context.lineWidth = 1; }
        ground += value;
      });
    });
    context.fillStyle = colour("--dim");
    if (this.lying) {
      context.textAlign = "right";
      this.bars.forEach((bar, i) => context.fillText(cut(context, bar.name, room - 12), box.left - 8, box.top + (i + 0.5) * across));
      context.textAlign = "center";
      context.fillText(this.view.y, (box.left + box.right) / 2, height - 8);
    } else {
      context.textAlign = "center";
      const step = Math.ceil(30 / across);
      this.bars.forEach((bar, i) => i % step || context.fillText(bar.name, box.left + (i + 0.5) * across, box.bottom + 11));
      context.fillText(this.block.x, (box.left + box.right) / 2, height - 8);
      context.save(); context.translate(10, (box.top + box.bottom) / 2); context.rotate(-Math.PI / 2); context.fillText(this.view.y, 0, 0); context.restore();
    }
  }

  point(x, y) {
    if (!this.box || !this.bars.length || this.dirty) return;
    const place = Math.floor((this.lying ? y - this.box.top : x - this.box.left) / this.across);
    if (place >= 0 && place < this.bars.length) this.show(place);
    else this.unpoint();
  }

  step(dx, dy) {
    if (!this.box || !this.bars.length) return;
    const move = this.lying ? dy : dx;
    this.show(Math.max(0, Math.min(this.bars.length - 1, (this.pointed?.place ?? (move < 0 ? this.bars.length : -1)) + move)));
  }

  show(place) {
    this.pointed = { place };
    const bar = this.bars[place], { left, right, top, bottom } = this.box;
    const context = this.layer(this.over);
    context.globalAlpha = 0.12;
    context.fillStyle = colour("--text");
    if (this.lying) context.fillRect(left, top + place * this.across, right - left, this.across);
    else context.fillRect(left + place * this.across, top, this.across, bottom - top);
    const held = bar.values.map((value, i) => [value, this.view.stacks[i].label]).filter(([value]) => value > 0).sort((a, b) => b[0] - a[0]);
    const x = this.lying ? (left + right) / 2 : left + (place + 0.5) * this.across;
    const y = this.lying ? top + (place + 0.5) * this.across : (top + bottom) / 2;
    this.say(x, y, el("strong", {}, `${this.block.x} ${bar.name}: ${say(total(bar), this.view.unit)}`),
      ...(this.view.stacks.length > 1 ? held.slice(0, MOST_NAMED).map(([value, label]) => el("div", {}, `${label}: ${say(value, this.view.unit)}`)) : []),
      held.length > MOST_NAMED ? el("div", {}, `and ${held.length - MOST_NAMED} more`) : null);
  }
}

function total(bar) {
  return bar.values.reduce((sum, value) => sum + (value > 0 ? value : 0), 0);
}

function hatch(context, [x, y, width, height]) {
  context.save();
  context.beginPath(); context.rect(x, y, width, height); context.clip();
  context.strokeStyle = colour("--card");
  context.beginPath();
  for (let at = x - height; at < x + width; at += 4) { context.moveTo(at, y + height); context.lineTo(at + height, y); }
  context.stroke();
  context.restore();
}

class BarsView {
  constructor(root, block) {
    this.figure = new BarFigure();
    this.chooser = chooser("show", block.id, () => this.update());
    this.about = el("p", { class: "about" });
    this.key = el("ul", { class: "stacks" });
    this.nothing = el("p", { class: "nothing" }, "No bars: the filter leaves none.");
    root.append(el("div", { class: "controls" }, this.chooser.node), this.about, this.figure.node, this.nothing, this.key);
  }

  set(block) { this.block = block; this.update(); }

  update() {
    const views = this.block.views.filter((view) => state.shows(view.groups) && state.shows(view.owners));
    this.nothing.hidden = views.length > 0;
    for (const node of [this.figure.node, this.about, this.key]) node.hidden = views.length === 0;
    if (!views.length) return;
    const view = views[this.chooser.offer(views.map((one) => one.label))];
    this.about.textContent = [views.length < 2 && this.block.views.length > 1 ? view.label : "", view.note].filter(Boolean).join(" · ");
    this.legend(view.stacks.map((one) => one.label));
    this.figure.set(this.block, view);
  }

  legend(labels) {
    const count = labels.length;
    this.key.hidden = count < 2;
    if (count > 2 * DISTINCT) {
      this.key.replaceChildren(el("li", {}, labels[0], el("i", { class: "walk", style: { background: `linear-gradient(to right, ${WALK.join(", ")})` } }), labels[count - 1]));
    } else {
      this.key.replaceChildren(...labels.map((label, i) => el("li", {}, el("i", { class: i >= DISTINCT ? "hatched" : "", style: { "background-color": `var(--s${i % DISTINCT})` } }), label)));
    }
  }

  gone() { this.figure.gone(); }
}
