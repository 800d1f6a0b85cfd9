// Ranks what the search finds: where an error or a term is explained comes before where it is mentioned.
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
    // Words, and pairs of Chinese signs, as the index has them.
    const words = [...query.matchAll(/(?=([\u4e00-\u9fff]{2}))|([a-z0-9_.]{3,})/g)].map((m) => m[1] || m[2]);
    const heading = title.toLowerCase().split(" > ").pop().replace(/^\d\d · /, "");
    const other = (heading.match(/\b(hip|xpu|mps)\b/) || [])[0]; // an entry for fewer readers
    let sum = score;
    if (docname === "handbook/glossary" && score > 40) return 0.25 * score; // an entry of the index, a term
    if (query && !(other && !query.includes(other))) {
      const share = (words.filter((word) => heading.includes(word)).length / (words.length || 1)) ** 2;
      if (heading.includes(query)) sum += 20 + ((anchor ? 10 : 20) * query.length) / heading.length;
      else sum += 8 * share;
      if (!anchor) sum += 5 * share; // a whole page about it
      if (docname.startsWith("handbook/errors/")) sum += 6 * share;
    }
    if (/^(09_|about|index|handbook\/(claims|checkers|fidelity|benchmark))/.test(docname)) sum -= 12;
    return sum;
  },
};
