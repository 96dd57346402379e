// Going through a list page by page, with the cursors the service gives.

import { button, el } from "./dom.js";
import { attempt } from "./notices.js";

/** The pages of a list: `load(cursor)` gives one, `show(page)` shows it, `bar` has the buttons. */
export class Pages {
  constructor(load, show) {
    this.load = load;
    this.show = show;
    this.cursors = [null];
    this.newer = button("Newer", (event) => attempt(event.target, () => this.open(this.cursors.slice(0, -1))));
    this.older = button("Older", (event) => attempt(event.target, () => this.open([...this.cursors, this.following])));
    this.bar = el("nav", { class: "row pages", "aria-label": "Pages", hidden: true }, this.newer, this.older);
  }

  /** From the beginning. */
  first() {
    return this.open([null]);
  }

  /** The page that is shown, as it is now. */
  again() {
    return this.open([...this.cursors]);
  }

  /** The page after the last of these cursors; nothing changes where it can't be had, or another is asked for since. */
  async open(cursors) {
    this.asked = cursors;
    const page = await this.load(cursors.at(-1));
    if (this.asked !== cursors) return;
    this.cursors = cursors;
    this.following = page.next_cursor;
    this.newer.disabled = this.cursors.length === 1;
    this.older.disabled = !this.following;
    this.bar.hidden = this.newer.disabled && this.older.disabled;
    this.show(page);
  }
}
