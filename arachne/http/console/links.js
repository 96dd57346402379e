// Boxes in the picture and the text that was read in them: pointing at one lights up the other.

const LIT = "lit";
const UNSURE = 0.6;

/** Pairs of a box and its text, by number. */
export class Links {
  constructor() {
    this.pairs = [];
    this.lit = null;
  }

  /** The number of a new box; `told` is what is said of it, `sure` how sure the reader was, or null. */
  add(points, told, sure = null) {
    this.pairs.push({ points, told, sure, box: null, text: null });
    return this.pairs.length - 1;
  }

  /** This node shows the text of a box. */
  bind(number, node) {
    node.dataset.link = number;
    node.tabIndex = -1;
    this.pairs[number].text = node;
    return node;
  }

  /** Pointing, focus and arrow keys work from now on. */
  connect(boxes, text) {
    const number = (event) => event.target.closest?.("[data-link]")?.dataset.link;
    for (const side of [boxes, text]) {
      side.addEventListener("pointerover", (event) => this.light(number(event), side !== text));
      side.addEventListener("pointerleave", () => this.light(undefined));
    }
    text.addEventListener("focusin", (event) => this.light(number(event)));
    text.addEventListener("keydown", (event) => this.step(event, text));
    boxes.addEventListener("click", (event) => {
      const pair = this.pairs[number(event)];
      if (pair?.text) this.stand(pair.text);
    });
    this.stop = this.pairs.find((pair) => pair.text)?.text;
    if (this.stop) this.stop.tabIndex = 0;
  }

  /** The pair with this number is lit, and no other. */
  light(number, scroll = false) {
    const pair = number === undefined ? null : this.pairs[number];
    if (pair === this.lit) return;
    for (const node of [this.lit?.box, this.lit?.text]) node?.classList.remove(LIT);
    for (const node of [pair?.box, pair?.text]) node?.classList.add(LIT);
    this.lit = pair;
    if (scroll && pair?.text) reveal(pair.text);
    this.onlight?.(pair);
  }

  /** One tab stop for all words; arrows go from one to the next, up and down by lines, Home and End to the ends. */
  step(event, text) {
    const all = [...text.querySelectorAll("[data-link]")];
    const here = all.indexOf(event.target);
    if (here < 0) return;
    const next = {
      ArrowRight: () => all[here + 1],
      ArrowLeft: () => all[here - 1],
      ArrowDown: () => all.slice(here + 1).find((one) => line(one) !== line(all[here])),
      ArrowUp: () => all.slice(0, here).findLast((one) => line(one) !== line(all[here])),
      Home: () => all[0],
      End: () => all.at(-1),
    }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const node = next();
    if (node) this.stand(node);
  }

  stand(node) {
    if (this.stop) this.stop.tabIndex = -1;
    this.stop = node;
    node.tabIndex = 0;
    node.focus();
  }
}

function line(node) {
  return node.closest("[data-line], td, th, li, p");
}

/** The text comes into view within its own panel; the page itself stays where the pointer is. */
function reveal(node) {
  const panel = node.closest("[role=tabpanel]");
  const { top, bottom } = panel.getBoundingClientRect();
  const at = node.getBoundingClientRect();
  if (at.top < top) panel.scrollTop -= top - at.top;
  else if (at.bottom > bottom) panel.scrollTop += at.bottom - bottom;
}

/** Whether a reader was so unsure of what it read that this is shown; null where nobody says. */
export function isUnsure(sure) {
  return sure !== null && sure < UNSURE;
}

/** The corners of a box `[x, y, width, height]`. */
export function corners([x, y, width, height]) {
  return [
    [x, y],
    [x + width, y],
    [x + width, y + height],
    [x, y + height],
  ];
}
