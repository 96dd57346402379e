// What was read, as what it is: headings, paragraphs, lists, code and tables, each word linked to its box.

import { el, terms } from "./dom.js";
import { corners, isUnsure } from "./links.js";

/** Fields, description, codes and text of a result. */
export function showText(result, links) {
  const parts = [
    showFields(result.fields),
    showDescription(result.vlm, links),
    showCodes(result.codes ?? [], links),
    ...(result.blocks ?? []).map((block) => showBlock(block, result.tables ?? [], links)),
  ].filter(Boolean);
  if (!result.blocks && result.text) parts.push(el("p", { class: "lines" }, result.text));
  if (!parts.length) parts.push(el("p", {}, "No text was found."));
  return el("div", { class: "reading", role: "group", "aria-label": "Text. Arrow keys go from word to word." }, parts);
}

function showBlock(block, tables, links) {
  const grid = block.kind === "table" && tables.find((one) => String(one.bbox) === String(block.bbox));
  if (grid) return showTable(grid, block, links);
  const lines = block.lines.map((line, place) => [place > 0 && "\n", showLine(line, links)]);
  switch (block.kind) {
    case "heading":
      return el("h3", {}, lines);
    case "list":
      return el("ul", { class: "items" }, block.lines.map((line) => el("li", {}, showLine(line, links))));
    case "code":
    case "table":
      return el("pre", { class: "code", tabindex: 0, "aria-label": block.kind }, lines);
    default:
      return el("p", { class: `lines ${block.kind}` }, lines);
  }
}

/** A line with the spaces it has, code's indents among them. */
function showLine(line, links) {
  const pieces = [];
  let from = 0;
  for (const word of line.words) {
    const place = line.text.indexOf(word.text, from);
    if (place < 0) pieces.push(pieces.length ? " " : "");
    else {
      pieces.push(line.text.slice(from, place));
      from = place + word.text.length;
    }
    pieces.push(showWord(word, links));
  }
  pieces.push(line.text.slice(from));
  return el("span", { "data-line": true }, pieces);
}

function showWord(word, links) {
  const number = links.add(word.polygon, `“${word.text}” · ${word.reader}`, word.confidence);
  return links.bind(number, el("span", { class: isUnsure(word.confidence) ? "word unsure" : "word" }, word.text));
}

/** A table as a table; a cell's words are those whose middle lies in it. */
function showTable(grid, block, links) {
  const words = block.lines.flatMap((line) => line.words);
  const rows = Array.from({ length: grid.rows }, (_, row) => grid.cells.filter((cell) => cell.row === row));
  const cellOf = (cell) => {
    const attributes = {
      rowspan: cell.row_span > 1 ? cell.row_span : null,
      colspan: cell.column_span > 1 ? cell.column_span : null,
      ...(cell.row === 0 ? { scope: "col" } : {}),
    };
    return el(cell.row === 0 && cell.text ? "th" : "td", cell.text ? attributes : { ...attributes, scope: null }, fillCell(cell, words, links));
  };
  const made = el(
    "table",
    { class: "grid" },
    el("caption", { class: "unseen" }, "Table in the picture"),
    rows.map((cells) => el("tr", {}, cells.map(cellOf))),
  );
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": "Table in the picture" }, made);
}

function fillCell(cell, words, links) {
  const inside = words.filter(({ bbox: [x, y, width, height] }) => contains(cell.bbox, x + width / 2, y + height / 2));
  if (inside.map((word) => word.text).join(" ") === cell.text.replace(/\s+/g, " ")) {
    return inside.map((word, place) => [place > 0 && " ", showWord(word, links)]);
  }
  if (!cell.text) return "";
  const number = links.add(corners(cell.bbox), `“${cell.text}”`);
  return links.bind(number, el("span", { class: "word" }, cell.text));
}

function contains([x, y, width, height], left, top) {
  return left >= x && left <= x + width && top >= y && top <= y + height;
}

function showFields(fields) {
  if (!fields) return null;
  const { amount } = fields;
  const shown = [
    ["Amount", amount && `${amount.value} ${amount.currency ?? ""}`.trim()],
    ["Date", fields.datetime?.replace("T", " ")],
    ["Reference", fields.reference],
    ["Sender", fields.sender],
    ["Receiver", fields.receiver],
    ["Banks", fields.banks.join(", ")],
    ["QR code", fields.qr],
  ];
  const found = shown.some(([, value]) => value);
  return el("section", { class: "found" }, el("h3", {}, "Slip"), found ? terms(shown) : el("p", {}, "No fields were found."));
}

function showDescription(vlm, links) {
  if (!vlm) return null;
  const elements = vlm.elements.map(({ kind, label, bbox }) => {
    const node = el("span", { class: "word" }, label);
    return el("li", {}, `${kind}: `, bbox ? links.bind(links.add(corners(bbox), `${kind} “${label}”`), node) : node);
  });
  return el(
    "section",
    { class: "found" },
    el("h3", {}, "Description"),
    el("p", { class: "lines" }, vlm.description),
    elements.length > 0 && el("ul", {}, elements),
    vlm.unsupported_text.length > 0 &&
      el("p", { class: "hint" }, `Words the model claims and no reader saw: ${vlm.unsupported_text.join(", ")}`),
    el("p", { class: "hint" }, `By ${vlm.model}`),
  );
}

function showCodes(codes, links) {
  if (!codes.length) return null;
  const items = codes.map(({ kind, data, bbox }) => {
    const number = links.add(corners(bbox), `${kind} “${data}”`);
    return [kind.replaceAll("_", " ").toUpperCase(), links.bind(number, el("span", { class: "word" }, data))];
  });
  return el("section", { class: "found" }, el("h3", {}, "Codes"), terms(items));
}
