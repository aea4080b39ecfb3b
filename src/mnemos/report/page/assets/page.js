// ---- The page: panels, filter, legend, theme, and new data of a live one -------------------------------------------

const VIEWS = { table: TableView, lines: LinesView, bars: BarsView, strips: StripsView, heatmaps: HeatmapsView, listings: ListingsView, text: TextView };
const find = (id) => document.getElementById(id);
let views = []; // { view, text, note } of every block
let shape = ""; // which panels and blocks there are
let reading = document.documentElement.dataset.live === "true"; // a live page has no data yet

function show(data) {
  state.data = data;
  state.refresh();
  document.title = data.title;
  find("title").textContent = data.title;
  facts(data);
  filters(data);
  const blocks = data.panels.flatMap((panel) => panel.blocks);
  const now = String(reading) + JSON.stringify(data.panels.map((panel) => [panel.id, panel.blocks.map((block) => [block.id, block.kind, block.maps?.length])]));
  if (now !== shape) {
    shape = now;
    build(data);
  }
  views.forEach(({ view, text, note }, place) => {
    const block = blocks[place];
    text.textContent = block.text;
    note.textContent = block.note;
    note.hidden = !block.note;
    view.set(block);
  });
  legend();
}

/** The sections of the page, empty. */
function build(data) {
  views.forEach(({ view }) => view.gone?.());
  views = [];
  const sections = data.panels.map((panel) => el(
    "section", { class: "panel", id: `panel-${panel.id}`, "aria-labelledby": `title-${panel.id}` },
    el("h2", { id: `title-${panel.id}` }, panel.title),
    ...panel.blocks.map((block) => {
      const text = el("p", { class: "about" }), note = el("p", { class: "note" });
      const root = el("section", { class: "block", id: `block-${block.id}`, "aria-label": block.title }, el("h3", {}, block.title), text);
      views.push({ view: new VIEWS[block.kind](root, block), text, note });
      root.append(note);
      return root;
    }),
  ));
  const none = document.documentElement.dataset.live === "true" ? "No runs yet; they will show here by themselves." : "There are no runs.";
  const empty = el("p", { class: "nothing" }, reading ? "The runs are being read." : none);
  find("main").replaceChildren(...(sections.length ? sections : [empty]));
  find("contents").replaceChildren(el("ul", {}, ...data.panels.map((panel) => el("li", {}, el("a", { href: `#panel-${panel.id}` }, panel.title)))));
  spy.disconnect();
  sections.forEach((section) => spy.observe(section));
}

/** Marks in the contents what is being read. */
const spy = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    const link = find("contents").querySelector(`a[href="#${entry.target.id}"]`);
    if (entry.isIntersecting) link?.setAttribute("aria-current", "true");
    else link?.removeAttribute("aria-current");
  }
}, { rootMargin: "-15% 0px -60% 0px" });

function facts(data) {
  const runs = data.groups.flatMap((group) => group.runs);
  const counts = new Map();
  for (const run of runs) counts.set(run.status, (counts.get(run.status) ?? 0) + 1);
  const many = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
  find("facts").replaceChildren(
    reading ? "reading the runs …" : `${many(runs.length, "run")} in ${many(data.groups.length, "group")}`,
    ...[...counts].flatMap(([status, count]) => [" · ", el("span", { class: `state ${status}` }, counts.size > 1 ? `${count} ${status}` : status)]),
  );
  find("foot").replaceChildren(
    ...(data.notes.length ? [el("ul", { class: "notes" }, ...data.notes.map((note) => el("li", {}, note)))] : []),
    el("p", {}, `Made by Mnemos ${data.version}, ${data.made}.`),
  );
}

function filters(data) {
  const now = JSON.stringify(data.fields);
  if (filters.shape === now) return;
  filters.shape = now;
  find("fields").replaceChildren(...data.fields.flatMap((field, place) => {
    const values = [...new Set(field.values)].sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
    const select = el("select", { id: `field-${place}`, "data-field": field.name, onchange: () => {
      if (select.selectedIndex > 0) state.fields.set(field.name, select.value);
      else state.fields.delete(field.name);
      update();
    } }, el("option", { value: "" }, "all"), ...values.map((value) => el("option", { value }, value)));
    if (values.includes(state.fields.get(field.name))) select.value = state.fields.get(field.name);
    else state.fields.delete(field.name);
    return [el("label", { for: `field-${place}` }, field.name), select];
  }));
  state.refresh();
}

function legend() {
  const { groups } = state.data;
  const now = JSON.stringify(groups.map((group) => group.label));
  if (legend.shape !== now) {
    legend.shape = now;
    find("legend").replaceChildren(...groups.map((group) => {
      const box = el("input", { type: "checkbox", onchange: () => {
        if (box.checked) state.hidden.delete(group.label);
        else state.hidden.add(group.label);
        update();
      } });
      const name = el("span", { class: "name" }, group.label);
      return el("li", { title: "double click: this one alone", ondblclick: () => {
        state.hidden = new Set(state.data.groups.map((other) => other.label).filter((label) => label !== group.label));
        update();
      } }, el("label", {}, box, swatch(group.id), name));
    }));
  }
  [...find("legend").children].forEach((row, place) => {
    const group = groups[place], on = !state.hidden.has(group.label);
    row.hidden = !state.matching.has(group.id);
    row.querySelector("input").checked = on;
    row.firstChild.classList.toggle("off", !on);
  });
  find("shown").textContent = state.visible.size === groups.length ? `all ${groups.length} shown` : `${state.visible.size} of ${groups.length} shown`;
}

/** After a change of what is shown. */
function update() {
  state.refresh();
  legend();
  for (const { view } of views) view.update();
}

let typing = 0;
find("search").addEventListener("input", (event) => {
  clearTimeout(typing);
  typing = setTimeout(() => { state.text = event.target.value; update(); }, 120);
});
find("all").addEventListener("click", () => { state.hidden.clear(); update(); });
find("none").addEventListener("click", () => {
  for (const group of state.data.groups) if (state.matching.has(group.id)) state.hidden.add(group.label);
  update();
});
find("reset").addEventListener("click", () => {
  state.text = find("search").value = "";
  state.fields.clear();
  state.hidden.clear();
  for (const select of find("fields").querySelectorAll("select")) select.selectedIndex = 0;
  update();
});

// The theme is the system's until the button is pressed; it is remembered where the browser lets a page from
// disk remember something.
const root = document.documentElement;
const dark = matchMedia("(prefers-color-scheme: dark)");
const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : dark.matches);
function remembered(value) {
  try {
    if (value) localStorage.setItem("mnemos-theme", value);
    return localStorage.getItem("mnemos-theme");
  } catch {
    return null;
  }
}
function themed() {
  find("theme").textContent = isDark() ? "☀ Light" : "☾ Dark";
  redrawAll();
}
if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();
find("theme").addEventListener("click", () => {
  root.dataset.theme = isDark() ? "light" : "dark";
  remembered(root.dataset.theme);
  themed();
});
dark.addEventListener("change", themed);

if (matchMedia("(max-width: 940px)").matches) find("side").open = false;
themed();
show(JSON.parse(find("data").textContent));

// A live page asks for new data, and waits for each answer before it asks again.
if (root.dataset.live === "true") {
  const pill = find("live");
  let last = "";
  pill.hidden = false;
  const ask = async () => {
    try {
      const answer = await fetch("data.json", { cache: "no-cache" });
      if (!answer.ok) throw new Error(answer.statusText);
      const text = await answer.text();
      if (text !== last) { last = text; reading = false; show(JSON.parse(text)); }
      pill.textContent = "● live";
      pill.className = "pill on";
    } catch {
      pill.textContent = "○ not connected";
      pill.className = "pill off";
    }
    setTimeout(ask, document.hidden ? 10000 : 2000);
  };
  ask();
}
