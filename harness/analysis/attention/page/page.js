// The page itself: what is chosen, what follows from it, and the address that leads back to it.

const $ = (id) => document.getElementById(id);
const MEAN = "mean";
const SCALES = {
  // Share of a key -> 0..1; both ends are fixed, so that arms and rows can be compared.
  log: { low: "0.01 %", high: "\u2265 10 %", of: (share) => Math.log10(share / 1e-4) / 3 },
  sqrt: { low: "0", high: "\u2265 10 %", of: (share) => Math.sqrt(share / 0.1) },
};
const narrow = window.matchMedia("(max-width: 820px)");
const state = { sample: 0, arm: 0, shown: new Set(), layer: MEAN, head: MEAN, row: 0, pinned: false, sinks: true, scale: "log", detail: false };
let columns = [];
let hovered = null;
let waiting = false;

const arms = () => META.samples[state.sample].arms;
const kindOf = (cell) => (cell.bar === "none" ? "no bar" : cell.bar === "placebo" ? "placebo" : "bar");
const shownArms = () => arms().filter((_, index) => (narrow.matches ? index === state.arm : state.shown.has(index)));
const chosenOf = (all, chosen) => (chosen === MEAN ? all.map((_, index) => index) : [all.indexOf(chosen)]);

function choose(values) {
  Object.assign(state, values);
  draw();
  remember();
}

// --- what is drawn ---------------------------------------------------------------------------------------------

function viewOf(arm, name) {
  const n = arm.rowOfName.get(name);
  if (n === undefined) return null;
  const layers = chosenOf(arm.layers, state.layer);
  const view = readRow(arm, n, layers, chosenOf(arm.heads, state.head));
  const { of } = SCALES[state.scale];
  view.n = n;
  view.range = visible(arm, n, layers);
  view.rest = Math.max(1 - view.sinks, 1e-9);
  view.counts = (key) => !state.sinks || arm.regions[arm.arrays.key_region[key]].group !== "sinks";
  view.share = (key) => (state.sinks ? view.raw[key] / view.rest : view.raw[key]);
  view.intensity = (key) => (view.counts(key) ? Math.min(1, Math.max(0, of(view.share(key)))) : 0);
  return view;
}

function draw() {
  const active = arms()[state.arm];
  const name = active.names[state.row];
  const shown = shownArms();
  const longest = Math.max(...arms().map((arm) => arm.tokens.length));
  for (const arm of shown) {
    arm.view = viewOf(arm, name);
    paint(arm, arm.view);
    const at = arm.view ? arm.rows[arm.view.n].position : null;
    mark(arm, arm.view ? arm.view.range : [0, arm.tokens.length - 1], at);
    const covers = arm.view ? `kept weights cover ${percent(arm.view.covered)}` : "no matching row";
    arm.column.covered.textContent = covers;
    arm.column.box.classList.toggle("active", arm === active);
    drawStrip(arm.column.strip, arm, longest);
  }
  for (const arm of arms()) arm.column.box.hidden = !shown.includes(arm);
  $("columns").style.setProperty("--n", `${shown.length}`);
  drawSide(shown);
  drawChoices(active);
  if (hovered) fillTip($("tip"), hovered.arm, hovered.key, state);
}

function drawSide(shown) {
  const lower = drawRegions($("regions"), shown, state.detail, state.sinks);
  $("region-unit").textContent = state.sinks ? "Share of what lies outside the sinks." : "Raw mass, sinks included.";
  $("region-note").textContent = lower
    ? "Sums of the weights kept, so lower bounds: the capture holds no region sums for this row and choice of head. "
    : "Exact sums over all keys. ";
  $("region-note").textContent += "\u2013: nothing of it is visible from the row.";
  drawMost($("most"), shown, state.sinks, (arm, key) => arm.spans[key].scrollIntoView({ block: "center" }));
}

function drawChoices(active) {
  const row = active.rows[state.row];
  const predicts = row.name ? `, predicts ${quoted(row.name)}` : "";
  const layer = state.layer === MEAN ? "mean over layers" : `layer ${state.layer}`;
  const head = state.head === MEAN ? "mean over heads" : `head ${state.head}`;
  $("status").textContent =
    `${seen(active.cell.condition)}: ${row.kind} row of ${quoted(active.tokens[row.position])} #${row.position}${predicts} · ${layer} · ${head}`;
  $("pin").textContent = state.pinned ? "Pinned: release (Esc)" : "Pin this row";
  $("pin").setAttribute("aria-pressed", `${state.pinned}`);
  $("row").value = `${state.row}`;
  $("layer").value = `${state.layer}`;
  $("head").value = `${state.head}`;
  $("scale").value = state.scale;
  $("sinks").checked = state.sinks;
  $("detail").checked = state.detail;
  $("legend-low").textContent = SCALES[state.scale].low;
  $("legend-high").textContent = SCALES[state.scale].high;
  for (const [index, button] of [...$("arms").children].entries()) {
    const on = narrow.matches ? index === state.arm : state.shown.has(index);
    button.setAttribute("aria-pressed", `${on}`);
  }
}

// --- a sample's columns and lists ------------------------------------------------------------------------------

function options(select, values, label) {
  select.replaceChildren(...values.map((value) => new Option(label(value), `${value}`)));
}

function fillRows() {
  const { rows, tokens } = arms()[state.arm];
  const named = element("optgroup");
  named.label = "Named rows";
  const other = element("optgroup");
  other.label = "Rows of single tokens";
  rows.forEach((row, n) => {
    const special = row.kind === "decision" || row.kind === "value";
    const text = `${special ? `${row.kind}: predicts ${quoted(row.name)}` : `${row.kind} ${quoted(tokens[row.position])}`} #${row.position}`;
    (special ? named : other).append(new Option(text, `${n}`));
  });
  $("row").replaceChildren(...[named, other].filter((group) => group.children.length));
}

async function openSample(index) {
  state.sample = index;
  $("sample").value = `${index}`;
  $("status").textContent = "unpacking\u2026";
  const all = arms();
  for (const sample of META.samples) if (sample !== META.samples[index]) for (const arm of sample.arms) release(arm);
  for (const arm of all) arm.arrays ??= await unpack(arm);
  if (state.sample !== index) return false; // another was chosen meanwhile
  nameRows(all);
  columns = all.map(buildColumn);
  $("columns").replaceChildren(...columns);
  options($("layer"), [MEAN, ...all[0].layers], (value) => (value === MEAN ? "mean" : value));
  options($("head"), [MEAN, ...all[0].heads], (value) => (value === MEAN ? "mean" : value));
  $("arms").replaceChildren(...all.map((arm, i) => {
    const button = element("button", "", seen(arm.cell.condition));
    button.type = "button";
    button.addEventListener("click", () => toggleArm(i));
    return button;
  }));
  $("cells").textContent = `${META.model} · run ${META.run} · cells: ${all.map((arm) => seen(arm.cell.cell_id)).join(" · ")}`;
  $("method").textContent =
    `Shown are the ${all[0].top} largest weights of each row, layer and head; what lies below them is not drawn, and each column states what it covers. ` +
    "A mean over layers or heads is the mean of raw weights; a share is that mean over the mean mass outside the sinks (positions that soak up attention " +
    "whatever is asked), so a mean over heads may differ a little from the tables, which average shares. Weights are kept in half precision (relative error below 0.05 %).";
  return true;
}

function release(arm) {
  for (const name of ["arrays", "spans", "levels", "column", "view", "stretches", "extents", "marked"]) delete arm[name];
}

function buildColumn(arm, index) {
  const box = element("section", `arm kind-${arm.cell.bar === "none" ? "none" : arm.cell.bar === "placebo" ? "placebo" : "bar"}`);
  const head = element("header");
  const strip = element("canvas");
  strip.setAttribute("aria-label", "Where in the sequence the row looked; click to go there");
  const covered = element("span", "covered");
  const name = element("h2", "", seen(arm.cell.condition));
  name.append(element("em", "", kindOf(arm.cell)));
  head.append(name, covered, strip);
  const text = element("div", "text");
  text.tabIndex = 0;
  text.setAttribute("role", "region");
  text.setAttribute("aria-label", `Text of ${seen(arm.cell.condition)}`);
  arm.stretches = stretches(arm);
  arm.extents = extents(arm);
  buildText(arm, text);
  arm.column = { box, covered, strip };
  box.append(head, text);
  text.addEventListener("mouseover", (event) => point(arm, index, event.target));
  text.addEventListener("mouseleave", () => { hovered = null; $("tip").hidden = true; });
  text.addEventListener("click", (event) => pinAt(arm, index, event.target));
  strip.addEventListener("click", (event) => {
    const longest = Math.max(...arms().map((other) => other.tokens.length));
    const key = Math.floor((event.offsetX / strip.clientWidth) * longest);
    arm.spans[Math.min(key, arm.spans.length - 1)].scrollIntoView({ block: "center" });
  });
  return box;
}

// --- what a reader does ----------------------------------------------------------------------------------------

function goTo(arm, n) {
  const changed = arm !== state.arm;
  state.arm = arm;
  state.row = n;
  if (changed) fillRows();
}

function point(arm, index, target) {
  if (target.key === undefined) return;
  hovered = { arm, index, key: target.key, target };
  if (waiting) return;
  waiting = true;
  requestAnimationFrame(() => {
    waiting = false;
    if (!hovered) return;
    const n = hovered.arm.rowAt.get(hovered.key);
    if (!state.pinned && n !== undefined && (hovered.index !== state.arm || n !== state.row)) {
      goTo(hovered.index, n);
      draw();
    }
    fillTip($("tip"), hovered.arm, hovered.key, state);
    placeTip($("tip"), hovered.target.getClientRects()[0] ?? hovered.target.getBoundingClientRect());
  });
}

function pinAt(arm, index, target) {
  const n = target.key === undefined ? undefined : arm.rowAt.get(target.key);
  if (n === undefined || String(window.getSelection())) return;
  const again = state.pinned && index === state.arm && n === state.row;
  goTo(index, n);
  choose({ pinned: !again });
}

function toggleArm(index) {
  if (!narrow.matches) {
    if (state.shown.has(index) && state.shown.size > 1) state.shown.delete(index);
    else state.shown.add(index);
  }
  const to = narrow.matches || state.shown.has(index) ? index : state.shown.has(state.arm) ? state.arm : Math.min(...state.shown);
  const n = arms()[to].rowOfName.get(arms()[state.arm].names[state.row]);
  goTo(to, n ?? defaultRow(to));
  choose({});
}

function step(by) {
  const { rows, spans } = arms()[state.arm];
  goTo(state.arm, Math.min(rows.length - 1, Math.max(0, state.row + by)));
  choose({ pinned: true });
  spans[rows[state.row].position].scrollIntoView({ block: "nearest" });
}

document.addEventListener("keydown", (event) => {
  if (event.altKey || event.ctrlKey || event.metaKey || event.target instanceof HTMLSelectElement) return;
  if (event.key === "ArrowLeft") step(-1);
  else if (event.key === "ArrowRight") step(1);
  else if (event.key === "Escape") choose({ pinned: false });
  else return;
  event.preventDefault();
});
const given = (text) => (text === MEAN ? MEAN : Number(text));
$("row").addEventListener("change", (event) => choose({ row: Number(event.target.value), pinned: true }));
$("layer").addEventListener("change", (event) => choose({ layer: given(event.target.value) }));
$("head").addEventListener("change", (event) => choose({ head: given(event.target.value) }));
$("scale").addEventListener("change", (event) => choose({ scale: event.target.value }));
$("sinks").addEventListener("change", (event) => choose({ sinks: event.target.checked }));
$("detail").addEventListener("change", (event) => choose({ detail: event.target.checked }));
$("show").addEventListener("click", () => {
  const arm = arms()[state.arm];
  arm.spans[arm.rows[state.row].position].scrollIntoView({ block: "center" });
});
$("pin").addEventListener("click", () => choose({ pinned: !state.pinned }));
$("sample").addEventListener("change", async (event) => {
  const { condition } = arms()[state.arm].cell;
  const wanted = { condition, name: arms()[state.arm].names[state.row] };
  if (await openSample(Number(event.target.value))) start(wanted);
});

// --- the address ------------------------------------------------------------------------------------------------

function remember() {
  const arm = arms()[state.arm];
  const values = new URLSearchParams({
    sample: META.samples[state.sample].name, arm: arm.cell.condition,
    shown: [...state.shown].sort((a, b) => a - b).join("."), layer: state.layer, head: state.head,
    row: arm.names[state.row], pinned: state.pinned ? 1 : 0, sinks: state.sinks ? "out" : "in", scale: state.scale,
  });
  history.replaceState(null, "", `#${values}`);
}

function defaultRow(index) {
  return Math.max(0, arms()[index].rows.findIndex((row) => row.kind === "decision"));
}

// What is shown of a freshly opened sample, as far as `wanted` has not named it.
function start(wanted) {
  const all = arms();
  const first = all.findIndex((arm) => arm.cell.bar !== "none" && arm.cell.bar !== "placebo");
  const asked = all.findIndex((arm) => arm.cell.condition === wanted.condition);
  state.arm = asked >= 0 ? asked : Math.max(0, first);
  const shown = (wanted.shown ?? []).filter((index) => index in all);
  state.shown = new Set(shown.length ? shown : all.map((_, index) => index).slice(0, 3));
  state.shown.add(state.arm);
  state.row = all[state.arm].rowOfName.get(wanted.name) ?? defaultRow(state.arm);
  const known = (list, value) => (list.includes(value) ? value : MEAN);
  state.layer = known(all[0].layers, state.layer);
  state.head = known(all[0].heads, state.head);
  fillRows();
  choose({});
}

async function restore() {
  const asked = new URLSearchParams(location.hash.slice(1));
  const sample = Math.max(0, META.samples.findIndex((found) => found.name === asked.get("sample")));
  if (asked.has("layer")) state.layer = given(asked.get("layer"));
  if (asked.has("head")) state.head = given(asked.get("head"));
  if (asked.has("sinks")) state.sinks = asked.get("sinks") !== "in";
  if (asked.get("scale") in SCALES) state.scale = asked.get("scale");
  state.pinned = asked.get("pinned") === "1";
  const shown = asked.has("shown") ? asked.get("shown").split(".").map(Number) : undefined;
  if (await openSample(sample)) start({ condition: asked.get("arm"), name: asked.get("row"), shown });
}

for (const part of document.querySelectorAll("aside details")) part.open = !narrow.matches;
options($("sample"), META.samples.map((_, index) => index), (index) => seen(META.samples[index].name));
$("source").textContent = `${META.model} · run ${META.run}`;
document.title = `What each token read · ${META.run}`;
window.addEventListener("hashchange", restore);
window.addEventListener("resize", () => arms()[state.arm].spans && draw());
for (const query of [narrow, window.matchMedia("(prefers-color-scheme: dark)")]) query.addEventListener("change", () => arms()[state.arm].spans && draw());
// What sticks below the controls needs to know how high they are.
new ResizeObserver(([entry]) => {
  const high = getComputedStyle(entry.target).position === "sticky" ? entry.target.offsetHeight : 0;
  document.documentElement.style.setProperty("--top", `${high}px`);
}).observe(document.querySelector(".top"));
restore().catch((error) => { $("status").textContent = `This browser cannot unpack the page's data (${error.message}).`; });
