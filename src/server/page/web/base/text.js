// Numbers and times as people read them.

export function count(n) {
  return Math.round(n).toLocaleString('en-US');
}

export function decimal(n, digits = 1) {
  return n.toLocaleString('en-US', {minimumFractionDigits: digits, maximumFractionDigits: digits});
}

// Three figures at most: "0.42", "7.3", "128".
export function short(n) {
  if (!isFinite(n)) return '–';
  if (n === 0) return '0';
  const size = Math.abs(n);
  return decimal(n, size >= 99.95 ? 0 : size >= 9.995 ? 1 : 2);
}

const UNITS = ['B', 'KB', 'MB', 'GB', 'TB'];

export function bytes(n) {
  let unit = 0;
  while (n >= 999.5 && unit + 1 < UNITS.length) {
    n /= 1000;
    ++unit;
  }
  return `${unit === 0 ? Math.round(n) : short(n)} ${UNITS[unit]}`;
}

export function percent(share, digits = 0) {
  return `${decimal(100 * share, digits)} %`;
}

export function duration(seconds) {
  if (seconds < 1) return `${Math.round(1000 * seconds)} ms`;
  if (seconds < 60) return `${decimal(seconds, 1)} s`;
  const minutes = Math.floor(seconds / 60);
  return `${minutes} min ${Math.round(seconds - 60 * minutes)} s`;
}

// "0:07", "12:34"
export function clock(seconds) {
  const whole = Math.max(0, Math.floor(seconds));
  return `${Math.floor(whole / 60)}:${String(whole % 60).padStart(2, '0')}`;
}

export function plural(n, one, many = `${one}s`) {
  return `${count(n)} ${n === 1 ? one : many}`;
}

// Headings of a list by time.
export function dayOf(time, now = Date.now()) {
  const midnight = new Date(now);
  midnight.setHours(0, 0, 0, 0);
  const days = Math.ceil((midnight - time) / 86_400_000);
  if (days <= 0) return 'Today';
  if (days === 1) return 'Yesterday';
  if (days <= 7) return 'This week';
  if (days <= 31) return 'This month';
  return new Date(time).toLocaleDateString('en-US', {month: 'long', year: 'numeric'});
}

// For names of files: "2026-11-19-1407".
export function stamp(time = Date.now()) {
  const d = new Date(time), two = (n) => String(n).padStart(2, '0');
  return `${d.getFullYear()}-${two(d.getMonth() + 1)}-${two(d.getDate())}-${two(d.getHours())}${two(d.getMinutes())}`;
}

export function firstLine(text, most = 60) {
  const line = text.trim().split('\n', 1)[0].trim();
  return line.length <= most ? line : `${line.slice(0, most - 1).trimEnd()}…`;
}
