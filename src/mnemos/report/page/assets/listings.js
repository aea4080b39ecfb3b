// ---- Listings to copy, and sentences --------------------------------------------------------------------------------

class ListingsView {
  constructor(root, block) {
    this.chooser = chooser(block.choice, block.id, () => this.update());
    this.body = el("div", { class: "listing" });
    this.nothing = el("p", { class: "nothing" }, "Nothing here: the filter leaves no group.");
    root.append(el("div", { class: "controls" }, this.chooser.node), this.body, this.nothing);
  }

  set(block) { this.block = block; this.update(); }

  update() {
    const items = this.block.items.filter((item) => state.shows(item.groups));
    const place = this.chooser.offer(items.map((item) => item.label));
    this.nothing.hidden = items.length > 0;
    this.body.hidden = items.length === 0;
    if (!items.length || this.shown === items[place]) return;
    this.shown = items[place];
    const [first, ...rest] = this.shown.parts.map(([title, text]) => listing(title, text));
    const facts = el("dl", {}, ...this.shown.facts.flatMap(([name, value]) => [el("dt", {}, name), el("dd", {}, value)]));
    this.body.replaceChildren(first, el("div", {}, ...rest, facts));
  }
}

function listing(title, text) {
  const button = el("button", { type: "button", "aria-label": `Copy ${title}`, onclick: async () => {
    button.textContent = (await copy(text)) ? "Copied" : "Not copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1600);
  } }, "Copy");
  return el("figure", {}, el("figcaption", {}, title, button), el("pre", { tabindex: "0" }, text));
}

/** To the clipboard; the old way where a page from disk may not use the new one. */
async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const area = el("textarea", { class: "skip", readonly: true });
    area.value = text;
    document.body.append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    return done;
  }
}

class TextView {
  constructor(root) { root.append((this.body = el("div"))); }
  set(block) { this.body.replaceChildren(...block.sentences.map((sentence) => el("p", {}, sentence))); }
  update() {}
}
