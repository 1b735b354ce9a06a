// What stands beside the text: the table of regions, the most read tokens, the strip over each column, the tooltip.

function percent(value) {
  if (!Number.isFinite(value)) return "\u2013";
  const hundred = value * 100;
  return `${hundred >= 9.95 ? hundred.toFixed(1) : hundred >= 0.1 ? hundred.toFixed(2) : hundred === 0 ? "0" : hundred >= 0.01 ? hundred.toPrecision(2) : hundred.toExponential(0)} %`;
}

function weightText(value) {
  return value >= 1e-4 ? value.toPrecision(4).replace(/(\.\d*?)0+$/, "$1").replace(/\.$/, "") : value.toExponential(3);
}

// Sums per group, or per region, of every shown arm: [{label, group, values}], in the order of the text.
function regionRows(shown, detail, sinksOut) {
  const rows = new Map();
  for (const [i, arm] of shown.entries()) {
    arm.regions.forEach((region, index) => {
      const isSink = region.group === "sinks";
      const name = detail && !isSink ? region.name : region.group;
      const key = `${region.group}\n${name}`;
      if (!rows.has(key)) {
        const label = name === region.group ? GROUP_LABELS[name] ?? name : breakable(name);
        rows.set(key, { label, group: region.group, values: shown.map(() => null) });
      }
      const [first, last] = arm.extents[index];
      if (!arm.view || first > arm.view.range[1] || last < arm.view.range[0]) return; // not visible: unknown, not 0
      const values = rows.get(key).values;
      const raw = arm.view.regions[index];
      values[i] = (values[i] ?? 0) + (sinksOut && !isSink ? raw / arm.view.rest : raw);
    });
  }
  const order = (row) => META.groups.indexOf(row.group);
  return [...rows.values()].sort((a, b) => order(a) - order(b));
}

function drawRegions(table, shown, detail, sinksOut) {
  const rows = regionRows(shown, detail, sinksOut);
  const lower = shown.some((arm) => arm.view && !arm.view.exact);
  if (lower) {
    const unseen = shown.map((arm) => arm.view && !arm.view.exact ? Math.max(0, 1 - arm.view.covered) / (sinksOut ? arm.view.rest : 1) : null);
    rows.push({ label: "not among the weights kept", group: "unseen", values: unseen });
  }
  const counted = rows.filter((row) => !(sinksOut && row.group === "sinks"));
  const most = Math.max(1e-9, ...counted.flatMap((row) => row.values.map((value) => value ?? 0)));
  const figure = (value, i, group) => {
    if (value === null) return "\u2013";
    if (group === "unseen" || shown[i].view.exact) return percent(value);
    return value > 0 ? `\u2265 ${percent(value)}` : "none kept";
  };
  const head = element("tr");
  head.append(element("th", "", "region"), ...shown.map((arm) => element("th", "", breakable(arm.cell.condition))));
  const body = rows.map((row) => {
    const line = element("tr", `g-${row.group}`);
    const apart = sinksOut && row.group === "sinks";
    const name = element("th", "", apart ? "sinks (raw mass)" : row.label);
    name.scope = "row";
    line.append(name);
    for (const [i, value] of row.values.entries()) {
      const cell = element("td");
      const bar = element("i");
      bar.style.setProperty("--w", `${apart || value === null ? 0 : (value / most) * 100}%`);
      cell.append(bar, element("b", "", figure(value, i, row.group)));
      line.append(cell);
    }
    if (apart) line.classList.add("apart");
    return line;
  });
  table.replaceChildren(head, ...body);
  return lower;
}

function drawMost(where, shown, sinksOut, jump) {
  where.replaceChildren(...shown.map((arm) => {
    const box = element("div", "most");
    box.append(element("h3", "", seen(arm.cell.condition)));
    if (!arm.view) {
      box.append(element("p", "note", "no matching row in this condition"));
      return box;
    }
    const { view } = arm;
    const keys = view.touched.filter((key) => view.counts(key)).sort((a, b) => view.raw[b] - view.raw[a] || a - b);
    const list = element("ol");
    for (const key of keys.slice(0, 8)) {
      const region = arm.regions[arm.arrays.key_region[key]];
      const item = element("li");
      const button = element("button", `g-${region.group}`);
      button.type = "button";
      button.append(
        element("b", "", percent(view.share(key))), element("code", "", quoted(arm.tokens[key])),
        element("small", "", `#${key} · ${seen(region.name)}`),
      );
      button.addEventListener("click", () => jump(arm, key));
      item.append(button);
      list.append(item);
    }
    box.append(list);
    return box;
  }));
}

// The whole sequence at a glance: regions as a band, what the row read as spikes above it.
function drawStrip(canvas, arm, longest) {
  const scale = window.devicePixelRatio || 1;
  const [width, height] = [canvas.clientWidth, canvas.clientHeight];
  if (!width) return;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const pen = canvas.getContext("2d");
  pen.scale(scale, scale);
  const style = getComputedStyle(canvas);
  const x = (key) => (key / longest) * width;
  const band = 7;
  for (const { region, start, end } of arm.stretches) {
    pen.fillStyle = style.getPropertyValue(`--g-${arm.regions[region].group}`) || "gray";
    pen.fillRect(x(start), height - band, Math.max(x(end) - x(start) - 0.5, 0.75), band);
  }
  if (!arm.view) return;
  pen.fillStyle = style.getPropertyValue("--spike");
  const high = height - band - 3;
  for (const key of arm.view.touched) {
    const tall = arm.view.intensity(key) * high;
    if (tall > 0) pen.fillRect(x(key), height - band - 1 - tall, Math.max(x(1), 1.25), tall);
  }
  pen.fillStyle = style.getPropertyValue("--ink");
  pen.fillRect(x(arm.rows[arm.view.n].position), 0, 1.5, height);
}

// Shows what is known of a token under the pointer.
function fillTip(tip, arm, key, chosen) {
  const region = arm.regions[arm.arrays.key_region[key]];
  const lines = [element("code", "token", quoted(arm.tokens[key]))];
  const fact = (name, text) => {
    const line = element("div", name);
    line.append(element("span", "", name), element("b", "", text));
    lines.push(line);
  };
  fact("position", `#${key}`);
  fact("region", seen(region.name));
  const { view } = arm;
  if (view) {
    const at = arm.rows[view.n].position;
    if (key > at) fact("weight", "comes after the row");
    else if (key < view.range[0]) fact("weight", "outside the window");
    else if (view.raw[key] > 0) {
      fact("weight", weightText(view.raw[key]));
      fact("share", view.counts(key) ? percent(view.share(key)) : "sink, left out");
    } else fact("weight", `below the ${arm.top} largest kept`);
  }
  const row = arm.rowAt.get(key);
  const own = row === undefined ? "No row was captured for this token." : view && view.n === row
    ? `The row shown: it ${chosen.pinned ? "is pinned" : "reads what is shaded"}; next comes ${quoted(arm.tokens[key + 1] ?? "")}.`
    : chosen.pinned ? "Has a row: click to pin this one." : "Has a row.";
  lines.push(element("p", "", own));
  tip.replaceChildren(...lines);
}

function placeTip(tip, rectangle) {
  tip.hidden = false;
  const [width, height] = [tip.offsetWidth, tip.offsetHeight];
  const left = Math.min(Math.max(8, rectangle.left), document.documentElement.clientWidth - width - 8);
  const below = rectangle.bottom + 8;
  const top = below + height < window.innerHeight ? below : Math.max(8, rectangle.top - height - 8);
  tip.style.setProperty("left", `${left}px`);
  tip.style.setProperty("top", `${top}px`);
}
