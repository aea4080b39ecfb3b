// ---- Strips: a row each, cut into stretches of one kind ----------------------------------------------------------

/** Distinct for up to ten, a walk along viridis beyond: stretches can't be hatched. */
function stripColour(place, count) {
  return count <= DISTINCT ? colour(`--s${place}`) : mix(WALK, place / (count - 1));
}

class StripFigure extends Figure {
  height() { return 46 + this.row() * this.view.strips.length; }

  row() { return Math.max(5, Math.min(18, 620 / this.view.strips.length)); }

  set(block, view) {
    this.block = block;
    this.view = view;
    this.most = Math.max(1, ...view.strips.map((strip) => strip.ends[strip.ends.length - 1] ?? 0));
    this.describe(`${block.title}: ${view.label}`, `${view.strips.length} rows, ${view.kinds.length} kinds, ${block.x} 1 to ${this.most}.`);
    this.stale();
  }

  paint(context, width, height) {
    const { strips, kinds } = this.view, h = this.row(), gap = h > 7 ? 1 : 0;
    context.textBaseline = "middle";
    const names = Math.max(...strips.map((strip) => context.measureText(strip.name).width)) + 30;
    const box = (this.box = { left: names, right: width - 16, top: 6, bottom: 6 + h * strips.length });
    const across = (this.across = (box.right - box.left) / this.most);
    strips.forEach((strip, i) => strip.ends.forEach((end, piece) => {
      const start = piece ? strip.ends[piece - 1] : 0;
      context.fillStyle = stripColour(strip.kinds[piece], kinds.length);
      context.fillRect(box.left + start * across, box.top + i * h, (end - start) * across, h - gap);
    }));
    context.fillStyle = colour("--dim");
    context.textAlign = "right";
    const every = Math.ceil(11 / h);
    strips.forEach((strip, i) => i % every || context.fillText(strip.name, box.left - 6, box.top + (i + 0.5) * h));
    context.textAlign = "center";
    const marks = ticks(1, this.most, Math.min(8, width / 110)).filter((mark) => mark >= 1 && Number.isInteger(mark));
    for (const mark of marks) context.fillText(say(mark), box.left + (mark - 0.5) * across, box.bottom + 11);
    context.fillText(this.block.x, (box.left + box.right) / 2, height - 8);
    context.save(); context.translate(10, (box.top + box.bottom) / 2); context.rotate(-Math.PI / 2); context.fillText(this.block.y, 0, 0); context.restore();
  }

  point(x, y) {
    if (!this.box || this.dirty) return;
    const { left, top } = this.box, i = Math.floor((y - top) / this.row()), at = (x - left) / this.across;
    const piece = this.view.strips[i]?.ends.findIndex((end) => at < end) ?? -1;
    if (at < 0 || piece < 0) this.unpoint();
    else this.show(i, piece);
  }

  step(dx, dy) {
    if (!this.box) return;
    const { strips } = this.view, now = this.pointed ?? { i: 0, piece: 0 };
    const clamp = (value, most) => Math.max(0, Math.min(most, value));
    const i = clamp(now.i + (this.pointed ? dy : 0), strips.length - 1);
    this.show(i, clamp(now.piece + (this.pointed ? dx : 0), strips[i].ends.length - 1));
  }

  show(i, piece) {
    this.pointed = { i, piece };
    const strip = this.view.strips[i], start = piece ? strip.ends[piece - 1] : 0, end = strip.ends[piece];
    const { left, top } = this.box, h = this.row(), x = left + start * this.across, y = top + i * h;
    const context = this.layer(this.over);
    context.strokeStyle = colour("--accent");
    context.lineWidth = 2;
    context.strokeRect(x, y - 0.5, (end - start) * this.across, h);
    this.say(x + (end - start) * this.across, y + h / 2, el("strong", {}, `${this.block.y} ${strip.name}`),
      el("div", {}, this.view.kinds[strip.kinds[piece]]),
      el("div", {}, start + 1 === end ? `${this.block.x} ${end}` : `${this.block.x}s ${start + 1} to ${end}`));
  }
}

class StripsView {
  constructor(root, block) {
    this.figure = new StripFigure();
    this.chooser = chooser("show", block.id, () => this.update());
    this.about = el("p", { class: "about" });
    this.key = el("ul", { class: "stacks" });
    this.nothing = el("p", { class: "nothing" }, "Nothing to show: the filter leaves none.");
    root.append(el("div", { class: "controls" }, this.chooser.node), this.about, this.figure.node, this.nothing, this.key);
  }

  set(block) { this.block = block; this.update(); }

  update() {
    const views = this.block.views.filter((view) => state.shows(view.groups));
    this.nothing.hidden = views.length > 0;
    for (const node of [this.figure.node, this.about, this.key]) node.hidden = views.length === 0;
    if (!views.length) return;
    const view = views[this.chooser.offer(views.map((one) => one.label))], { kinds } = view;
    this.about.textContent = [views.length < 2 ? view.label : "", view.note].filter(Boolean).join(" · ");
    this.key.replaceChildren(...(kinds.length > DISTINCT
      ? [el("li", {}, kinds[0], el("i", { class: "walk", style: { background: `linear-gradient(to right, ${WALK.join(", ")})` } }), kinds[kinds.length - 1])]
      : kinds.map((kind, i) => el("li", {}, el("i", { style: { "background-color": `var(--s${i})` } }), kind))));
    this.figure.set(this.block, view);
  }

  gone() { this.figure.gone(); }
}
