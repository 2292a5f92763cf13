// Suggests names while a statement is typed, colours its words, inserts the name of a column at a click, and prevents a
// second press of a button. It sends nothing anywhere: the names are on the page already. Without this script the page
// still has all its functions.
"use strict";

const MOST = 8;
const WORDS = [
  "SELECT WITH DIFFERENTIAL_PRIVACY OPTIONS (epsilon = 0.1)", "CREATE PRIVATE VIEW", "DROP PRIVATE VIEW", "GROUP BY",
  "GROUP BY CUBE", "WHERE", "FROM", "count(*) AS n", "count(DISTINCT", "sum(", "avg(", "dp_stderr(",
];

function suggested(names, word) {
  const start = word.toLowerCase();
  const plain = (name) => name.toLowerCase().replace(/^"/, "");
  return names.filter((hint) => plain(hint.name).startsWith(start) && plain(hint.name) !== start).slice(0, MOST);
}

function begin(area) {
  const names = [...document.querySelectorAll("#names option")].map((o) => ({ name: o.value, kind: o.textContent }));
  names.push(...WORDS.map((name) => ({ name, kind: "" })));
  const list = document.createElement("ul");
  const said = document.createElement("div");
  let chosen = -1;
  let word = "";
  Object.assign(list, { id: "suggestions", className: "suggestions", hidden: true, role: "listbox" });
  list.setAttribute("aria-label", "Names");
  Object.assign(said, { className: "unseen" });
  said.setAttribute("aria-live", "polite");
  area.setAttribute("aria-autocomplete", "list");
  area.setAttribute("aria-controls", list.id);
  area.after(list, said);

  function close() {
    list.hidden = true;
    chosen = -1;
    area.removeAttribute("aria-activedescendant");
    said.textContent = "";
  }
  function take(place) {
    const name = list.children[place].dataset.name;
    const end = area.selectionEnd;
    area.setRangeText(name, end - word.length, end, "end");
    area.dispatchEvent(new Event("names"));
    close();
    area.focus();
  }
  function choose(place) {
    chosen = (place + list.children.length) % list.children.length;
    [...list.children].forEach((item, at) => item.setAttribute("aria-selected", String(at === chosen)));
    area.setAttribute("aria-activedescendant", list.children[chosen].id);
    list.children[chosen].scrollIntoView({ block: "nearest" });
  }
  function open() {
    const before = area.value.slice(0, area.selectionEnd);
    word = (before.match(/[\p{L}_][\p{L}\p{N}_]*$/u) || [""])[0];
    const matches = word ? suggested(names, word) : [];
    list.replaceChildren(...matches.map((match, at) => {
      const item = document.createElement("li");
      const kind = document.createElement("span");
      item.textContent = match.name;
      kind.textContent = match.kind;
      item.append(kind);
      item.dataset.name = match.name;
      Object.assign(item, { id: `suggestion${at}`, role: "option" });
      item.setAttribute("aria-selected", "false");
      item.addEventListener("mousedown", (event) => { event.preventDefault(); take(at); });
      return item;
    }));
    if (!matches.length) return close();
    list.hidden = false;
    chosen = -1;
    area.removeAttribute("aria-activedescendant");
    said.textContent = matches.length === 1 ? "1 name" : `${matches.length} names`;
  }
  area.addEventListener("input", open);
  area.addEventListener("blur", close);
  area.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) return area.form.requestSubmit();
    if (list.hidden) return undefined;
    if (event.key === "ArrowDown") { event.preventDefault(); choose(chosen + 1); }
    else if (event.key === "ArrowUp") { event.preventDefault(); choose(chosen < 0 ? -1 : chosen - 1); }
    else if (event.key === "Enter" && chosen >= 0) { event.preventDefault(); take(chosen); }
    else if (event.key === "Escape") { event.preventDefault(); close(); }
    return undefined;
  });
}

const SQL = new RegExp([
  "(?<note>--[^\\n]*|/\\*[\\s\\S]*?(?:\\*/|$))", "(?<text>'(?:[^']|'')*'?)", "(?<quoted>\"(?:[^\"]|\"\")*\"?)",
  "(?<digit>\\b\\d+(?:\\.\\d+)?\\b)",
  "(?<word>\\b(?:select|with|differential_privacy|options|from|where|group|by|order|having|as|and|or|not|in|is|null|case|when"
    + "|then|else|end|join|left|right|full|on|using|union|all|distinct|limit|create|replace|private|view|drop|refresh|cube"
    + "|rollup|grouping|sets|filter|between|like|desc|asc|true|false|cast|sample)\\b)",
].join("|"), "giu");

function colour(area) {
  const shown = document.createElement("pre");
  shown.className = "colours";
  shown.setAttribute("aria-hidden", "true");
  area.before(shown);
  area.classList.add("coloured");
  function paint() {
    const parts = [];
    let end = 0;
    for (const match of area.value.matchAll(SQL)) {
      const kind = Object.keys(match.groups).find((name) => match.groups[name] !== undefined);
      if (match.index > end) parts.push(area.value.slice(end, match.index));
      const part = document.createElement("span");
      part.className = `sql-${kind}`;
      part.textContent = match[0];
      parts.push(part);
      end = match.index + match[0].length;
    }
    shown.replaceChildren(...parts, `${area.value.slice(end)}\n`);
    shown.scrollTop = area.scrollTop;
  }
  area.addEventListener("input", paint);
  area.addEventListener("scroll", () => { shown.scrollTop = area.scrollTop; });
  paint();
  return paint;
}

function offer(area, paint) {
  for (const name of document.querySelectorAll(".tables code.name")) {
    const button = document.createElement("button");
    Object.assign(button, { type: "button", className: "name", textContent: name.textContent });
    button.addEventListener("click", () => {
      area.setRangeText(name.textContent, area.selectionStart, area.selectionEnd, "end");
      area.focus();
      paint();
    });
    name.replaceWith(button);
  }
}

const area = document.getElementById("statement");
if (area) {
  begin(area);
  const paint = colour(area);
  offer(area, paint);
  area.addEventListener("names", paint);
}
for (const form of document.forms) {
  form.addEventListener("submit", () => {
    const button = form.querySelector("button");
    button.disabled = true;
    if (button.classList.contains("pay")) button.textContent = "Asked: the answer comes in a moment";
  });
}
window.addEventListener("pageshow", () => {
  for (const button of document.querySelectorAll("button:disabled")) button.disabled = false;
});
