// The browser of cells: filters, a list by pages, and the arms of a decision point side by side.
// A source answers facets(), find(chosen, text, page) and point(id); where its data come from is its own business.

const AT_ONCE = 3; // arms side by side to begin with

function browse(source) {
  const $ = (id) => document.getElementById(id);
  const selects = [...document.querySelectorAll("#filters select")];
  let page = 0;
  let asked = 0;
  let current = null;

  const chosen = () => Object.fromEntries(selects.filter((one) => one.value).map((one) => [one.dataset.facet, one.value]));

  async function list() {
    const mine = ++asked;
    const found = await source.find(chosen(), $("text").value.trim(), page);
    if (mine !== asked) return; // a later question was asked meanwhile
    const pages = Math.max(1, Math.ceil(found.total / found.size));
    $("count").textContent = `${whole(found.total)} of ${whole(found.all)} cells${source.of ?? ""}`;
    $("page").textContent = `page ${whole(page + 1)} of ${whole(pages)}`;
    $("previous").disabled = page === 0;
    $("next").disabled = page + 1 >= pages;
    $("hits").start = page * found.size + 1;
    $("hits").replaceChildren(...found.cells.map(hit));
    if (!found.cells.length) $("hits").append(element("li", "none", "No cell is like that."));
    mark();
  }

  function hit(cell) {
    const button = element("button", "hit");
    button.type = "button";
    button.dataset.id = cell.id;
    const head = element("span", "head");
    head.append(element("b", "", breakable(cell.condition)), outcomeBadge(cell));
    const more = cell.p === null || cell.p === undefined ? seen(cell.snippet ?? "") : `P(call) ${numeric(cell.p, 3)}`;
    button.append(head, element("span", "where", breakable(`${cell.probe} · ${cell.sample}`)), element("span", "snippet", more));
    button.addEventListener("click", () => show(cell.id, true));
    const item = element("li");
    item.append(button);
    return item;
  }

  function mark() {
    for (const button of document.querySelectorAll(".hit")) {
      button.setAttribute("aria-current", String(button.dataset.id === current));
    }
  }

  async function show(id, go) {
    const point = await source.point(id);
    current = id;
    mark();
    detail($("detail"), point, id);
    if (go && matchMedia("(max-width: 900px)").matches) $("detail").scrollIntoView();
  }

  for (const one of selects) one.addEventListener("change", () => { page = 0; list(); });
  let waiting;
  $("text").addEventListener("input", () => {
    clearTimeout(waiting);
    waiting = setTimeout(() => { page = 0; list(); }, 250);
  });
  $("filters").addEventListener("submit", (event) => event.preventDefault());
  $("filters").addEventListener("reset", () => setTimeout(() => { page = 0; list(); }));
  $("previous").addEventListener("click", () => { page--; list(); });
  $("next").addEventListener("click", () => { page++; list(); });

  (async () => {
    const facets = await source.facets();
    for (const one of selects) {
      for (const [value, n] of Object.entries(facets[one.dataset.facet] ?? {})) {
        const option = element("option", "", `${seen(value).replace(/_/g, " ")} (${whole(n)})`);
        option.value = value;
        one.append(option);
      }
    }
    await list();
    const first = document.querySelector(".hit");
    if (first) await show(first.dataset.id, false);
  })();
}

// The arms that are shown first: the chosen one, the placebo of its placement, the control.
function firstArms(arms, chosen) {
  const control = arms.find((arm) => arm.bar === "none");
  const near = chosen.bar === "none" ? arms.find((arm) => !["none", "placebo", "mismatched"].includes(arm.bar)) ?? chosen : chosen;
  const placebo = arms.find((arm) => arm.bar === "placebo" && arm.placement === near.placement);
  const bar = near.bar === "placebo" ? arms.find((arm) => !["none", "placebo", "mismatched"].includes(arm.bar) && arm.placement === near.placement) : near;
  const wanted = new Set([chosen, control, placebo, bar].filter(Boolean));
  return arms.filter((arm) => wanted.has(arm)).slice(0, Math.max(AT_ONCE, arms.indexOf(chosen) < AT_ONCE ? AT_ONCE : AT_ONCE + 1));
}

function detail(where, { texts, arms: found }, id) {
  const place = (arm) => (META.conditions.includes(arm.condition) ? META.conditions.indexOf(arm.condition) : Infinity);
  const arms = [...found].sort((a, b) => place(a) - place(b) || 0);
  const chosen = arms.find((arm) => arm.cell_id === id) ?? arms[0];
  const shown = new Set(firstArms(arms, chosen));
  const head = element("header", "point");
  head.append(element("h3", "", breakable(chosen.sample_id)), element("p", "", about(chosen)));
  const toggles = element("div", "toggles");
  toggles.setAttribute("role", "group");
  toggles.setAttribute("aria-label", "Conditions shown side by side");
  for (const arm of arms) {
    const button = element("button", "", breakable(arm.condition));
    button.type = "button";
    button.setAttribute("aria-pressed", String(shown.has(arm)));
    button.addEventListener("click", () => {
      if (shown.has(arm) && shown.size > 1) shown.delete(arm);
      else shown.add(arm);
      button.setAttribute("aria-pressed", String(shown.has(arm)));
      draw();
    });
    toggles.append(button);
  }
  const body = element("div", "body");
  where.replaceChildren(head, toggles, body);

  function draw() {
    const now = arms.filter((arm) => shown.has(arm));
    // What the arms differ by is taken over all of them, so that it does not move with the choice of columns.
    const span = arms.every((arm) => arm.prompt) ? common(arms) : [0, 0];
    const [before, after] = span;
    const control = arms.find((arm) => arm.bar === "none");
    const parts = [];
    if (before + after > 0) {
      const some = arms[0].prompt;
      const size = [...some.slice(0, before), ...some.slice(some.length - after)].reduce((sum, [, n]) => sum + texts[n].length, 0);
      const fill = () => {
        const made = document.createDocumentFragment();
        made.append(promptBlock(some.slice(0, before), arms[0], texts));
        made.append(element("p", "gap", arms.length > 1 ? "\u2195 here the arms differ" : "\u2195"));
        made.append(promptBlock(some.slice(some.length - after), arms[0], texts));
        return made;
      };
      const told = arms.length > 1 ? `The prompt that all ${arms.length} arms share` : "The prompt";
      parts.push(folded(`${told} (${whole(before + after)} parts, ${whole(size)} characters)`, fill, "shared"));
    }
    const columns = element("div", "columns");
    columns.append(...now.map((arm) => armCard(arm, control, texts, arms.length > 1 ? span : [0, 0])));
    parts.push(columns);
    body.replaceChildren(...parts);
  }
  draw();
}

function about(arm) {
  const parts = [
    `${arm.side}: ${arm.side === "due" ? "the call is due" : arm.side === "forbidden" ? "the call is forbidden" : ""}`,
    `asked for ${arm.target ?? "\u2013"}`,
    `${whole(arm.prior_calls)} calls before, limit ${whole(arm.limit)}`,
    arm.filler_tokens ? `${whole(arm.filler_tokens)} tokens of filler` : "",
    `episode ${arm.cluster}`,
    arm.epoch ? `epoch ${arm.epoch}` : "",
  ];
  return breakable(parts.filter(Boolean).join(" · "));
}
