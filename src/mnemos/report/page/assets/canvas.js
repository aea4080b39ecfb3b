// ---- Canvas: figures that draw themselves when they are seen, sharp on any screen ------------------------------

const FONT = '12px system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", sans-serif';
const figures = new Set();
let ratioForPrint = 0;

const seen = new IntersectionObserver(
  (entries) => entries.forEach((entry) => { entry.target.figure.near = entry.isIntersecting; entry.target.figure.maybe(); }),
  { rootMargin: "300px 0px" },
);
const sized = new ResizeObserver((entries) => entries.forEach((entry) => {
  const figure = entry.target.figure;
  const width = Math.round(entry.contentRect.width);
  if (width && width !== figure.width) { figure.width = width; figure.stale(); }
}));

/** A drawing with a layer for what is pointed at, a tooltip, and arrow keys that do what the mouse does. */
class Figure {
  constructor() {
    this.base = el("canvas", { role: "img" });
    this.over = el("canvas", { class: "over", "aria-hidden": "true" });
    this.tip = el("div", { class: "tip", role: "status", hidden: true });
    this.node = el("div", { class: "plot", tabindex: "0", role: "group", "aria-roledescription": "figure" }, this.base, this.over, this.tip);
    this.node.figure = this;
    this.near = false;
    this.dirty = true;
    this.width = 0;
    this.node.addEventListener("pointermove", (event) => {
      const box = this.node.getBoundingClientRect();
      this.point(event.clientX - box.left, event.clientY - box.top);
    });
    this.node.addEventListener("pointerleave", () => this.unpoint());
    this.node.addEventListener("blur", () => this.unpoint());
    this.node.addEventListener("keydown", (event) => {
      const step = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key];
      if (step) { event.preventDefault(); this.step(...step); } else if (event.key === "Escape") this.unpoint();
    });
    seen.observe(this.node);
    sized.observe(this.node);
    figures.add(this);
  }

  /** Height for a width, in pixels. */ height(_width) { return 320; }
  /** Draw everything with a context whose unit is a pixel. */ paint(_context, _width, _height) {}
  /** The pointer is here. */ point(_x, _y) {}
  /** An arrow key was pressed. */ step(_dx, _dy) {}

  stale() { this.dirty = true; this.maybe(); }
  maybe() { if (this.dirty && this.near && this.node.clientWidth) this.draw(); }

  draw() {
    this.dirty = false;
    this.width = this.node.clientWidth;
    this.high = Math.round(this.height(this.width));
    this.node.style.height = `${this.high}px`;
    this.unpoint();
    this.paint(this.layer(this.base), this.width, this.high);
    this.node.dataset.drawn = "true";
  }

  layer(canvas) {
    const ratio = ratioForPrint || Math.max(1, window.devicePixelRatio || 1);
    canvas.width = Math.round(this.width * ratio);
    canvas.height = Math.round(this.high * ratio);
    const context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = FONT;
    return context;
  }

  describe(title, text) {
    this.base.setAttribute("aria-label", `${title}. ${text}`);
    this.node.setAttribute("aria-label", `${title}; arrow keys read values`);
  }

  /** Show a tooltip beside a place. */
  say(x, y, ...children) {
    this.tip.replaceChildren(...children.filter(Boolean)); // the DOM writes null as a word
    this.tip.hidden = false;
    const { offsetWidth: width, offsetHeight: height } = this.tip;
    const left = x + 16 + width > this.width ? x - 16 - width : x + 16;
    this.tip.style.left = `${Math.max(0, Math.min(left, this.width - width))}px`;
    this.tip.style.top = `${Math.max(0, Math.min(y - height / 2, this.high - height))}px`;
  }

  unpoint() {
    if (!this.tip.hidden || this.pointed) {
      this.tip.hidden = true;
      this.pointed = null;
      this.over.getContext("2d").clearRect(0, 0, this.over.width, this.over.height);
    }
  }

  gone() { seen.unobserve(this.node); sized.unobserve(this.node); figures.delete(this); }
}

function redrawAll(everything = false) {
  colour.known = {};
  for (const figure of figures) {
    if (everything && figure.node.clientWidth) figure.draw(); // one that is hidden may have nothing to draw yet
    else figure.stale();
  }
}

// Paper is white and has more dots than a screen.
addEventListener("beforeprint", () => {
  ratioForPrint = 3;
  document.documentElement.dataset.screen = document.documentElement.dataset.theme ?? "";
  document.documentElement.dataset.theme = "light";
  redrawAll(true);
});
addEventListener("afterprint", () => {
  ratioForPrint = 0;
  const before = document.documentElement.dataset.screen;
  if (before) document.documentElement.dataset.theme = before;
  else delete document.documentElement.dataset.theme;
  redrawAll();
});

/** Round numbers between two ends. */
function ticks(low, high, about) {
  const rough = (high - low) / Math.max(1, about);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((factor) => factor * power).find((one) => one >= rough * 0.999);
  const found = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) found.push(Number((i * step).toPrecision(12)));
  return found;
}

/** Powers of ten between two ends, with 2 and 5 times them if these are few. */
function logTicks(low, high) {
  const found = [];
  const factors = Math.log10(high / low) > 4 ? [1] : Math.log10(high / low) > 1.5 ? [1, 3] : [1, 2, 5];
  for (let power = Math.floor(Math.log10(low)); power <= Math.ceil(Math.log10(high)); power++) {
    for (const factor of factors) {
      const value = Number((factor * 10 ** power).toPrecision(6));
      if (value >= low * 0.999 && value <= high * 1.001) found.push(value);
    }
  }
  return found;
}

const ruler = document.createElement("canvas").getContext("2d");

/** The width of words, in pixels. */
function wide(text) {
  ruler.font = FONT;
  return Math.ceil(ruler.measureText(text).width);
}

/** Words cut to fit. */
function cut(context, text, width) {
  if (context.measureText(text).width <= width) return text;
  let low = 0, high = text.length;
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(text.slice(0, middle) + "…").width <= width) low = middle;
    else high = middle - 1;
  }
  return text.slice(0, low) + "…";
}

/** A path of one of the four markers around a place. */
function marker(context, kind, x, y, r) {
  context.beginPath();
  if (kind === 0) context.arc(x, y, r, 0, 7);
  else if (kind === 1) context.rect(x - r * 0.9, y - r * 0.9, r * 1.8, r * 1.8);
  else if (kind === 2) { context.moveTo(x, y - r * 1.2); context.lineTo(x + r * 1.1, y + r * 0.8); context.lineTo(x - r * 1.1, y + r * 0.8); context.closePath(); }
  else { context.moveTo(x, y - r * 1.3); context.lineTo(x + r * 1.3, y); context.lineTo(x, y + r * 1.3); context.lineTo(x - r * 1.3, y); context.closePath(); }
  context.fill();
}
