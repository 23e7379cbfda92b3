// What is known of an engine, from the events of /engine/events or of a recording. Knows no clock and no
// page: `seconds` are those of the engine.

export const DRIVE = 0, READING = 1, MEMORY = 2, DEVICE = 3;
const LOCATIONS = {drive: DRIVE, reading: READING, memory: MEMORY, device: DEVICE};
const SECTIONS = ['counters', 'answers', 'cache', 'lookahead', 'drafts', 'memory', 'machine'];
const WINDOW = 1.5;     // seconds a rate is taken over
export const HISTORY = 60;  // seconds of samples
const EVERY = 0.25;     // seconds between two of them

export class EngineState extends EventTarget {
  isKnown = false;
  seconds = 0;
  model = {};
  layers = [];              // {layer, experts, top_k, expert_bytes, first}
  locations = new Uint8Array(0);
  layerHits = [];           // since somebody looks on
  layerMisses = [];
  samples = [];             // {seconds, tokens, prompt, drive, memory, hits}
  peaks = {};               // the highest of each
  #recent = [];             // [seconds, counters] of the last moments

  // Throws where an event is not what it should be: a recording may come from anywhere.
  apply(name, data) {
    if (name === 'state') this.#begin(data);
    else if (name === 'change' && this.isKnown) this.#change(data);
  }

  #begin(data) {
    const same = this.isKnown && data.model.name === this.model.name && data.seconds >= this.seconds &&
      data.locations.length === this.locations.length;
    let first = 0;
    this.layers = data.layers.map((layer) => {
      const placed = {...layer, first};
      first += layer.experts;
      return placed;
    });
    if (!(first <= 1_000_000) || data.locations.length !== first) throw new Error('the state does not name a place for each expert');
    this.model = data.model;
    this.locations = Uint8Array.from(data.locations, (digit) => Number(digit) & 3);
    this.#take(data);
    if (!same) {
      this.layerHits = this.layers.map(() => 0);
      this.layerMisses = this.layers.map(() => 0);
      this.samples = [];
      this.peaks = {};
      this.#recent = [];
    }
    this.isKnown = true;
    this.#note();
    this.dispatchEvent(new Event(same ? 'whole' : 'begin'));
  }

  #take(data) {
    this.seconds = data.seconds;
    for (const name of SECTIONS) if (data[name] !== undefined) this[name] = data[name];
  }

  #change(data) {
    this.#take(data);
    for (const [name, ids] of Object.entries(data.moved)) {
      for (const id of ids) this.locations[id] = LOCATIONS[name];
    }
    for (const id of data.hits) ++this.layerHits[this.layerOf(id)];
    for (const id of data.misses) ++this.layerMisses[this.layerOf(id)];
    this.#note();
    this.dispatchEvent(new CustomEvent('change', {detail: data}));
  }

  layerOf(id) {
    let low = 0, high = this.layers.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.layers[middle].first <= id) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  #note() {
    this.#recent.push([this.seconds, this.counters]);
    while (this.#recent.length > 2 && this.#recent[1][0] < this.seconds - 2 * WINDOW) this.#recent.shift();
  }

  // Per second, over the last moment before `now`; hits: a share, null where nothing was asked for.
  rates(now = this.seconds) {
    const from = now - WINDOW;
    const before = this.#at(from), after = this.#at(now);
    if (!before || !after) return {tokens: 0, prompt: 0, drive: 0, memory: 0, hits: null};
    const per = (name) => Math.max(0, (after[name] - before[name]) / WINDOW);
    const hits = after.hits - before.hits, misses = after.misses - before.misses;
    return {
      tokens: per('tokens'), prompt: per('prompt_tokens'), drive: per('bytes_read'), memory: per('bytes_used'),
      hits: hits + misses > 0 ? hits / (hits + misses) : null,
    };
  }

  // The counters at a moment, between two events.
  #at(seconds) {
    const events = this.#recent;
    if (events.length === 0) return null;
    let i = events.length - 1;
    while (i > 0 && events[i][0] > seconds) --i;
    const [t0, a] = events[i];
    if (i + 1 >= events.length || seconds <= t0) return a;
    const [t1, b] = events[i + 1];
    // A long silence was no work: what came after it is not spread over it.
    const share = t1 - t0 > 0.5 ? (seconds < t1 - 0.2 ? 0 : (seconds - t1 + 0.2) / 0.2) : (seconds - t0) / (t1 - t0);
    return Object.fromEntries(Object.keys(b).map((name) => [name, a[name] + share * (b[name] - a[name])]));
  }

  // Brings the samples up to `now`: the engine says nothing while it rests.
  sample(now) {
    if (!this.isKnown) return;
    let last = this.samples.at(-1)?.seconds ?? now - EVERY;
    if (now - last > HISTORY) last = now - HISTORY;
    while (last + EVERY <= now) {
      last += EVERY;
      const rates = this.rates(last);
      this.samples.push({seconds: last, ...rates});
      for (const [name, value] of Object.entries(rates)) this.peaks[name] = Math.max(this.peaks[name] ?? 0, value ?? 0);
    }
    while (this.samples.length > HISTORY / EVERY) this.samples.shift();
  }

  // How many experts are where.
  tally() {
    const n = [0, 0, 0, 0];
    for (const location of this.locations) ++n[location];
    return n;
  }

  reset() {
    this.isKnown = false;
    this.samples = [];
    this.#recent = [];
    this.dispatchEvent(new Event('reset'));
  }
}
