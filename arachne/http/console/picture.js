// The picture as displayed, with the boxes over it.

import { call, isOver } from "./api.js";
import { el, replace, svg } from "./dom.js";
import { isUnsure } from "./links.js";
import { writeShare } from "./words.js";

/** The picture of a result; `node` shows it, `boxes` are drawn over it. */
export class Picture {
  constructor(result, links) {
    const { width, height } = result.image;
    this.size = { width, height };
    this.boxes = svg("svg", {
      class: "boxes",
      viewBox: `0 0 ${width} ${height}`,
      preserveAspectRatio: "none",
      "aria-hidden": true,
      focusable: false,
    });
    for (const [number, pair] of links.pairs.entries()) {
      const points = pair.points.map((point) => point.join(",")).join(" ");
      pair.box = svg("polygon", { points, class: isUnsure(pair.sure) ? "unsure" : null, "data-link": number });
      this.boxes.append(pair.box);
    }
    this.sheet = el("div", { class: "sheet" }, this.blank(), this.boxes);
    this.saying = el("figcaption", { class: "hint saying" }, this.describe());
    this.note = el("p", { class: "hint", hidden: true });
    this.node = el(
      "figure",
      {},
      el("div", { class: "row tools" }, this.toggle("Boxes", true, "bare"), this.toggle("Full size", false, "full", true)),
      el("div", { class: "canvas", tabindex: 0, role: "region", "aria-label": "Picture" }, this.sheet),
      this.saying,
      this.note,
    );
    links.onlight = (pair) => {
      const sure = pair?.sure === null || pair?.sure === undefined ? "" : ` · ${writeShare(pair.sure)} sure`;
      this.saying.textContent = pair ? `${pair.told}${sure}` : this.describe();
    };
  }

  /** The picture is fetched and shown; what the browser can't show, as the service draws it. */
  async load(url, page, signal) {
    const first = page === null || page === 0;
    const sources = [
      ...(first ? [[`${url}/original`, {}]] : []),
      [`${url}/result`, { format: "png", ...(page === null ? {} : { page }) }],
    ];
    for (const [source, query] of sources) {
      try {
        const blob = await (await call("GET", source, { query, signal })).blob();
        const drawn = source.endsWith("/result");
        if (await this.show(blob, signal)) {
          if (drawn && first) this.tell("The browser can't show the original; this is how the service draws it.");
          return;
        }
      } catch (error) {
        if (isOver(error)) return;
        this.tell(error.message);
        if (error.status === 410) return;
      }
    }
  }

  /** Whether the browser can show these bytes. */
  async show(blob, signal) {
    const address = URL.createObjectURL(blob);
    signal.addEventListener("abort", () => URL.revokeObjectURL(address));
    const { width, height } = this.size;
    const image = el("img", { src: address, alt: "The screenshot; its text stands beside it", width, height });
    try {
      await image.decode();
    } catch {
      return false;
    }
    replace(this.sheet, image, this.boxes);
    return true;
  }

  describe() {
    const { width, height } = this.size;
    return `${width} × ${height} pixels · Point at a word to find it.`;
  }

  tell(note) {
    this.note.textContent = note;
    this.note.hidden = false;
  }

  blank() {
    const { width, height } = this.size;
    return svg("svg", { class: "blank", viewBox: `0 0 ${width} ${height}`, width, height, "aria-hidden": true });
  }

  toggle(label, checked, name, whenChecked = false) {
    const box = el("input", { type: "checkbox", checked });
    box.addEventListener("change", () => this.sheet.classList.toggle(name, box.checked === whenChecked));
    return el("label", { class: "check" }, box, label);
  }
}
