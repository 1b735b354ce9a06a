// One arm of a decision point: what differs in its prompt, what came out, how it was scored.

const SIGNS = { good: "\u2713", bad: "\u2717", other: "\u25cb", lost: "\u2013" };

function outcomeBadge(cell) {
  const made = element("span", `badge t-${cell.tone}`);
  const sign = element("i", "", SIGNS[cell.tone] ?? "");
  sign.setAttribute("aria-hidden", "true");
  made.append(sign, ` ${seen(cell.outcome).replace(/_/g, " ")}`);
  return made;
}

const numeric = (value, digits) => (value === null || value === undefined ? "\u2013" : value.toFixed(digits));
const whole = (value) => (value === null || value === undefined ? "\u2013" : value.toLocaleString("en-US"));

function armCard(arm, control, texts, span) {
  const card = element("section", "arm");
  const head = element("header");
  head.append(element("h4", "", breakable(arm.condition)), outcomeBadge(arm));
  card.append(head, differing(arm, control, texts, span), ...reply(arm, texts), ...choices(arm), ...thoughts(arm, texts), scored(arm, texts));
  if (arm.prompt) {
    const size = arm.prompt_tokens === null ? "" : ` (${whole(arm.prompt_tokens)} tokens)`;
    card.append(folded(`Whole prompt${size}`, () => promptBlock(arm.prompt, arm, texts), "whole"));
  }
  card.append(folded("Numbers", () => numbers(arm)));
  return card;
}

// What the arm has at the place where the arms differ; `span` is what all have in common around it.
function differing(arm, control, texts, [before, after]) {
  const made = element("div", "differs");
  made.append(element("h5", "", arm.prompt ? "What differs in the prompt" : "The bar"));
  if (!arm.prompt) {
    made.append(arm.bar_text === null ? element("p", "note", "No bar.") : element("mark", "words g-bar", seen(texts[arm.bar_text])));
    return made;
  }
  const cut = (prompt) => prompt.slice(before, prompt.length - after);
  if (arm === control || !control?.prompt) {
    const rest = cut(arm.prompt);
    made.append(rest.length ? promptBlock(rest, arm, texts) : element("p", "note", "Nothing stands here."));
    return made;
  }
  const found = difference(cut(control.prompt), cut(arm.prompt));
  if (!found.some(([how]) => how !== "same")) made.append(element("p", "note", "Nothing: the same as the control."));
  const block = element("div", "prompt");
  for (const [how, part] of found) {
    const stretch = stretchesOf([part], arm, texts).firstChild;
    if (how === "same") block.append(stretch);
    else {
      const marked = element(how === "added" ? "ins" : "del", how);
      marked.append(stretch);
      block.append(marked);
    }
  }
  made.append(block);
  return made;
}

function titled(title, ...content) {
  const made = element("div", "part");
  made.append(element("h5", "", title), ...content);
  return made;
}

function reply(arm, texts) {
  if (arm.error !== null) return [titled("Error", element("pre", "words", seen(texts[arm.error])))];
  if (arm.probe === "choose" && arm.reply === null) return [];
  const made = titled("Raw output");
  const raw = arm.reply === null ? "" : texts[arm.reply];
  const thought = arm.thinking_text === null ? "" : texts[arm.thinking_text];
  const at = thought ? raw.indexOf(thought) : -1;
  const text = (words) => element("pre", "words", seen(words));
  const fold = () => {
    const size = arm.reasoning_tokens === null ? "" : ` (${arm.censored ? "\u2265 " : ""}${whole(arm.reasoning_tokens)} tokens)`;
    return folded(`Thinking${size}`, () => text(thought), "thinking");
  };
  if (!raw) made.append(element("p", "note", "The reply is empty."));
  else if (at < 0) made.append(...(thought ? [fold()] : []), text(raw));
  else {
    const [before, after] = [raw.slice(0, at), raw.slice(at + thought.length)];
    if (before.trim()) made.append(text(before));
    made.append(fold());
    if (after.trim()) made.append(text(after));
  }
  if (arm.finish === "length") made.append(element("p", "note", `Cut off at ${whole(arm.max_new_tokens)} tokens.`));
  const parts = [made];
  if (arm.calls.length) {
    const list = element("ul", "calls");
    for (const [name, given] of arm.calls) {
      const item = element("li");
      item.append(element("b", "", seen(texts[name])), element("pre", "words", seen(texts[given])));
      list.append(item);
    }
    parts.push(titled("Parsed calls", list));
  }
  if (arm.malformed !== null) parts.push(titled("Malformed calls", element("pre", "words", seen(texts[arm.malformed]))));
  return parts;
}

function choices(arm) {
  if (!arm.choices.length) return [];
  const table = element("table", "choices");
  const asked = `${arm.tool}:${arm.target}`;
  for (const [label, mass, share] of arm.choices) {
    const row = table.insertRow();
    if (label === asked) row.className = "asked";
    const bar = element("i");
    bar.style.setProperty("--w", `${Math.min(Math.max((share ?? 0) * 100, 0), 100)}%`);
    const cell = element("td");
    cell.append(bar, element("b", "", numeric(share, 3)));
    const name = element("th", "", breakable(label));
    name.scope = "row";
    row.append(name, cell, element("td", "raw", numeric(mass, 3)));
  }
  const note = element("p", "note", `Share of all choices, then the raw probability; together the choices hold ${numeric(arm.choice_mass, 3)}.`);
  return [titled("Probability of each choice", table, note)];
}

function thoughts(arm, texts) {
  if (!arm.thoughts.length) return [];
  const drawn = arm.thoughts.map((thought, n) => {
    const how = thought.censored ? ", cut by the limit" : thought.cut ? ", closed by rule" : "";
    const text = thought.text === null ? "(no text is kept)" : texts[thought.text];
    return folded(`Thought ${n + 1}: ${whole(thought.tokens)} tokens${how}`, () => element("pre", "words", seen(text)), "thinking");
  });
  return [titled("Thoughts before the choice", ...drawn)];
}

function scored(arm, texts) {
  const line = element("p", "scored");
  line.append(outcomeBadge(arm));
  if (arm.reason !== null && arm.probe !== "choose") line.append(` ${seen(texts[arm.reason])}`);
  if (arm.probe === "choose") line.append(` P(call) ${numeric(arm.p_act_norm, 3)}, log-odds ${numeric(arm.logit_act, 2)}`);
  if (arm.answer !== null) line.append(` Answer: ${whole(arm.answer)}.`);
  if (arm.parse_status && arm.parse_status !== "none") line.append(` Calls parsed: ${seen(arm.parse_status)}.`);
  return titled("Scored as", line);
}

function numbers(arm) {
  const rows = [
    ["cell", arm.cell_id], ["placement", arm.placement], ["prompt tokens", whole(arm.prompt_tokens)], ["bar tokens", whole(arm.bar_tokens)],
    ["cached tokens", whole(arm.cached_tokens)], ["reply tokens", whole(arm.completion_tokens)], ["thinking tokens", whole(arm.reasoning_tokens)],
    ["stopped by", arm.finish ?? "\u2013"], ["thinking", arm.thinking ?? "\u2013"], ["temperature", arm.temperature ?? "\u2013"], ["seed", arm.seed ?? "\u2013"],
  ];
  const list = element("dl");
  for (const [name, value] of rows) list.append(element("dt", "", name), element("dd", "", breakable(String(value ?? "\u2013"))));
  return list;
}
