// What the numbers are: unpacks the arms' arrays, and sums up what a row read. No elements here but the data blocks.

const META = JSON.parse(document.getElementById("meta").textContent);

// The value of every half-precision number.
const HALVES = Float32Array.from({ length: 65536 }, (_, bits) => {
  const sign = bits & 0x8000 ? -1 : 1;
  const exponent = (bits >> 10) & 31;
  const fraction = bits & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1 + fraction / 1024) * 2 ** (exponent - 15) : fraction * 2 ** -24);
});

// One array of an arm from its byte planes.
function fromPlanes(bytes, start, section) {
  const { count, width, kind } = section;
  const values = kind === "half" ? new Float32Array(count) : width <= 2 ? new Uint16Array(count) : new Uint32Array(count);
  for (let i = 0; i < count; i++) {
    let value = 0;
    for (let plane = width - 1; plane >= 0; plane--) value = value * 256 + bytes[start + plane * count + i];
    values[i] = kind === "half" ? HALVES[value] : value;
  }
  return values;
}

async function unpack(arm) {
  const bytes = await inflated(arm.block);
  const arrays = {};
  let start = 0;
  for (const section of arm.sections) {
    arrays[section.name] = fromPlanes(bytes, start, section);
    start += section.count * section.width;
  }
  return arrays;
}

// Finds for each row of an arm what stands for it in the other arms. Up to the first token that differs positions
// are the same; behind it the bar is counted from its start, generated text from its start, and the rest backwards
// from there. Named rows (the decision) belong together whatever their positions.
function nameRows(arms) {
  let shared = Math.min(...arms.map((arm) => arm.tokens.length));
  for (const arm of arms) {
    let same = 0;
    while (same < shared && arm.tokens[same] === arms[0].tokens[same]) same++;
    shared = same;
  }
  for (const arm of arms) {
    const group = (key) => arm.regions[arm.arrays.key_region[key]].group;
    const keys = arm.tokens.map((_, key) => key);
    const generated = keys.find((key) => ["forced", "thinking", "answer"].includes(group(key))) ?? arm.tokens.length;
    const bar = keys.find((key) => group(key) === "bar") ?? -1;
    const seen = {};
    arm.names = arm.rows.map((row) => {
      if (row.kind === "decision" || row.kind === "value") {
        seen[row.kind] = (seen[row.kind] ?? 0) + 1;
        return seen[row.kind] > 1 ? `${row.kind} ${seen[row.kind]}` : row.kind;
      }
      const at = row.position;
      if (at < shared) return `${at}`;
      if (at >= generated) return `generated ${at - generated}`;
      if (group(at) === "bar") return `bar ${at - bar}`;
      return `before generation ${generated - at}`;
    });
    arm.rowOfName = new Map(arm.names.map((name, row) => [name, row]));
    arm.rowAt = new Map(arm.rows.map((row, n) => [row.position, n]));
  }
}

// What a row read, in the chosen layers and heads (indices; their mean where there are several):
//   raw       key -> mean raw weight, among the `top` largest of each head; 0 where it is not among them
//   touched   the keys with a weight
//   covered   mean mass of those weights
//   sinks     mean mass of the sinks, exact where the capture has region masses, else from the weights shown
//   regions   mean mass of each region; `exact` says from where, as for the sinks
function readRow(arm, n, layers, heads) {
  const { keys, weights, key_region } = arm.arrays;
  const [H, N, T, G] = [arm.heads.length, arm.rows.length, arm.top, arm.regions.length];
  const raw = new Float64Array(arm.tokens.length);
  const touched = [];
  const regions = new Float64Array(G);
  const share = 1 / (layers.length * heads.length);
  let covered = 0;
  for (const layer of layers) {
    for (const head of heads) {
      const start = ((layer * H + head) * N + n) * T;
      for (let t = start; t < start + T; t++) {
        const weight = weights[t] * share;
        if (!(weight > 0)) continue; // fewer keys were visible than are kept
        const key = keys[t];
        if (raw[key] === 0) touched.push(key);
        raw[key] += weight;
        covered += weight;
        regions[key_region[key]] += weight;
      }
    }
  }
  const exact = exactRegions(arm, n, layers, heads);
  const found = exact ?? regions;
  let sinks = 0;
  for (let region = 0; region < G; region++) if (arm.regions[region].group === "sinks") sinks += found[region];
  return { raw, touched, covered, sinks, regions: found, exact: exact !== null };
}

// The captured masses of the regions, or null where this row, or this head of it, has none.
function exactRegions(arm, n, layers, heads) {
  const source = arm.rows[n].exact;
  if (!source || (source[0] === "mean" && heads.length < arm.heads.length)) return null;
  const [H, L, G] = [source[0] === "mean" ? 1 : arm.heads.length, arm.layers.length, arm.regions.length];
  const masses = source[0] === "mean" ? arm.arrays.mass_mean : arm.arrays.mass_heads;
  const chosen = source[0] === "mean" ? [0] : heads;
  const found = new Float64Array(G);
  for (const layer of layers) {
    for (const head of chosen) {
      const start = ((source[1] * L + layer) * H + head) * G;
      for (let region = 0; region < G; region++) found[region] += masses[start + region];
    }
  }
  return found.map((mass) => mass / (layers.length * chosen.length));
}

// Keys that a row can see in at least one of the chosen layers: [first, last].
function visible(arm, n, layers) {
  const at = arm.rows[n].position;
  const windows = layers.map((layer) => arm.windows[layer]);
  return [windows.includes(null) ? 0 : Math.max(0, at + 1 - Math.max(...windows)), at];
}
