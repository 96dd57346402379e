// Panels of which one is seen. Source: the tabs pattern of WAI-ARIA's authoring practices.

import { el } from "./dom.js";

let made = 0;

/** Tabs with these `[label, panel]`; `node` holds them. */
export class Tabs {
  constructor(label, panels) {
    const group = `tabs-${(made += 1)}`;
    this.tabs = panels.map(([name], place) =>
      el(
        "button",
        { type: "button", role: "tab", id: `${group}-${place}`, "aria-controls": `${group}-${place}-panel` },
        name,
      ),
    );
    this.panels = panels.map(([, panel], place) =>
      el("div", { role: "tabpanel", id: `${group}-${place}-panel`, "aria-labelledby": `${group}-${place}` }, panel),
    );
    const list = el("div", { class: "tabs", role: "tablist", "aria-label": label }, this.tabs);
    list.addEventListener("click", (event) => this.open(this.tabs.indexOf(event.target.closest("button"))));
    list.addEventListener("keydown", (event) => this.step(event));
    this.node = el("div", {}, list, this.panels);
    this.open(0);
  }

  open(place) {
    if (place < 0) return;
    for (const [number, tab] of this.tabs.entries()) {
      tab.setAttribute("aria-selected", number === place);
      tab.tabIndex = number === place ? 0 : -1;
      this.panels[number].hidden = number !== place;
    }
  }

  step(event) {
    const here = this.tabs.indexOf(event.target);
    const last = this.tabs.length - 1;
    const next = { ArrowRight: here === last ? 0 : here + 1, ArrowLeft: here || last + 1, Home: 0, End: last }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    const place = event.key === "ArrowLeft" ? next - 1 : next;
    this.open(place);
    this.tabs[place].focus();
  }
}
