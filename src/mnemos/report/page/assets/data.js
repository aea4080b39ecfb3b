// ---- Data: elements, numbers and typed arrays -----------------------------------------------------------

/** An element with properties and children. Text is only ever text: nothing is parsed as HTML. */
function el(tag, properties = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "class") node.className = value;
    else if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name === "style") for (const [key, to] of Object.entries(value)) node.style.setProperty(key, to);
    else if (name in node && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** Numbers as they were packed: evenly spaced, 32-bit floats, or 16-bit shares of 1 (see encode.py). */
function unpack(packed) {
  if (!packed) return null;
  if (packed.values) return packed.values;
  if (packed.count !== undefined) {
    packed.values = Float64Array.from({ length: packed.count }, (_, i) => packed.from + i * packed.step);
  } else if (packed.f4 !== undefined) {
    packed.values = new Float32Array(bytes(packed.f4).buffer);
    packed.f4 = "";
  } else {
    const whole = new Uint16Array(bytes(packed.u2).buffer);
    packed.values = Float32Array.from(whole, (value) => (value === 65535 ? NaN : value / 65000));
    packed.u2 = "";
  }
  return packed.values;
}

function bytes(text) {
  const binary = atob(text);
  const found = new Uint8Array(binary.length);
  for (let i = 0; i < binary.length; i++) found[i] = binary.charCodeAt(i);
  return found;
}

const UNITS = ["B", "kB", "MB", "GB", "TB", "PB"];

/** A number with its unit, short enough for a tooltip or a tick. */
function say(value, unit) {
  if (!Number.isFinite(value)) return "–";
  if (unit === "percent") return minus((100 * value).toFixed(1)) + " %";
  if (unit === "bytes") {
    let place = 0;
    while (value >= 999.5 && place < UNITS.length - 1) { value /= 1000; place++; }
    return Number(value.toPrecision(3)) + " " + UNITS[place];
  }
  if (unit === "seconds") {
    if (value < 59.5) return Number(value.toPrecision(2)) + " s";
    const minutes = Math.floor(Math.round(value) / 60);
    return minutes < 60 ? `${minutes} min ${Math.round(value) % 60} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  }
  const size = Math.abs(value);
  if (Number.isInteger(value) && size < 1e9) return minus(value.toLocaleString("en"));
  return minus(size !== 0 && (size < 1e-3 || size >= 1e6) ? value.toExponential(2) : String(Number(value.toPrecision(4))));
}

function minus(text) {
  return text.replace("-", "−");
}

/** `.31`, `−.07`, `0` or `1`: two decimals, as short as they can be. */
function tiny(value) {
  const text = Math.abs(value).toFixed(2);
  const short = text === "0.00" ? "0" : text === "1.00" ? "1" : text.replace(/^0/, "");
  return value < 0 && short !== "0" ? "−" + short : short;
}
