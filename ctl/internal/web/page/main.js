// SPDX-License-Identifier: Apache-2.0

// The page reads what it shows now and then, and at once when the audit trail, which it
// follows, tells of something new.

import { findings } from './attention.js';
import { byID, setText } from './dom.js';
import { newestEnded, showDrains, showFindings, showHosts, showMoves, showPools, showTrail } from './sections.js';
import { Refused, eventsAfter, follow, lastEvents, read, readAll } from './upstream.js';
import { duration, isFinal } from './words.js';

const eventsShown = 200;
const pause = { tick: 500, moving: 2_000, idle: 10_000, slow: 60_000, checks: 300_000, atLeast: 1_000, firstRetry: 500, lastRetry: 10_000 };

const sleep = (ms) => new Promise((done) => { setTimeout(done, ms); });

const site = { events: [], ended: new Map() };
const trail = { state: 'connecting', error: null };
let about = { command: 'volferryctl' };
let over = false; // no more answers will come
let allEnded = false; // the moves that were over before the page was opened are known

const moving = () => (site.migrations ?? []).some((m) => !isFinal(m)) || (site.drains ?? []).some((d) => d.state === 'running');
const often = () => (moving() ? pause.moving : pause.idle);

// What is read: where from, how often, and which section is left out where it is absent.
const sources = [
  { noun: 'status', path: '/v1/status', every: () => pause.idle },
  { noun: 'migrations', path: '/v1/migrations', every: often, section: 'moves' },
  { noun: 'drains', path: '/v1/drains', every: often, section: 'drains' },
  { noun: 'hosts', path: '/v1/hosts', every: () => pause.idle, section: 'hosts' },
  { noun: 'pools', path: '/v1/pools', every: () => pause.idle, section: 'pools' },
  { noun: 'instances', path: '/v1/instances', every: () => pause.idle },
  { noun: 'volumes', path: '/v1/volumes', every: () => pause.slow },
  // The registry would have to ask its hosts for these.
  { noun: 'ops', path: '/v1/ops', every: () => pause.idle, daemonOnly: true },
  { noun: 'checks', path: '/v1/doctor', every: () => pause.checks, daemonOnly: true, quiet: true },
].map((s) => ({ ...s, last: -Infinity, touched: false, absent: false, error: null, staleSeconds: null }));

async function load(source) {
  source.touched = false;
  source.last = performance.now();
  try {
    const document = await readAll(source.path, source.noun);
    const before = site[source.noun];
    site[source.noun] = document[source.noun];
    source.error = null;
    source.staleSeconds = document.stale ? document.age_seconds : null;
    if (source.noun === 'migrations') await keepEnded(before);
  } catch (e) {
    if (!(e instanceof Refused)) throw e;
    over ||= e.over;
    source.absent = e.absent;
    source.error = e;
  }
}

// keepEnded remembers the moves that are over. All are read once, and then each that is
// not open any more.
async function keepEnded(before) {
  const open = new Set(site.migrations.map((m) => m.id));
  const gone = (before ?? []).filter((m) => !open.has(m.id));
  try {
    const ended = allEnded ? await Promise.all(gone.map(whole)) : (await readAll('/v1/migrations?all=1', 'migrations')).migrations;
    for (const m of ended.filter(isFinal)) site.ended.set(m.id, m);
    if (!allEnded) for (const m of await Promise.all(newestEnded(site).map(wholeOrRow))) site.ended.set(m.id, m);
    allEnded = true;
  } catch (e) {
    if (!(e instanceof Refused)) throw e;
    allEnded = false; // they are read again with the next list
  }
}

/** whole is a move with what it has cost, which a registry's list has not: it stands with the host. */
const whole = async (m) => (await read(`/v1/migrations/${encodeURIComponent(m.id)}`)).migration;

async function wholeOrRow(m) {
  try {
    return await whole(m);
  } catch (e) {
    if (e instanceof Refused) return m;
    throw e;
  }
}

function isDue(source) {
  if (source.absent || (source.daemonOnly && site.status?.program !== 'volferryd')) return false;
  const since = performance.now() - source.last;
  return since >= source.every() || (source.touched && since >= pause.atLeast);
}

async function keepReading() {
  while (!over) {
    await Promise.all(sources.filter(isDue).map(load));
    draw();
    await sleep(pause.tick);
  }
}

async function keepFollowing() {
  let wait = pause.firstRetry;
  while (!over) {
    try {
      await catchUp();
      for await (const e of follow(site.events[0]?.seq ?? 0, () => { trail.state = 'live'; wait = pause.firstRetry; })) {
        site.events.unshift(e);
        site.events.length = Math.min(site.events.length, eventsShown);
        touch(e);
      }
      trail.error = null;
    } catch (e) {
      if (!(e instanceof Refused)) throw e;
      over ||= e.over;
      trail.error = e;
      if (e.absent) {
        trail.state = 'absent';
        return;
      }
    }
    trail.state = 'broken';
    await sleep(wait);
    wait = Math.min(2 * wait, pause.lastRetry);
  }
}

// catchUp makes sure that the newest event on the page is of the trail that is followed:
// after a restore of the registry it may be another one.
async function catchUp() {
  const newest = site.events[0];
  if (newest) {
    const [same] = await eventsAfter(newest.seq - 1);
    if (same?.seq === newest.seq && same.at === newest.at) return;
  }
  site.events = (await lastEvents(eventsShown)).slice(-eventsShown).reverse();
  for (const source of sources) source.touched = true;
}

// touch has what an event may have changed read again soon.
function touch(event) {
  const kind = (event.object ?? '').split('/')[0];
  for (const source of sources) {
    if (source.quiet) continue;
    source.touched ||= source.noun !== 'volumes' || ['volume', 'attachment', 'migration', 'drain'].includes(kind);
  }
}

function draw() {
  showLink();
  const st = site.status;
  const whose = st?.host ? ` of host ${st.host}` : '';
  setText(byID('target'), st ? `${st.program} ${st.version}${whose}, at ${about.target}` : about.target ?? '');
  if (st) {
    const found = findings(site, about.command);
    showFindings(found);
    const now = found.filter((f) => f.level === 'act').length;
    const title = `${now > 0 ? `(${now}) ` : ''}Volferry: ${st.host || 'registry'}`;
    if (document.title !== title) document.title = title;
  }
  for (const s of sources) {
    if (s.section) showSection(s.section, s.absent, s.error);
  }
  showSection('trail', trail.state === 'absent', trail.error);
  if (site.migrations) showMoves(site);
  if (site.drains) showDrains(site);
  if (site.hosts) showHosts(site);
  if (site.pools) showPools(site);
  if (trail.state !== 'connecting') showTrail(site);
}

function showSection(id, absent, error) {
  const section = byID(id);
  section.hidden = absent;
  document.querySelector(`nav a[href="#${id}"]`).parentElement.hidden = absent;
  const problem = section.querySelector(':scope > .problem');
  problem.hidden = !error || absent;
  setText(problem, error ? `This is as it was when it was read last: ${error.message}.` : '');
}

let lostSince = null;

function showLink() {
  const error = sources[0].error;
  if (!error) lostSince = null;
  else lostSince ??= new Date();
  const [kind, text] = over ? ['bad', "The command was ended: start 'volferryctl web' again, and open the link that it prints."]
    : error ? ['bad', `Connection lost at ${lostSince.toISOString().slice(11, 19)} UTC: ${error.message}. What is shown is as of then; trying again.`]
      : trail.state === 'live' ? ['good', 'Live']
        : trail.state === 'absent' ? ['good', 'Connected']
          : trail.state === 'broken' ? ['warn', 'Connected, but the audit trail does not come; trying again.']
            : ['wait', 'Connecting'];
  const link = byID('link');
  setText(link, text);
  link.dataset.kind = kind;

  const old = Math.max(...sources.map((s) => s.staleSeconds ?? -1));
  const stale = byID('stale');
  stale.hidden = old < 0;
  if (old >= 0) setText(stale, `The registry is away: what it knows is as of ${duration(old)} ago.`);
}

async function start() {
  try {
    about = await read('/about');
  } catch (e) {
    if (!(e instanceof Refused)) throw e;
    over = e.over;
  }
  setText(byID('about'), `volferryctl ${about.version ?? ''} serves this page, which only reads.`);
  draw();
  await Promise.all([keepReading(), keepFollowing()]);
  draw();
}

start();
