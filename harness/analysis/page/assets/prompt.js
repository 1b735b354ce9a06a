// Prompts: their regions, what the arms have in common, and what each has alone.

const META = JSON.parse(document.getElementById("meta").textContent);
const PLAIN_REGIONS = new Set(["system", "tools", "user", "assistant", "follow_up", "bar", "template"]);

// The group of a region, as tables and figures group them: calls of the ruled tool by what was asked for.
function groupOf(region, arm) {
  if (PLAIN_REGIONS.has(region)) return region;
  const [kind, ...rest] = region.split(":");
  const ends = kind === "call" ? "calls" : "results";
  const about = rest.join(":");
  if (about === `${arm.tool}:${arm.target}`) return `target_${ends}`;
  return about.startsWith(`${arm.tool}:`) ? `other_${ends}` : `unruled_${ends}`;
}

function regionName(region, arm) {
  if (region === "bar") return arm.bar === "placebo" ? "bar: placebo" : `bar: ${arm.bar}`;
  return Object.hasOwn(META.regions, region) ? META.regions[region] : region;
}

// [region, text] stretches of an arm as elements, the bar marked.
function stretchesOf(parts, arm, texts) {
  const all = document.createDocumentFragment();
  for (const [region, number] of parts) {
    const block = element("div", `stretch g-${groupOf(region, arm)}`);
    block.append(element("span", "region", breakable(regionName(region, arm))));
    block.append(element(region === "bar" ? "mark" : "span", "words", seen(texts[number])));
    all.append(block);
  }
  return all;
}

// Where all arms begin and end alike: [stretches at the beginning, stretches at the end].
function common(arms) {
  const prompts = arms.map((arm) => arm.prompt ?? []);
  const shortest = Math.min(...prompts.map((prompt) => prompt.length));
  const alike = (at) => prompts.every((prompt) => {
    const [mine, first] = [prompt.at(at), prompts[0].at(at)];
    return mine[0] === first[0] && mine[1] === first[1];
  });
  let before = 0;
  while (before < shortest && alike(before)) before++;
  let after = 0;
  while (after < shortest - before && alike(-1 - after)) after++;
  return [before, after];
}

// The stretches of `mine` that `base` lacks, and the other way round, by their longest common subsequence.
function difference(base, mine) {
  const same = (a, b) => a[0] === b[0] && a[1] === b[1];
  const lengths = Array.from({ length: base.length + 1 }, () => new Uint16Array(mine.length + 1));
  for (let i = base.length - 1; i >= 0; i--) {
    for (let j = mine.length - 1; j >= 0; j--) {
      lengths[i][j] = same(base[i], mine[j]) ? lengths[i + 1][j + 1] + 1 : Math.max(lengths[i + 1][j], lengths[i][j + 1]);
    }
  }
  const found = [];
  let [i, j] = [0, 0];
  while (i < base.length || j < mine.length) {
    if (i < base.length && j < mine.length && same(base[i], mine[j])) {
      found.push(["same", mine[j++]]);
      i++;
    } else if (j < mine.length && (i === base.length || lengths[i][j + 1] >= lengths[i + 1][j])) found.push(["added", mine[j++]]);
    else found.push(["missing", base[i++]]);
  }
  return found;
}

// A folded part that is filled when it is first opened.
function folded(summary, fill, name) {
  const made = element("details", name);
  made.append(element("summary", "", summary));
  made.addEventListener("toggle", () => {
    if (made.open && made.childElementCount === 1) made.append(fill());
  });
  return made;
}

function promptBlock(parts, arm, texts) {
  const made = element("div", "prompt");
  made.append(stretchesOf(parts, arm, texts));
  return made;
}
