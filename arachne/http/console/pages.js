// Going through a list page by page, with the cursors the service gives.

import { button, el } from "./dom.js";
import { attempt } from "./notices.js";

/** The pages of a list: `load(cursor)` gives one, `show(page)` shows it, `bar` has the buttons. */
export class Pages {
  constructor(load, show) {
    this.load = load;
    this.show = show;
    this.cursors = [null];
    this.newer = button("Newer", (event) => attempt(event.target, () => this.go(-1)));
    this.older = button("Older", (event) => attempt(event.target, () => this.go(1)));
    this.bar = el("nav", { class: "row pages", "aria-label": "Pages", hidden: true }, this.newer, this.older);
  }

  /** From the beginning. */
  first() {
    this.cursors = [null];
    return this.again();
  }

  /** The page that is shown, as it is now. */
  async again() {
    const page = await this.load(this.cursors.at(-1));
    this.following = page.next_cursor;
    this.newer.disabled = this.cursors.length === 1;
    this.older.disabled = !this.following;
    this.bar.hidden = this.newer.disabled && this.older.disabled;
    this.show(page);
  }

  go(step) {
    if (step > 0) this.cursors.push(this.following);
    else this.cursors.pop();
    return this.again();
  }
}
