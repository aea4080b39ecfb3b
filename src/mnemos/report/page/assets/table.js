// ---- Tables: sorted by a click on a head, filtered with everything else --------------------------------------

class TableView {
  constructor(root, block) {
    this.key = block.id;
    this.head = el("tr");
    this.body = el("tbody");
    this.table = el("table", {}, el("caption", { class: "skip" }), el("thead", {}, this.head), this.body);
    this.chooser = chooser(block.choice || "choice", block.id, () => this.update());
    this.controls = el("div", { class: "controls" }, this.chooser.node);
    this.nothing = el("p", { class: "nothing" }, "No rows: the filter leaves none.");
    this.scroll = el("div", { class: "scroll", tabindex: "0", role: "region", onscroll: () => this.hint() }, this.table);
    this.more = el("p", { class: "more", hidden: true }, "→ more columns: scroll sideways");
    this.frame = el("div", { class: "frame" }, this.scroll);
    this.watch = new ResizeObserver(() => this.hint());
    this.watch.observe(this.scroll);
    this.watch.observe(this.table);
    root.append(this.controls, this.frame, this.more, this.nothing);
  }

  /** Says so, and shades the edge, where columns are out of sight: scroll bars may be invisible. */
  hint() {
    const { scrollLeft, scrollWidth, clientWidth } = this.scroll;
    const wide = scrollWidth > clientWidth + 1;
    this.more.hidden = !wide;
    this.frame.classList.toggle("before", wide && scrollLeft > 1);
    this.frame.classList.toggle("after", wide && scrollLeft < scrollWidth - clientWidth - 1);
  }

  gone() { this.watch.disconnect(); }

  set(block) {
    this.block = block;
    this.scroll.setAttribute("aria-label", block.title);
    this.table.caption.textContent = block.title;
    const labels = JSON.stringify(block.columns);
    if (labels !== this.labels) {
      this.labels = labels;
      this.head.replaceChildren(...block.columns.map((column, place) => el(
        "th", { scope: "col", class: column.kind === "text" ? "" : "number", title: column.help || null },
        el("button", { type: "button", onclick: () => this.sort(place) }, column.label),
      )));
    }
    this.update();
  }

  /** Numbers from the largest first, words from A; the other way round; and back to the first order. */
  sort(column) {
    const before = state.sorts.get(this.key);
    const first = this.block.columns[column].kind !== "text";
    if (!before || before.column !== column) state.sorts.set(this.key, { column, down: first });
    else if (before.down === first) state.sorts.set(this.key, { column, down: !first });
    else state.sorts.delete(this.key);
    this.update();
  }

  update() {
    const { block } = this;
    const choice = this.chooser.offer(block.choices);
    this.controls.hidden = this.chooser.node.hidden;
    const rows = block.rows.filter((row) => row.choice === choice && state.shows(row.groups));
    const sort = state.sorts.get(this.key);
    [...this.head.children].forEach((head, place) => {
      head.setAttribute("aria-sort", sort?.column === place ? (sort.down ? "descending" : "ascending") : "none");
    });
    if (sort && sort.column < block.columns.length) rows.sort((a, b) => compare(valueOf(a.cells[sort.column]), valueOf(b.cells[sort.column]), sort.down));
    const scales = block.columns.map((column, place) => (column.kind === "spread" ? range(rows, place) : null));
    this.body.replaceChildren(...rows.map((row) => el("tr", {}, ...row.cells.map((cell, place) => this.cell(cell, place, row, scales[place])))));
    this.nothing.hidden = rows.length > 0;
    this.scroll.hidden = rows.length === 0;
  }

  cell(cell, place, row, scale) {
    const column = this.block.columns[place];
    const text = typeof cell === "string" ? cell : cell.t;
    if (place === 0) {
      const mark = row.groups.length === 1 && column.label === "group" ? swatch(row.groups[0]) : null;
      return el("th", { scope: "row" }, el("div", {}, mark, el("span", {}, text)));
    }
    if (column.label === "status") return el("td", {}, el("span", { class: `state ${text}` }, text));
    const shown = el("span", { class: cell.best ? "best" : "", title: cell.best ? "best" : null }, text);
    if (cell.best) shown.append(el("span", { class: "skip" }, " (best)"));
    const node = el("td", { class: column.kind === "text" ? "words" : "number" }, shown);
    if (scale && cell.v !== null && cell.v !== undefined) {
      const part = (value) => `${(100 * Math.max(0, Math.min(1, (value - scale.low) / (scale.high - scale.low)))).toFixed(1)}%`;
      const spread = cell.spread ?? 0;
      const left = part(cell.v - spread), right = part(cell.v + spread);
      node.append(el("span", { class: "mini", "aria-hidden": "true" },
        el("i", { style: { left, width: `calc(${right} - ${left})` } }), el("b", { style: { left: part(cell.v) } })));
    }
    return node;
  }
}

function valueOf(cell) {
  return typeof cell === "string" ? cell : cell.v;
}

/** Numbers as numbers, words as a reader sorts them; what has no value comes last either way. */
function compare(a, b, down) {
  if (a === null || b === null) return (a === null) - (b === null);
  const order = typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b), "en", { numeric: true });
  return down ? -order : order;
}

/** The common scale of a column's bars. */
function range(rows, place) {
  const ends = rows.map((row) => row.cells[place]).filter((cell) => typeof cell.v === "number")
    .flatMap((cell) => [cell.v - (cell.spread ?? 0), cell.v + (cell.spread ?? 0)]);
  if (!ends.length) return null;
  const low = Math.min(...ends), high = Math.max(...ends), room = (high - low) * 0.06 || 0.01;
  return { low: low - room, high: high + room };
}
