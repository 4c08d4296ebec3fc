// SPDX-License-Identifier: Apache-2.0

// Elements and tables. Every text of the other side gets onto the page by setText.

export const byID = (id) => document.getElementById(id);

// What a browser would obey, or shows as another text than it is: names come from hosts
// and guests.
const unprintable = /[\p{Cc}\p{Cf}\p{Cs}\p{Co}\p{Cn}\p{Zl}\p{Zp}]/gu;

export function setText(node, text) {
  const clean = String(text).replace(unprintable, (c) => (c === '\n' ? c : '\uFFFD'));
  if (node.textContent !== clean) node.textContent = clean;
}

export function element(tag, attributes = {}, text = '') {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  setText(node, text);
  return node;
}

/** part returns the child of node that has the class, and makes it first if it is not there. */
export function part(node, tag, name) {
  const found = node.querySelector(`:scope > .${name}`);
  if (found) return found;
  return node.appendChild(element(tag, { class: name }));
}

/** optional shows text in the child of node that has the class, or removes that. */
export function optional(node, name, text) {
  if (text) setText(part(node, 'span', name), text);
  else node.querySelector(`:scope > .${name}`)?.remove();
}

/** badge shows a word with a colour. */
export function badge(cell, word, kind) {
  const node = part(cell, 'span', 'badge');
  setText(node, word);
  node.dataset.kind = kind;
}

/** gauge shows a progress or a meter with its words. */
export function gauge(cell, tag, attributes, words) {
  const node = part(cell, tag, 'gauge');
  for (const [name, value] of Object.entries(attributes)) {
    if (node.getAttribute(name) !== String(value)) node.setAttribute(name, value);
  }
  setText(part(cell, 'span', 'words'), words);
}

/** noGauge shows words where there is nothing to measure. */
export function noGauge(cell, words) {
  cell.querySelector(':scope > .gauge')?.remove();
  optional(cell, 'words', words);
}

// Narrow screens show rows as cards (style.css), which takes the roles of tables away
// from the elements: they are said.
function makeHead(table, columns) {
  table.setAttribute('role', 'table');
  const head = table.createTHead();
  head.setAttribute('role', 'rowgroup');
  const row = head.insertRow();
  row.setAttribute('role', 'row');
  for (const c of columns) row.append(element('th', { scope: 'col', role: 'columnheader' }, c.title));
  table.createTBody().setAttribute('role', 'rowgroup');
}

function makeRow(key, columns) {
  const row = element('tr', { role: 'row', 'data-key': key });
  columns.forEach((c, i) => {
    const attributes = { role: i === 0 ? 'rowheader' : 'cell', 'data-title': c.title };
    if (i === 0) attributes.scope = 'row';
    row.append(element(i === 0 ? 'th' : 'td', attributes));
  });
  return row;
}

/**
 * fillTable shows things as rows. A column has a title and show(cell, thing), which
 * changes the cell to what the thing is now. Rows stay the same elements as long as
 * keyOf says so: what is focused or selected in one is not lost.
 */
export function fillTable(table, columns, things, keyOf, none) {
  if (!table.tHead) makeHead(table, columns);
  const body = table.tBodies[0];
  const rows = new Map([...body.rows].map((row) => [row.dataset.key, row]));
  things.forEach((thing, i) => {
    const key = keyOf(thing);
    const row = rows.get(key) ?? makeRow(key, columns);
    rows.delete(key);
    if (body.rows[i] !== row) body.insertBefore(row, body.rows[i] ?? null);
    columns.forEach((c, n) => c.show(row.cells[n], thing));
  });
  for (const row of rows.values()) row.remove();
  table.hidden = things.length === 0;
  const note = table.nextElementSibling?.classList.contains('none') ? table.nextElementSibling : null;
  if (things.length > 0) note?.remove();
  else if (!note) table.after(element('p', { class: 'none' }, none));
}

/** words is a column of a text. */
export const words = (title, text) => ({ title, show: (cell, thing) => setText(cell, text(thing)) });
