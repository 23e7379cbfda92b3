// The words of the engine's panel: what its governors have decided, and who holds its memory.
import {bytes, percent, plural} from '../base/text.js';

export function lookaheadText({width, fixed, on_trial, gain, precision, wait_share}) {
  if (fixed) return width > 0 ? `Prefetches ${plural(width, 'expert')} per token for the next layer, as asked for.` : 'Prefetches nothing, as asked for.';
  if (on_trial) return width > 0 ? `Trying ${plural(width, 'expert')} per token ahead.` : 'Trying without prefetching.';
  const waits = wait_share > 0.005 ? ` ${percent(wait_share)} of the time is spent waiting for the drive.` : '';
  if (width === 0) return `Prefetches nothing: it would not pay now.${waits}`;
  const pays = gain > 0.005 ? `, which saves ${percent(gain)} of the time` : '';
  const right = precision > 0 ? ` ${percent(precision)} of them were used.` : '';
  return `Prefetches ${plural(width, 'expert')} per token for the next layer${pays}.${right}${waits}`;
}

export function draftsText({most, depth, on_trial, gain}) {
  if (most === 0) return 'Drafts are off.';
  if (on_trial) return depth > 0 ? `Trying ${plural(depth, 'drafted token')} per pass.` : 'Trying without drafts.';
  if (depth === 0) return 'No drafts: they would not pay now.';
  return `${plural(depth, 'drafted token')} per pass${gain > 0.005 ? `, ${percent(gain)} faster than without` : ''}.`;
}

const CAUSES = {machine: 'the machine ran short of memory', cgroup: 'its control group was full', stalls: 'programs waited for memory'};

export function cacheText({bytes: reserved, capacity_bytes: capacity, held_bytes: held, shrunk, grown, cause}) {
  if (reserved === 0) return 'There are no experts to keep.';
  const full = capacity < reserved ? `${bytes(held)} of ${bytes(capacity)} filled; ${bytes(reserved - capacity)} were given back` : `${bytes(held)} of ${bytes(reserved)} filled`;
  if (shrunk + grown === 0) return `${full}.`;
  return `${full}. Shrunk ${plural(shrunk, 'time')}${cause ? ` because ${CAUSES[cause] ?? cause}` : ''}, grown ${plural(grown, 'time')}.`;
}

const OWNERS = {
  'expert cache': 'experts', 'expert host tier': 'experts in pinned memory',
  kernels: 'kernels', workspace: 'activations', reader: 'read buffers',
};

// [{name, bytes}], the largest first; what is too small to be seen is one.
export function memoryOwners({owners, ceiling}) {
  const all = Object.entries(owners).map(([name, size]) => ({name: OWNERS[name] ?? name, bytes: size})).sort((a, b) => b.bytes - a.bytes);
  const small = all.filter((each, i) => i > 6 || each.bytes < ceiling / 200);
  const large = all.filter((each) => !small.includes(each));
  const rest = small.reduce((sum, each) => sum + each.bytes, 0);
  return rest > 0 ? [...large, {name: small.length === 1 ? small[0].name : 'others', bytes: rest}] : large;
}

// The most tokens per second there can be with such a share of hits, when reading and computing overlap.
export function boundOf({model, machine}, hits) {
  const misses = (1 - (hits ?? 1)) * model.expert_bytes_per_token;
  const memory = (model.dense_bytes_per_token + model.expert_bytes_per_token + misses) / (machine.memory_bytes_per_second || Infinity);
  const drive = misses / (machine.drive_bytes_per_second || Infinity);
  const slowest = Math.max(memory, drive);
  return slowest > 0 ? 1 / slowest : 0;
}
