// Makes elements. What comes from elsewhere only ever becomes text: no function here takes markup.

import { writeAge, writeMoment } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes, listeners under `on`, and children: nodes, text, or nothing. */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same in SVG. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(node, { on = {}, ...attributes }, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (/^on|^style$|^srcdoc$/i.test(name)) throw new TypeError(`${name} is no attribute to be set from here`);
    if (value === true) node.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(name, String(value));
  }
  for (const [type, listener] of Object.entries(on)) node.addEventListener(type, listener);
  node.append(...flat(children));
  return node;
}

function flat(children) {
  return children.flat(Infinity).filter((one) => one !== null && one !== undefined && one !== false);
}

/** The node, with these children only. */
export function replace(node, ...children) {
  node.replaceChildren(...flat(children));
  return node;
}

/** A button; `kind` is `main`, `plain`, `danger` or nothing. */
export function button(label, act, { kind = "", ...attributes } = {}) {
  return el("button", { type: "button", class: kind, on: { click: act }, ...attributes }, label);
}

/** A labelled field: the label's text, the control, and a hint that is read with it. */
export function field(label, control, hint = "") {
  const id = control.id || `field-${(field.count = (field.count || 0) + 1)}`;
  control.id = id;
  if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
  return el(
    "div",
    { class: "field" },
    el("label", { for: id }, label),
    control,
    hint && el("p", { class: "hint", id: `${id}-hint` }, hint),
  );
}

/** A menu of choices, each `value` or `[value, label]`. */
export function choice(name, options, attributes = {}) {
  const made = options.map((one) => (Array.isArray(one) ? one : [one, one]));
  return el("select", { name, ...attributes }, ...made.map(([value, label]) => el("option", { value }, label)));
}

/** How long ago a moment was; which moment exactly, to those who ask. */
export function age(moment) {
  return el("time", { datetime: moment, title: writeMoment(moment) }, writeAge(moment));
}

/** A word for a state, coloured and readable without colour. */
export function badge(state) {
  return el("span", { class: `badge ${state}` }, state);
}

/** Terms and what they are; what is null is left out. */
export function terms(pairs) {
  const known = pairs.filter(([, value]) => value !== null && value !== undefined && value !== "");
  return el("dl", { class: "terms" }, ...known.map(([term, value]) => [el("dt", {}, term), el("dd", {}, value)]));
}

/** A table in a frame that scrolls sideways by itself; `rows` are lists of cells. */
export function table(caption, heads, rows, attributes = {}) {
  const body = rows.map((cells) =>
    el("tr", {}, ...cells.map((cell, place) => el("td", { "data-head": heads[place] }, cell))),
  );
  const made = el(
    "table",
    attributes,
    el("caption", { class: "unseen" }, caption),
    el("thead", {}, el("tr", {}, ...heads.map((head) => el("th", { scope: "col" }, head)))),
    el("tbody", {}, ...body),
  );
  return el("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": caption }, made);
}
