// A search's excerpts come from the article, not from the buttons above it; a term's, from its explanation.
window.addEventListener("DOMContentLoaded", () => {
  if (typeof Search === "undefined" || !Search.htmlToText) return;
  const whole = Search.htmlToText;
  Search.htmlToText = (text, anchor) => {
    const page = new DOMParser().parseFromString(text, "text/html");
    const main = page.querySelector('[role="main"]');
    const article = page.querySelector("article.bd-article");
    if (!main || !article) return whole(text, anchor);
    if (anchor && anchor.startsWith("#index-")) {
      let node = page.getElementById(anchor.slice(1));
      while (node && !node.textContent.trim()) node = node.nextElementSibling || node.parentElement?.nextElementSibling;
      return (node?.closest("p") || node || article).textContent;
    }
    main.replaceChildren(article);
    return whole(page.documentElement.outerHTML, anchor) || article.textContent;
  };
});
