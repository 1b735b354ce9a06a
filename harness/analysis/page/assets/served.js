// All cells of the run, asked of the local server page by page.

async function ask(path, query) {
  const answer = await fetch(`${path}?${new URLSearchParams(query)}`);
  const found = await answer.json();
  if (!answer.ok) {
    document.getElementById("count").textContent = seen(String(found.error ?? answer.status));
    throw new Error(found.error);
  }
  return found;
}

browse({
  facets: () => ask("/api/facets", {}),
  find: (chosen, text, page) => ask("/api/cells", { ...chosen, text, page }),
  point: (id) => ask("/api/point", { id }),
});
