// What the page of prunedata report --review does. All that comes from data is set as text, never as HTML.
"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const items = data.items, classes = data.classes, place = "prunedata-review-" + data.key;
const named = new Map(classes), byId = new Map(items.map(item => [item.id, item]));
const one = id => document.getElementById(id);
const LAST = 50, FEW = 10, SHOWN = 12;
let log = [], kept = true, saved = true, found = [], chosen = 0;
// What was said, in order: {id, said: "wrong" | "right" | "skip", was, label}. The last word on a sample counts.
function valid(entry) {
  return entry && Number.isInteger(entry.id) && ["wrong", "right", "skip"].includes(entry.said)
    && [entry.was, entry.label].every(text => typeof text === "string");
}
function read() {
  try {
    const text = localStorage.getItem(place), list = text ? JSON.parse(text) : [];
    log = Array.isArray(list) ? list.filter(valid) : [];
  } catch (error) { kept = !(error instanceof DOMException); }
}
function keep() {
  try { localStorage.setItem(place, JSON.stringify(log)); kept = true; } catch (error) { kept = false; }
  saved = false;
}
function verdicts() {
  const last = new Map();
  for (const entry of log) { last.delete(entry.id); last.set(entry.id, entry); }
  return last;
}
function current(last) { return items.find(item => !last.has(item.id)); }
const make = (tag, text = "") => Object.assign(document.createElement(tag), {textContent: text});
function called(value) { return named.has(value) ? named.get(value) : value; }
function picture(item) {
  const box = one("sample");
  box.replaceChildren();
  if (item.image) box.append(Object.assign(make("img"), {src: item.image, alt: "Sample " + item.id}));
  if (item.row) {
    const table = make("table"), body = make("tbody");
    for (const [name, value] of item.row) {
      const line = make("tr"), head = Object.assign(make("th"), {scope: "row"}), cell = make("td");
      head.append(make("bdi", name));
      cell.append(make("bdi", value));
      line.append(head, cell);
      body.append(line);
    }
    table.append(body);
    box.append(table);
  } else if (item.text !== null) box.append(make("blockquote", item.text));
  one("label").replaceChildren(item.label === null ? make("em", "not known") : make("bdi", item.label));
  one("guess").textContent = item.guess === null ? "" : called(item.guess);
  one("which").textContent = "sample " + item.id + (item.name === null ? "" : ", ");
  if (item.name !== null) one("which").append(make("bdi", item.name));
}
function judged(last) { return [...last.values()].filter(entry => entry.said !== "skip"); }
function told(last) {
  const all = judged(last), wrong = all.filter(entry => entry.said === "wrong").length;
  const recent = all.slice(-LAST), bad = recent.filter(entry => entry.said === "wrong").length;
  const seen = items.filter(item => last.has(item.id)).length, skipped = last.size - all.length;
  one("bar").max = items.length;
  one("bar").value = seen;
  one("progress").textContent = seen + " of " + items.length + " seen: " + wrong + " wrong, "
    + (all.length - wrong) + " right, " + skipped + " skipped.";
  const share = recent.length ? Math.round(100 * bad / recent.length) : 0;
  one("share").textContent = !recent.length ? "" : (recent.length < LAST ? "Of the " + recent.length
    : "Of the last " + LAST) + " judged, " + share + " % were wrong."
    + (recent.length === LAST && share <= FEW ? " Few are wrong from here on: you can stop." : "");
  one("kept").textContent = kept ? "Kept in this browser. Save a file to use it."
    : "This browser keeps nothing of this page: save a file before you close it.";
}
function show(speak) {
  const last = verdicts(), item = current(last);
  closeSearch();
  told(last);
  one("one").hidden = !item;
  one("end").hidden = Boolean(item);
  one("again").hidden = ![...last.values()].some(entry => entry.said === "skip" && byId.has(entry.id));
  for (const name of ["wrong", "right", "another", "skip"]) one(name).disabled = !item;
  one("another").disabled = !item || !classes.length;
  for (const name of ["looks", "accept"]) one(name).hidden = !item || item.guess === null;
  one("undo").disabled = !log.length;
  if (item) picture(item);
  one("spoken").textContent = (speak ? speak + ". " : "")
    + (item ? "Sample " + item.id + ", labeled " + (item.label === null ? "not known" : item.label)
      + (item.guess === null ? "" : ", looks like " + called(item.guess)) : "All are seen.");
}
function say(said, label) {
  const item = current(verdicts());
  if (!item) return;
  const {id, place: row = "", key = ""} = item;
  log.push({id, said, was: item.was === null ? "" : item.was, label: label || "", row, key});
  keep();
  show(said === "wrong" && label ? "Is " + called(label) : said);
}
function undo() {
  if (!log.length) return;
  const entry = log.pop();
  keep();
  if (byId.has(entry.id)) {  // it comes next
    const at = items.findIndex(item => item.id === entry.id);
    items.unshift(...items.splice(at, 1));
  }
  show("Undone");
}
function again() {
  log = log.filter(entry => entry.said !== "skip" || !byId.has(entry.id));
  keep();
  show("Those that were skipped");
}

// another class: type to find it
function openSearch() {
  if (!current(verdicts()) || !classes.length) return;
  one("search").hidden = false;
  one("find").value = "";
  list();
  one("find").focus();
}
function closeSearch() {
  const inside = one("search").contains(document.activeElement);
  one("search").hidden = true;
  if (inside) one("main").focus();
}
function list() {
  const typed = one("find").value.trim().toLowerCase(), item = current(verdicts());
  const rank = ([value, name]) => {
    const text = name.toLowerCase();
    if (text === typed || value.toLowerCase() === typed) return 0;
    return text.startsWith(typed) ? 1 : text.includes(typed) ? 2 : 3;
  };
  found = classes.filter(entry => entry[0] !== item.was && rank(entry) < 3);
  found.sort((a, b) => rank(a) - rank(b));
  const more = found.length - SHOWN;
  one("more").textContent = more > 0 ? more + " more: type on" : found.length ? "" : "no such class";
  found = found.slice(0, SHOWN);
  mark(0);
}
function mark(at) {
  chosen = at;
  one("classes").replaceChildren(...found.map(([value, name], at) => {
    const line = Object.assign(make("li"), {id: "class-" + at, role: "option", ariaSelected: String(at === chosen)});
    line.append(make("bdi", name));
    line.addEventListener("click", () => say("wrong", value));
    return line;
  }));
  if (found.length) one("find").setAttribute("aria-activedescendant", "class-" + chosen);
  else one("find").removeAttribute("aria-activedescendant");
}
function searchKey(event) {
  if (event.isComposing) return;
  const step = {ArrowDown: 1, ArrowUp: -1}[event.key];
  if (step && found.length) mark((chosen + step + found.length) % found.length);
  else if (event.key === "Enter") {
    if (found.length && !event.repeat) say("wrong", found[chosen][0]);
  } else if (event.key === "Escape") {
    closeSearch();
    one("main").focus();
  } else return;
  event.preventDefault();
}

// the file
function cell(text) { return /[",\r\n]|^\s|\s$/.test(text) ? '"' + text.replaceAll('"', '""') + '"' : text; }
function file() {
  const all = judged(verdicts());
  const more = ["row", "key"].filter(name => all.some(one => one[name]));  // where the label is in the user's own data
  const cells = one => [String(one.id), one.said, one.was, one.label, ...more.map(name => one[name] || "")];
  const lines = all.map(one => cells(one).map(cell).join(","));
  return [["sample,verdict,was,label", ...more].join(","), ...lines].join("\r\n") + "\r\n";
}
function save() {
  const href = URL.createObjectURL(new Blob([file()], {type: "text/csv"}));
  const link = Object.assign(make("a"), {href, download: "verdicts.csv"});
  document.body.append(link);
  link.click();
  link.remove();
  setTimeout(() => URL.revokeObjectURL(href), 10000);
  saved = true;
  one("spoken").textContent = "Saved verdicts.csv";
}

// keys and buttons
const does = {
  accept: () => say("wrong", current(verdicts()).guess), wrong: () => say("wrong"), right: () => say("right"), another: openSearch, skip: () => say("skip"), undo, file: save,
  again,
};
const keys = new Map(Object.keys(does).map(name => [one(name).getAttribute("aria-keyshortcuts").toLowerCase(), name]));
for (const name in does) one(name).addEventListener("click", does[name]);
document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.repeat) return;
  if (event.target === one("find")) return;
  const enter = event.key === "Enter";
  if (enter && event.target.closest("button")) return;  // which it presses
  // On a keyboard of other letters the key that lies at the same place counts.
  const latin = /^[a-z]$/i.test(event.key) ? event.key : /^Key[A-Z]$/.test(event.code) ? event.code[3] : "";
  const name = keys.get(enter ? "enter" : latin.toLowerCase());
  if (!name || one(name).hidden) return;
  event.preventDefault();
  one(name).click();  // which does nothing if it is disabled
});
one("find").addEventListener("input", list);
one("find").addEventListener("keydown", searchKey);
addEventListener("storage", event => { if (event.key === place) { read(); show(); } });
addEventListener("beforeunload", event => { if (!kept && !saved) event.preventDefault(); });
read();
show();
})();
