// SPDX-License-Identifier: Apache-2.0

// Sizes, times and states in the words of volferryctl.

const units = ['B', 'KiB', 'MiB', 'GiB', 'TiB', 'PiB', 'EiB'];

export function bytes(n) {
  let unit = 0;
  while (Math.abs(n) >= 1023.95 && unit < units.length - 1) {
    n /= 1024;
    unit++;
  }
  return n.toFixed(1).replace(/\.0$/, '') + units[unit];
}

export function duration(seconds) {
  const s = Math.max(0, seconds);
  if (s < 1) return `${Math.round(s * 1000)}ms`;
  if (s < 10) return `${s.toFixed(1).replace(/\.0$/, '')}s`;
  if (s < 60) return `${Math.floor(s)}s`;
  if (s < 3600) return two(s / 60, 'm', s % 60, 's');
  if (s < 86400) return two(s / 3600, 'h', (s % 3600) / 60, 'm');
  return two(s / 86400, 'd', (s % 86400) / 3600, 'h');
}

function two(big, bigUnit, small, smallUnit) {
  const rest = Math.floor(small);
  return Math.floor(big) + bigUnit + (rest > 0 ? rest + smallUnit : '');
}

/** ago says how long before now a time of the API was. */
export function ago(time) {
  if (!time) return '-';
  const seconds = (Date.now() - Date.parse(time)) / 1000;
  if (seconds < 1) return 'now';
  const [size, unit] = [[86400, 'd'], [3600, 'h'], [60, 'm'], [1, 's']].find(([size]) => seconds >= size);
  return `${Math.floor(seconds / size)}${unit} ago`;
}

/** clock writes a time of the API for people, in UTC. */
export function clock(time) {
  return time ? new Date(time).toISOString().slice(0, 19).replace('T', ' ') : '-';
}

export const percent = (done, total) => (total > 0 ? Math.floor(Math.min(1, Math.max(0, done / total)) * 100) : 0);

export function count(n, noun) {
  return `${n} ${noun}${n === 1 ? '' : 's'}`;
}

export function location(l) {
  return l.pool && l.name ? `${l.pool}/${l.name}` : l.path || l.pool || '-';
}

export const volumeOf = (move) => move.volume_name || move.volume_id;

export const isFinal = (move) => ['completed', 'cancelled', 'error'].includes(move.state);

export const needsOperator = (move) => move.state === 'needs_operator' || move.state === 'orphaned';

/** movesBytes says whether the counts of bytes are about the present phase of a move. */
export function movesBytes(move) {
  return !isFinal(move) && ['clone', 'copy', 'flush', 'verify', 'fold', 'copying'].includes(move.phase);
}

/** stalls says for how long the guest of a move stood still. */
export function stalls(move) {
  const parts = Object.entries({ start: move.stall_ms?.start, switch: move.stall_ms?.switch })
    .filter(([, ms]) => ms !== null && ms !== undefined)
    .map(([at, ms]) => `${at} ${duration(ms / 1000)}`);
  return parts.join(', ') || '-';
}

/** copied says how far a move is: how much, how fast, how long it still takes. */
export function copied(move) {
  const rate = move.rate_bytes_per_second;
  const left = move.bytes_total - move.bytes_done;
  const parts = [`${percent(move.bytes_done, move.bytes_total)}%`, `${bytes(move.bytes_done)} of ${bytes(move.bytes_total)}`];
  if (rate > 0 && left > 0) parts.push(`${bytes(rate)}/s`, `${duration(left / rate)} left`);
  return parts.join(' · ');
}
