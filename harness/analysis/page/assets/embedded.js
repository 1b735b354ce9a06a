// The cells that this file carries.

const SIZE = 50;

function haystack(cell, texts) {
  const parts = [cell.sample_id, ...[cell.reply, cell.bar_text, cell.reason, cell.error].map((n) => (n === null ? "" : texts[n]))];
  return parts.join("\n").toLowerCase();
}

function entry(cell, texts) {
  const text = cell.error !== null ? texts[cell.error] : cell.reply === null ? "" : texts[cell.reply];
  return {
    id: cell.cell_id, condition: cell.condition, outcome: cell.outcome, tone: cell.tone, probe: cell.probe,
    sample: cell.sample_id, p: cell.probe === "choose" ? cell.p_act_norm : null, snippet: text.slice(0, 160),
  };
}

async function embedded() {
  const { texts, cells } = JSON.parse(new TextDecoder().decode(await inflated("cells-data")));
  const hay = cells.map((cell) => haystack(cell, texts));
  return {
    of: " in this file",
    facets() {
      const found = {};
      for (const name of META.facets) {
        const counts = new Map();
        for (const cell of cells) counts.set(cell[name], (counts.get(cell[name]) ?? 0) + 1);
        found[name] = Object.fromEntries([...counts].sort((a, b) => b[1] - a[1]));
      }
      return found;
    },
    find(chosen, text, page) {
      const wanted = text.toLowerCase();
      const hits = cells.filter((cell, n) =>
        Object.entries(chosen).every(([name, value]) => cell[name] === value) && (!wanted || hay[n].includes(wanted)));
      return { total: hits.length, all: cells.length, size: SIZE, cells: hits.slice(page * SIZE, (page + 1) * SIZE).map((cell) => entry(cell, texts)) };
    },
    point(id) {
      const one = cells.find((cell) => cell.cell_id === id);
      const arms = cells.filter((cell) => cell.sample_id === one.sample_id && cell.probe === one.probe && cell.epoch === one.epoch);
      return { texts, arms };
    },
  };
}

embedded().then(browse, () => {
  document.getElementById("count").textContent = "This browser cannot unpack the cells (it has no DecompressionStream); a newer one can.";
});
