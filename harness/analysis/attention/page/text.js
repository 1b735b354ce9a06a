// The running text of an arm: one element per token, in blocks that the browser lays out only when they come into
// sight. Everything a model wrote becomes text nodes.

// A token on one line, for lists.
function quoted(text) {
  if (text === "") return "(rest of a character)";
  return `\u2018${seen(text).replace(/\n/g, "\u23ce").replace(/\t/g, "\u21e5").replace(/ /g, "\u2423")}\u2019`;
}

// As in groups.py, which tables and figures name them by.
const GROUP_LABELS = {
  system: "system", tools: "tools", user: "user", assistant: "assistant", target_calls: "target calls",
  target_results: "target results", other_calls: "other calls", other_results: "other results",
  unruled_calls: "unruled calls", unruled_results: "unruled results", follow_up: "follow-up", bar: "bar or placebo",
  template: "template", forced: "forced", thinking: "thinking", answer: "answer", sinks: "sinks",
};

const CHUNK = 220; // tokens: about a screenful

// Stretches of one region; a sink belongs to the stretch around it and keeps its own mark.
function stretches(arm) {
  const { key_region } = arm.arrays;
  const K = arm.tokens.length;
  const own = (key) => arm.regions[key_region[key]].group !== "sinks";
  const found = [];
  for (let key = 0; key < K; key++) {
    let region = key_region[key];
    if (!own(key)) {
      let next = key;
      while (!found.length && next < K - 1 && !own(next)) next++;
      region = found.length ? found[found.length - 1].region : key_region[next];
    }
    const last = found[found.length - 1];
    if (last && last.region === region) last.end = key + 1;
    else found.push({ region, start: key, end: key + 1 });
  }
  return found;
}

// The first and last key of each region.
function extents(arm) {
  const found = arm.regions.map(() => [Infinity, -1]);
  arm.arrays.key_region.forEach((region, key) => {
    found[region][0] = Math.min(found[region][0], key);
    found[region][1] = key;
  });
  return found;
}

function buildText(arm, where) {
  arm.spans = new Array(arm.tokens.length);
  arm.levels = new Uint8Array(arm.tokens.length);
  arm.bright = [0, arm.tokens.length - 1];
  const all = document.createDocumentFragment();
  for (const { region, start, end } of stretches(arm)) {
    const { name, group } = arm.regions[region];
    const block = element("div", `stretch g-${group}`);
    const label = element("span", "label", group === name ? (GROUP_LABELS[group] ?? name) : seen(name));
    let from = start;
    for (let key = start; key < end; key++) {
      const long = key - from >= CHUNK * 2 || (key - from >= CHUNK && arm.tokens[key].endsWith("\n"));
      if (long || key === end - 1) {
        block.append(chunk(arm, from, key + 1));
        from = key + 1;
      }
    }
    block.firstChild.prepend(label); // inside, since a block of its own keeps clear of what floats outside it
    all.append(block);
  }
  where.replaceChildren(all);
}

function chunk(arm, start, end) {
  const made = element("div", "chunk");
  let lines = 1;
  let column = 0;
  for (let key = start; key < end; key++) {
    const token = arm.tokens[key];
    const span = element("span", token === "" ? "t empty" : "t", seen(token).replace(/\n/g, "\u23ce\n"));
    span.key = key;
    if (arm.rowAt.has(key)) span.classList.add("row");
    if (arm.regions[arm.arrays.key_region[key]].group === "sinks") span.classList.add("sink");
    arm.spans[key] = span;
    made.append(span);
    column += token.length;
    if (token.includes("\n") || column > 56) { lines++; column = 0; }
  }
  // A first guess; the browser remembers the true height once it was seen.
  made.style.setProperty("contain-intrinsic-block-size", `auto ${lines * 1.55}em`);
  return made;
}

const LEVELS = 40;

// Shades the keys that a row read; touches only what is different from before.
function paint(arm, view) {
  const levels = new Uint8Array(arm.tokens.length);
  if (view) for (const key of view.touched) levels[key] = Math.round(view.intensity(key) * LEVELS);
  for (let key = 0; key < levels.length; key++) {
    if (levels[key] === arm.levels[key]) continue;
    arm.spans[key].style.setProperty("--a", `${levels[key] / LEVELS}`);
    arm.spans[key].classList.toggle("lit", levels[key] > 0);
    arm.spans[key].classList.toggle("hot", levels[key] > LEVELS * 0.65);
  }
  arm.levels = levels;
}

// Fades what the row could not see, and marks the row itself.
function mark(arm, range, at) {
  const [first, last] = range;
  const [oldFirst, oldLast] = arm.bright;
  const fade = (from, to, out) => {
    for (let key = from; key < to; key++) arm.spans[key].classList.toggle("out", out);
  };
  fade(oldFirst, Math.min(first, oldLast + 1), true);
  fade(first, Math.min(oldFirst, last + 1), false);
  fade(Math.max(last + 1, oldFirst), oldLast + 1, true);
  fade(Math.max(oldLast + 1, first), last + 1, false);
  arm.bright = range;
  arm.marked?.classList.remove("query");
  arm.marked = at === null ? null : arm.spans[at];
  arm.marked?.classList.add("query");
}
