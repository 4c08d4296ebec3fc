// SPDX-License-Identifier: Apache-2.0

// What needs an operator, and which command cures it.

import { bytes, clock, count, isFinal, location, needsOperator, volumeOf, ago } from './words.js';

// Parts of the status that say in one number what is found here one by one.
const counted = ['hosts', 'locks', 'moves', 'overlays', 'domains'];

const plain = /^[A-Za-z0-9_][\w.-]*$/;

/** findings returns what needs an operator: what does now, and then what should be looked at. */
export function findings(site, program) {
  const found = [];
  const add = (level, key, title, text, ...commands) => {
    found.push({ level, key, title, text: text ?? '', commands: commands.filter(Boolean) });
  };
  // A name with anything in it that a shell could take for something else is in no command.
  const command = (...parts) => (parts.every((p) => plain.test(p) || /^--[a-z-]+$/.test(p)) ? [program, ...parts].join(' ') : null);
  const named = (thing) => (plain.test(thing.name) ? thing.name : thing.id);
  const repair = (i) => (i.differs && i.state === 'stopped' ? command('instance', 'repair', named(i)) : null);
  const runs = (i) => i.differs && ['running', 'paused'].includes(i.state);

  ofStatus(site, add);
  for (const m of site.migrations ?? []) ofMove(m, add, command);
  for (const i of site.instances ?? []) {
    if (i.state === 'error') add('act', `instance ${i.id}`, `Instance ${i.name} is in error`, i.note, repair(i), command('instance', 'show', named(i)));
    else if (runs(i)) add('act', `instance ${i.id}`, `Instance ${i.name} runs with disks that are not where its volumes are`, i.note, command('instance', 'show', named(i)));
    else if (i.note) add('look', `instance ${i.id}`, `Instance ${i.name} is not as it was left`, i.note, repair(i), command('instance', 'show', named(i)));
  }
  for (const v of site.volumes ?? []) {
    if (v.status === 'error') add('act', `volume ${v.id}`, `Volume ${v.name} is in error`, 'Its making or deletion was cut off.', command('volume', 'show', named(v)));
  }
  for (const o of site.ops ?? []) {
    if (o.state === 'needs_operator' && !o.migration_id) {
      add('act', `op ${o.id}`, `Operation ${o.kind}${o.subject ? ` of ${o.subject}` : ''} has stopped`, o.error?.message, command('op', 'show', o.id));
    }
  }
  for (const h of site.hosts ?? []) ofHost(h, add, command);
  for (const p of site.pools ?? []) ofPool(p, add, command);
  ofDrains(site, add, command);
  return found.filter((f) => f.level === 'act').concat(found.filter((f) => f.level !== 'act'));
}

function ofStatus(site, add) {
  const parts = (site.status?.parts ?? []).filter((p) => !counted.includes(p.name) || (p.name === 'hosts' && p.status === 'fail'));
  for (const [about, checks] of [['status', parts], ['doctor', site.checks ?? []]]) {
    for (const c of checks) {
      if (c.status !== 'ok') add(c.status === 'fail' ? 'act' : 'look', `${about} ${c.name}`, `${c.name}: ${c.message}`, c.advice);
    }
  }
}

function ofMove(m, add, command) {
  const volume = volumeOf(m);
  const ref = m.src_attachment_id || m.id;
  const which = command('volume', 'which', plain.test(m.volume_name ?? '') ? m.volume_name : m.volume_id);
  const cancel = command('migration', 'cancel', ref);
  const complete = m.dst_attachment_id ? command('migration', 'complete', ref, m.dst_attachment_id) : command('migration', 'complete', ref);
  const key = `move ${m.id}`;
  const why = m.error?.message;
  if (m.state === 'orphaned') {
    add('act', key, `The move of volume ${volume} has lost its host`, `${why ? `${why}. ` : ''}Decide which copy is kept; the page "A host is lost" says how.`,
      which, command('migration', 'abandon', '--help'));
  } else if (m.state === 'needs_operator' && m.method === 'save') {
    const [verb, at] = m.phase === 'cancelling' ? ['cancel', m.src] : ['complete', m.dst];
    add('act', key, `The move of volume ${volume} waits`, `${why ? `${why}. ` : ''}Its data is at ${location(at)}. Mend what is wrong, then try again.`,
      command('migration', verb, m.id));
  } else if (needsOperator(m)) {
    add('act', key, `The move of volume ${volume} has stopped`, `${why ? `${why}. ` : ''}Nothing more is done unasked, and nothing was deleted.`, which);
  } else if (m.guest_not_resumed) {
    add('act', key, `The guest of volume ${volume} stands still`, m.guest_not_resumed, which);
  } else if (m.chain_problem) {
    // The cure is from the daemon whose page this is: a registry passes on no commands of hosts.
    add('act', key, `Somebody else has changed the disk of volume ${volume}`, m.chain_problem.message, ...(m.chain_problem.cure ? [m.chain_problem.cure] : []), which);
  } else if (m.guest_paused) {
    add('act', key, `The guest of volume ${volume} stands still`, `${m.guest_paused} Make room where the overlay is (${bytes(m.overlay_bytes)}), or end the move.`, complete, cancel);
  } else if (m.error && !isFinal(m)) {
    const copy = command('migration', 'copy', ref); // of a whole move, that goes on to its end
    const started = m.external_copy ? [complete] : m.composite ? [copy] : [copy, complete];
    const again = { started, copied: [complete] }[m.state] ?? [];
    const first = m.error.code === 'chain_changed' ? [which] : [];
    add('act', key, `The move of volume ${volume} is ${m.state} and does not go on`,
      `${m.stopped_at ? `Since ${clock(m.stopped_at)} UTC. ` : ''}${why}`, ...first, ...again, cancel);
  }
}

function ofHost(h, add, command) {
  const key = `host ${h.id}`;
  const show = command('host', 'show', plain.test(h.name) ? h.name : h.id);
  if (h.status === 'suspect') {
    add('act', key, `Host ${h.name} is silent`,
      `Its last report came ${ago(h.last_seen_at)}. What it holds stays held. If it is gone for good, make sure that it cannot write, and fence it.`,
      show, command('host', 'fence', '--help'));
  } else if (h.status === 'fenced') {
    add('look', key, `Host ${h.name} is fenced, and in epoch ${h.epoch}`, 'What it held stays held until it is let go of.',
      command('attachment', 'list', '--host', plain.test(h.name) ? h.name : h.id));
  } else if (h.behind) {
    add('look', key, `Host ${h.name} has not come back since the registry was restored`, 'Start its volferryd: volumes that it may have are given to nobody.', show);
  }
}

function ofPool(p, add, command) {
  const key = `pool ${p.host} ${p.name}`;
  if (!p.active) {
    add('look', key, `Pool ${p.name} of host ${p.host} is not active`, `On that host: virsh pool-start ${plain.test(p.name) ? p.name : 'POOL'}`);
  } else if (p.capacity_bytes > 0 && p.free_bytes < p.capacity_bytes / 20) {
    add('look', key, `Pool ${p.name} of host ${p.host} is nearly full`, `${bytes(p.free_bytes)} of ${bytes(p.capacity_bytes)} are free.`, command('volume', 'list', '--pool', p.name));
  }
}

function useText(u) {
  const host = u.host ? ` of host ${u.host}` : '';
  if (u.unknown) return `It is not known what ${u.domain ? `domain ${u.domain}` : 'domains'}${host} need there: ${u.unknown}`;
  if (u.volume) return `Volume ${u.volume}${host} is not in the pool, and its image ${u.path} leads there by a symbolic link`;
  return `Domain ${u.domain}${host} has ${u.path} as its ${u.what}`;
}

function ofDrains(site, add, command) {
  const seen = new Set();
  const inPool = new Map((site.volumes ?? []).map((v) => [v.id, v.location.pool]));
  for (const d of site.drains ?? []) { // newest first
    if (seen.has(d.pool)) continue;
    seen.add(d.pool);
    const left = d.volumes.filter((v) => ['skipped', 'failed'].includes(v.state) && inPool.get(v.volume_id) === d.pool);
    if (d.state === 'paused') {
      add('look', `drain ${d.id}`, `The drain of pool ${d.pool} is paused`, '', command('drain', 'resume', d.id));
    } else if (left.length > 0 && d.state !== 'stopped') {
      const whys = left.slice(0, 3).map((v) => `${v.volume_name}: ${v.error?.message ?? v.state}`);
      if (left.length > whys.length) whys.push(`and ${left.length - whys.length} more`);
      add('act', `drain ${d.id}`, `The drain of pool ${d.pool} leaves ${count(left.length, 'volume')} there`, whys.join('\n'), command('drain', 'show', d.id));
    }
    const needs = d.volumes.filter((v) => v.error?.details?.base_image || v.error?.details?.image_below).map((v) => v.error.message)
      .concat((d.uses ?? []).map(useText));
    if (needs.length > 0 && d.state !== 'stopped') {
      const whys = needs.slice(0, 3);
      if (needs.length > whys.length) whys.push(`and ${needs.length - whys.length} more`);
      add('act', `needs ${d.id}`, `Pool ${d.pool} is still needed`, whys.join('\n'), command('drain', 'show', d.id));
    }
  }
}
