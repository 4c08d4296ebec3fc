// SPDX-License-Identifier: Apache-2.0

// The sections of the page: each shows a part of what is known of the site.

import { badge, byID, element, fillTable, gauge, noGauge, optional, part, setText, words } from './dom.js';
import * as say from './words.js';

const endedShown = 20;
const drainsShown = 10;

const moveKinds = { completed: 'good', cancelled: 'plain', error: 'bad', needs_operator: 'bad', orphaned: 'bad' };

const fromTo = words('From, to', (m) => `${say.location(m.src)} → ${say.location(m.dst)}`);
const volume = words('Volume', say.volumeOf);
const paused = {
  title: 'Guest paused',
  show(cell, m) {
    setText(part(cell, 'span', 'words'), say.stalls(m));
    optional(cell, 'alarm', m.guest_paused && `stands still: ${m.guest_paused}`);
  },
};
const moveState = {
  title: 'State',
  show(cell, m) {
    badge(cell, m.state, moveKinds[m.state] ?? 'busy');
    optional(cell, 'phase', !say.isFinal(m) && !m.state.startsWith(m.phase) && m.phase);
    optional(cell, 'alarm', m.error?.message);
  },
};

const openColumns = [
  volume, words('Host', (m) => m.host || '-'), fromTo, moveState,
  {
    title: 'Progress',
    show(cell, m) {
      if (m.bytes_total > 0 && (say.movesBytes(m) || m.bytes_done > 0)) {
        gauge(cell, 'progress', { max: m.bytes_total, value: Math.min(m.bytes_done, m.bytes_total), 'aria-label': `Copied of volume ${say.volumeOf(m)}` }, say.copied(m));
      } else {
        noGauge(cell, '-');
      }
    },
  },
  paused,
  words('Exposed', (m) => (m.exposed_seconds > 0 ? `${say.duration(m.exposed_seconds)}, ${say.bytes(m.overlay_bytes)}` : '-')),
];

const endedColumns = [
  volume, fromTo, moveState, paused,
  words('Exposed', (m) => (m.exposed_seconds > 0 ? say.duration(m.exposed_seconds) : '-')),
  words('Took', (m) => (m.started_at && m.finished_at ? say.duration((Date.parse(m.finished_at) - Date.parse(m.started_at)) / 1000) : '-')),
  words('Ended', (m) => say.ago(m.finished_at)),
];

/** newestEnded are the ended moves that are shown. */
export const newestEnded = (site) =>
  [...site.ended.values()].sort((a, b) => Date.parse(b.finished_at) - Date.parse(a.finished_at)).slice(0, endedShown);

export function showMoves(site) {
  const open = site.migrations ?? [];
  setText(byID('count-moves'), open.length);
  fillTable(byID('open-moves'), openColumns, open, (m) => m.id, 'No volume moves now.');
  fillTable(byID('ended-moves'), endedColumns, newestEnded(site), (m) => m.id, 'None yet.');
  setText(byID('moves-summary'), summary(open));
}

// It is read out whenever it changes: so it changes with every ten percent.
function summary(open) {
  if (open.length === 0) return '';
  const moving = open.filter(say.movesBytes).slice(0, 3)
    .map((m) => `${say.volumeOf(m)} ${Math.floor(say.percent(m.bytes_done, m.bytes_total) / 10) * 10}%`);
  return `${say.count(open.length, 'move')} under way${moving.length > 0 ? `: ${moving.join(', ')}` : ''}`;
}

const drainColumns = [
  words('Pool', (d) => d.pool), words('To', (d) => d.to_pool),
  {
    title: 'State',
    show(cell, d) { badge(cell, d.state, { running: 'busy', paused: 'warn', done: 'good' }[d.state] ?? 'plain'); },
  },
  {
    title: 'Progress',
    show(cell, d) {
      gauge(cell, 'progress', { max: Math.max(1, d.bytes_total), value: Math.min(d.bytes_done, d.bytes_total), 'aria-label': `Moved of pool ${d.pool}` },
        `${say.percent(d.bytes_done, d.bytes_total)}% · ${say.bytes(d.bytes_done)} of ${say.bytes(d.bytes_total)}`);
    },
  },
  words('Volumes', (d) => ['moved', 'moving', 'pending', 'skipped', 'failed']
    .map((state) => [d.volumes.filter((v) => v.state === state).length, state])
    .filter(([n]) => n > 0).map(([n, state]) => `${n} ${state}`).join(', ') || '-'),
  words('Started', (d) => say.ago(d.started_at)),
];

export function showDrains(site) {
  const drains = site.drains ?? [];
  setText(byID('count-drains'), drains.filter((d) => d.state === 'running' || d.state === 'paused').length);
  fillTable(byID('drain-table'), drainColumns, drains.slice(0, drainsShown), (d) => d.id, 'No pool is being emptied.');
}

const hostColumns = [
  words('Name', (h) => h.name),
  {
    title: 'State',
    show(cell, h) {
      badge(cell, h.status, { up: h.behind ? 'warn' : 'good', suspect: 'warn', fenced: 'bad' }[h.status] ?? 'plain');
      optional(cell, 'phase', h.behind && 'behind');
    },
  },
  words('Epoch', (h) => h.epoch), words('Version', (h) => h.version || '-'), words('Last report', (h) => say.ago(h.last_seen_at)),
];

export function showHosts(site) {
  setText(byID('count-hosts'), site.hosts?.length ?? 0);
  fillTable(byID('host-table'), hostColumns, site.hosts ?? [], (h) => h.id, 'No host yet: a daemon registers its host when it starts.');
}

const poolColumns = [
  words('Name', (p) => p.name), words('Host', (p) => p.host), words('Type', (p) => p.type), words('Shared', (p) => (p.shared ? 'yes' : 'no')),
  {
    title: 'Fill',
    show(cell, p) {
      const used = p.capacity_bytes - p.free_bytes;
      optional(cell, 'alarm', !p.active && 'not active');
      if (p.capacity_bytes === 0) {
        noGauge(cell);
        return;
      }
      gauge(cell, 'meter', { min: 0, max: Math.max(1, p.capacity_bytes), low: p.capacity_bytes * 0.8, high: p.capacity_bytes * 0.95, optimum: 0, value: used, 'aria-label': `Used of pool ${p.name} of host ${p.host}` },
        `${say.percent(used, p.capacity_bytes)}% · ${say.bytes(p.free_bytes)} free of ${say.bytes(p.capacity_bytes)}`);
    },
  },
  words('As of', (p) => say.ago(p.updated_at)),
];

export function showPools(site) {
  setText(byID('count-pools'), site.pools?.length ?? 0);
  fillTable(byID('pool-table'), poolColumns, site.pools ?? [], (p) => JSON.stringify([p.host, p.name]), "No pool: make one with 'virsh pool-define-as' and 'virsh pool-start'.");
}

const eventColumns = [
  words('Number', ({ event }) => event.seq), words('When', ({ event }) => say.clock(event.at)), words('What', ({ event }) => event.what),
  words('About', ({ about }) => about),
  words('Change', ({ event: e }) => [e.from || e.to ? `${e.from || '-'} → ${e.to || '-'}` : '', e.result, e.details?.reason, e.details?.evidence]
    .filter((s) => typeof s === 'string' && s !== '').join(', ') || '-'),
  words('Who', ({ event }) => event.who || '-'), words('Host', ({ event }) => event.host || '-'),
];

export function showTrail(site) {
  const names = namesOf(site);
  const about = (e) => {
    const object = e.object || '-';
    const name = names.get(object);
    return name ? `${object.slice(0, object.indexOf('/'))} ${name}` : object;
  };
  fillTable(byID('event-table'), eventColumns, site.events.map((event) => ({ event, about: about(event) })), ({ event }) => String(event.seq), 'No event yet.');
}

/** namesOf maps the objects of events, "volume/ID", to names. */
function namesOf(site) {
  const names = new Map();
  for (const [kind, things] of [['volume', site.volumes], ['instance', site.instances], ['host', site.hosts]]) {
    for (const t of things ?? []) names.set(`${kind}/${t.id}`, t.name);
  }
  for (const v of site.volumes ?? []) {
    for (const a of v.attachments ?? []) names.set(`attachment/${a.id}`, `${v.name} at ${a.instance_name || a.instance_id}`);
  }
  for (const m of [...site.ended.values(), ...(site.migrations ?? [])]) names.set(`migration/${m.id}`, `of ${say.volumeOf(m)}`);
  return names;
}

export function showFindings(found) {
  const now = found.filter((f) => f.level === 'act').length;
  const rest = found.length - now;
  setText(byID('count-attention'), now);
  byID('count-attention').dataset.kind = now > 0 ? 'bad' : 'good';
  setText(byID('attention-summary'), found.length === 0
    ? 'Nothing needs an operator.'
    : `${now === 0 ? 'Nothing needs an operator now' : `${say.count(now, 'thing')} to act on`}${rest > 0 ? `, ${rest} to look at` : ''}.`);
  const list = byID('findings');
  const items = new Map([...list.children].map((item) => [item.dataset.key, item]));
  found.forEach((f, i) => {
    const item = items.get(f.key) ?? element('li', { 'data-key': f.key });
    items.delete(f.key);
    if (list.children[i] !== item) list.insertBefore(item, list.children[i] ?? null);
    showFinding(item, f);
  });
  for (const item of items.values()) item.remove();
}

function showFinding(item, f) {
  item.dataset.level = f.level;
  const title = part(item, 'h3', 'title');
  setText(part(title, 'span', 'level'), f.level === 'act' ? 'Act' : 'Look');
  setText(part(title, 'span', 'what'), f.title);
  optional(item, 'text', f.text);
  const commands = part(item, 'ul', 'commands');
  const lines = [...commands.children].map((li) => li.dataset.line);
  if (lines.join('\n') === f.commands.join('\n')) return;
  commands.replaceChildren(...f.commands.map(commandItem));
}

function commandItem(line) {
  const item = element('li', { 'data-line': line });
  const copy = element('button', { type: 'button', 'aria-label': `Copy the command ${line}` }, 'Copy');
  copy.addEventListener('click', async () => {
    await navigator.clipboard.writeText(line);
    setText(copy, 'Copied');
    setTimeout(() => setText(copy, 'Copy'), 2000);
  });
  item.append(element('code', {}, line), copy);
  return item;
}
