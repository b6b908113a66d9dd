/* Tables that are sorted by their titles' buttons, and shown a page at a time: a browser is slow with 10,000 rows. */

const ROWS = 25;

/*
 * A table in a place of the page.
 *
 * Columns: {title, value: row => what is sorted by, shown: value => text, told: value => the same in full, number: whether it
 * stands right, long: whether it is a sentence, act: row => what a click on the cell does}. The first column titles its rows.
 */
class Table {
  constructor(place, caption, columns, titled = false) {
    this.columns = columns;
    this.rows = [];
    this.sorted = { column: null, descending: false };
    this.page = 0;
    this.caption = element("caption", titled ? {} : { class: "hidden" }, element("span", {}, caption));
    this.heads = columns.map((column, place) => this.#head(column, place));
    this.body = element("tbody");
    const table = element("table", {}, this.caption, element("thead", {}, element("tr", {}, ...this.heads)), this.body);
    this.where = element("span", { role: "status" });
    this.back = element("button", { type: "button", onclick: () => this.#turn(-1) }, "Previous");
    this.forth = element("button", { type: "button", onclick: () => this.#turn(1) }, "Next");
    this.pages = element("div", { class: "pages" }, this.back, this.forth, this.where);
    this.scroll = element("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption }, table);
    place.replaceChildren(this.scroll, this.pages);
    const watch = new ResizeObserver(() => this.#reachable());
    watch.observe(this.scroll);
    watch.observe(table);
  }

  show(rows) {
    this.rows = rows;
    this.page = 0;
    this.#sort();
    this.#draw();
  }

  #head(column, place) {
    const sort = element("button", { type: "button", onclick: () => this.#by(place) }, column.title);
    return element("th", { scope: "col", class: column.number ? "number" : null }, sort);
  }

  #by(place) {
    const { column, descending } = this.sorted;
    this.sorted = { column: place, descending: column === place && !descending };
    this.page = 0;
    this.#sort();
    this.#draw();
  }

  #sort() {
    const { column, descending } = this.sorted;
    this.order = this.rows;
    if (column === null) return;
    const { value, number } = this.columns[column];
    const keyed = this.rows.map((row) => [value(row), row]);
    const text = new Intl.Collator("en", { numeric: true });
    const least = number ? (a, b) => a - b : (a, b) => text.compare(a, b);
    const sign = descending ? -1 : 1;
    // What is not known comes last, either way.
    keyed.sort(([a], [b]) => (a === null || b === null ? (a === null) - (b === null) : sign * least(a, b)));
    this.order = keyed.map(([, row]) => row);
  }

  #turn(pages) {
    this.page += pages;
    this.#draw();
  }

  #draw() {
    this.heads.forEach((head, place) => {
      const { column, descending } = this.sorted;
      if (place === column) head.setAttribute("aria-sort", descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
      const arrow = place === column ? (descending ? " ▼" : " ▲") : "";
      head.firstChild.textContent = this.columns[place].title + arrow;
    });
    const first = this.page * ROWS;
    this.body.replaceChildren(...this.order.slice(first, first + ROWS).map((row) => this.#row(row)));
    const last = Math.min(first + ROWS, this.order.length);
    this.where.textContent = this.order.length
      ? `Rows ${shownCount(first + 1)} to ${shownCount(last)} of ${shownCount(this.order.length)}`
      : "No rows";
    this.back.disabled = this.page === 0;
    this.forth.disabled = last >= this.order.length;
    this.pages.hidden = this.order.length > 0 && this.order.length <= ROWS;
  }

  /* Only what scrolls needs to be reached by the keyboard. */
  #reachable() {
    this.scroll.tabIndex = this.scroll.scrollWidth > this.scroll.clientWidth ? 0 : -1;
  }

  #row(row) {
    return element("tr", {}, ...this.columns.map((column, place) => {
      const value = column.value(row);
      const text = (column.shown ?? String)(value);
      const content = column.act ? element("button", { type: "button", onclick: () => column.act(row) }, text) : text;
      const style = column.number ? "number" : column.long ? "long" : null;
      const title = column.told ? column.told(value) : text;
      if (place === 0) return element("th", { scope: "row", class: style, title }, content);
      return element("td", { class: style, title }, content);
    }));
  }
}

/* A table that is filled once someone looks at it. */
class LazyTable {
  constructor(place, caption, columns, rows) {
    this.table = new Table(place, caption, columns);
    this.rows = rows;
    this.details = place.closest("details");
    this.details.addEventListener("toggle", () => this.#fill());
  }

  change() {
    this.stale = true;
    this.#fill();
  }

  #fill() {
    if (this.stale && this.details.open) {
      this.stale = false;
      this.table.show(this.rows());
    }
  }
}

const numberColumn = (title, value, shown = shownCount) => ({ title, value, shown, number: true });
const durationColumn = (title, value) => ({ ...numberColumn(title, value, shortDuration), told: shownDuration });
const timeColumn = (title, value) => ({ ...numberColumn(title, value, shortTime), told: shownTime });
