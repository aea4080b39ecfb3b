// ---- State: what is filtered, hidden, sorted and chosen; it outlives new data --------------------------------

const MARKERS = [
  "M15 2.6a3.4 3.4 0 1 0 .01 0z", // circle
  "M11.8 2.8h6.4v6.4h-6.4z", // square
  "M15 1.6l4.2 7.6h-8.4z", // triangle
  "M15 1.2l4.6 4.8-4.6 4.8-4.6-4.8z", // diamond
];
const DASHES = [[], [7, 4], [7, 3, 2, 3], [2, 3]];

const state = {
  data: null,
  text: "",
  fields: new Map(), // field → value that groups must have
  hidden: new Set(), // labels of groups that are switched off in the legend
  sorts: new Map(), // table → { column, down }
  choices: new Map(), // block → label of what is chosen
  frames: new Map(), // block → label of the slider's frame, or "last"
  matching: new Set(), // ids of groups that pass the filter
  visible: new Set(), // … and aren't switched off

  /** Whether something of these groups is to be shown; what belongs to no group always is. */
  shows(groups) {
    return groups.length === 0 || groups.some((id) => this.visible.has(id));
  },

  refresh() {
    const words = this.text.toLowerCase().split(/\s+/).filter(Boolean);
    this.matching = new Set();
    this.visible = new Set();
    this.data.groups.forEach((group, place) => {
      for (const field of this.data.fields) {
        const wanted = this.fields.get(field.name);
        if (wanted !== undefined && field.values[place] !== wanted) return;
      }
      if (words.length) {
        group.haystack ??= [
          group.label,
          ...group.runs.flatMap((run) => [run.name, run.status]),
          ...this.data.fields.map((field) => `${field.name}=${field.values[place]}`),
        ].join(" ").toLowerCase();
        if (!words.every((word) => group.haystack.includes(word))) return;
      }
      this.matching.add(group.id);
      if (!this.hidden.has(group.label)) this.visible.add(group.id);
    });
  },
};

/** Colour, dashes and marker number of a style: 32 that differ, the eight colours first. */
function styleOf(number) {
  const turn = Math.floor(number / 8);
  return { colour: `--g${number % 8}`, dash: DASHES[(number + turn) % 4], marker: (number + turn) % 4 };
}

function swatch(number) {
  const style = styleOf(number);
  const svg = document.getElementById("swatch").content.firstElementChild.cloneNode(true);
  const [line, path] = svg.children;
  line.style.stroke = `var(${style.colour})`;
  if (style.dash.length) line.setAttribute("stroke-dasharray", style.dash.join(" "));
  path.style.fill = `var(${style.colour})`;
  path.setAttribute("d", MARKERS[style.marker]);
  return svg;
}

/** The value of one of the page's colours now, light or dark. */
function colour(name) {
  return (colour.known[name] ??= getComputedStyle(document.documentElement).getPropertyValue(name).trim());
}
colour.known = {};

/** A drop-down that remembers what was chosen by its words, and falls back to the first. */
function chooser(label, key, onchange) {
  const select = el("select", { "aria-label": label, onchange: () => { state.choices.set(key, select.value); onchange(); } });
  const node = el("label", {}, label, select);
  return {
    node,
    /** Offer these; gives the place of what is chosen among them. */
    offer(options) {
      const old = [...select.options].map((option) => option.value);
      if (old.length !== options.length || old.some((value, i) => value !== options[i])) {
        select.replaceChildren(...options.map((option) => el("option", { value: option }, option)));
      }
      const wanted = options.indexOf(state.choices.get(key));
      const place = Math.max(0, wanted);
      if (options.length) select.value = options[place];
      node.hidden = options.length < 2;
      return place;
    },
  };
}
