"use strict";
// Names in the page are anybody's: they are only ever moved as text, never read as markup.

// What is said of a thing that is pointed at. Without this script the browser shows the same, a second later.
const tip = document.getElementById("tip");
for (const title of document.querySelectorAll("svg title")) {
  title.parentNode.dataset.tip = title.textContent;
  title.remove();
}
function tell(event) {
  const at = event.target.closest?.("[data-tip]");
  tip.hidden = !at;
  if (!at) return;
  if (tip.textContent !== at.dataset.tip) tip.textContent = at.dataset.tip;
  const left = Math.min(event.clientX + 14, innerWidth - tip.offsetWidth - 8);
  const above = event.clientY - tip.offsetHeight - 12;
  tip.style.left = Math.max(8, left) + "px";
  tip.style.top = (above < 8 ? event.clientY + 18 : above) + "px";
}
document.addEventListener("pointermove", tell);
document.addEventListener("pointerdown", tell);
document.addEventListener("scroll", () => { tip.hidden = true; }, true);
document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
document.documentElement.addEventListener("pointerleave", () => { tip.hidden = true; });

// Columns that sort: numbers begin with the largest, words with the first. Rows that are equal keep their order.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  const body = table.tBodies[0];
  heads.forEach((head, column) => {
    const number = "number" in head.dataset;
    const value = (row) => {
      const cell = row.cells[column];
      const text = cell.dataset.v ?? cell.textContent;
      return number ? parseFloat(text.replaceAll(",", "").replace("\u2212", "-")) || 0 : text.toLowerCase();
    };
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const before = head.getAttribute("aria-sort");
      const down = before ? before === "ascending" : number;
      const rows = [...body.rows].map((row) => [value(row), row]);
      rows.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0) * (down ? -1 : 1));
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...rows.map(([, row]) => row));
    });
  });
  if (body.rows.length > 15) filter(table, body);
}

function filter(table, body) {
  const field = document.createElement("input");
  field.type = "search";
  field.className = "filter";
  field.placeholder = "Find a tool";
  field.setAttribute("aria-label", "Find a tool");
  field.addEventListener("input", () => {
    const wanted = field.value.trim().toLowerCase();
    for (const row of body.rows) row.hidden = !row.cells[0].textContent.toLowerCase().includes(wanted);
  });
  table.closest("section").prepend(field);
}
