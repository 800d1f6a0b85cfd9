// Ranks what the search finds: a page that explains an error or a term comes before one that mentions it.
var Scorer = {
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
  score: ([docname, title, anchor, descr, score]) => {
    const query = (new URLSearchParams(window.location.search).get("q") || "").toLowerCase().trim();
    const heading = title.toLowerCase().split(" > ").pop();
    let sum = score;
    if (query && heading.includes(query)) sum += 20 + (20 * query.length) / heading.length;
    if (docname.startsWith("handbook/errors/")) sum += 10;
    else if (docname.startsWith("handbook/glossary")) sum += 4;
    else if (/^(handbook\/(claims|checkers|fidelity|benchmark)|about|index)/.test(docname)) sum -= 4;
    return sum;
  },
};
