// SPDX-License-Identifier: Apache-2.0

// What the daemon or the registry answers, by way of volferryctl.

/** Refused is an answer that is no success, or none at all (status 0). */
export class Refused extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }

  /** The other side does not have this, or not for us. */
  get absent() { return this.status === 403 || this.status === 404; }

  /** volferryctl was started anew, and does not know this browser. */
  get over() { return this.status === 401; }
}

const readTimeout = 60_000;
const pageOfTrail = 1000;
const mostPages = 10_000;

async function ask(path, signal) {
  let response;
  try {
    response = await fetch(path, { signal, redirect: 'error', headers: { 'Volferry-Page-Key': localStorage.getItem('key') ?? '' } });
  } catch (e) {
    throw new Refused(0, e.name === 'TimeoutError' ? 'no answer within a minute' : 'volferryctl web does not answer');
  }
  if (response.ok) return response;
  let message = `the answer was ${response.status}`;
  try {
    message = (await response.json()).error.message;
  } catch {
    // It is not the API that answered.
  }
  throw new Refused(response.status, message);
}

/** read returns a document of the API. */
export async function read(path) {
  const response = await ask(path, AbortSignal.timeout(readTimeout));
  try {
    return await response.json();
  } catch {
    throw new Refused(0, 'the answer broke off');
  }
}

/** readAll is read for a list, which may come in pages: the document has all that is under noun, in its order. */
export async function readAll(path, noun) {
  const document = await read(path);
  const seen = new Set();
  for (let page = document; page.next;) {
    if (seen.has(page.next) || seen.size >= mostPages) throw new Refused(0, 'the list has no end');
    seen.add(page.next);
    page = await read(`${path}${path.includes('?') ? '&' : '?'}after=${encodeURIComponent(page.next)}`);
    document[noun].push(...page[noun]);
  }
  if (seen.size > 0) document[noun].sort(inOrder);
  return document;
}

/** inOrder is the order of lists: what was started comes newest first, everything else by its name. */
function inOrder(a, b) {
  const compare = (x = '', y = '') => (x < y ? -1 : Number(x > y));
  return compare(b.started_at, a.started_at) || compare(a.name, b.name) || compare(a.id ?? a.host, b.id ?? b.host);
}

/** eventsAfter returns the events of the audit trail after number since, at most 1000. */
export async function eventsAfter(since) {
  return (await read(`/v1/events?since=${since}`)).events;
}

/** lastEvents returns at least the last count events of the trail, if there are as many. */
export async function lastEvents(count) {
  // The API pages from the beginning: the end is found by leaps. There are events up to
  // before, and none after beyond.
  let before = 0;
  let beyond = Infinity;
  while (beyond - before > pageOfTrail) {
    const probe = Math.min(2 * before, Math.floor((before + beyond) / 2));
    const there = await eventsAfter(probe);
    if (there.length > 0) before = there.at(-1).seq;
    else beyond = probe;
  }
  const last = [];
  for (let since = Math.max(0, before - count); ;) {
    const some = await eventsAfter(since);
    if (some.length === 0) return last;
    last.push(...some);
    since = some.at(-1).seq;
  }
}

/** follow yields the events after number since as they happen. It calls opened once the stream is there. */
export async function* follow(since, opened) {
  const response = await ask(`/v1/events?follow=1&since=${since}`);
  opened();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = '';
  for (;;) {
    let chunk;
    try {
      chunk = await reader.read();
    } catch {
      return; // it broke off
    }
    if (chunk.done) return;
    const lines = (rest + chunk.value).split('\n');
    rest = lines.pop();
    for (const line of lines) {
      if (line !== '') yield JSON.parse(line);
    }
  }
}
