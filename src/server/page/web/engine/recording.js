// What the engine did, as a file: JSON lines, the first says what it is, each of the others is an event
// as the server sent it. And the player that gives the events again, at any speed.
import {EngineState} from './state.js';

const FORMAT = 'moeflux-engine-recording', VERSION = 1;
const MOST_EVENTS = 200_000;

export class Recorder {
  #lines = [];
  events = 0;
  #first = null;
  #last = 0;

  // Begins with the state as it is now, so that it can start at any moment.
  begin(state) {
    this.#lines = [JSON.stringify({format: FORMAT, version: VERSION, recorded: new Date().toISOString()})];
    this.#first = null;
    this.events = 0;
    this.add('state', {
      version: 1, seconds: state.seconds, model: state.model,
      layers: state.layers.map(({first, ...layer}) => layer), locations: state.locations.join(''),
      counters: state.counters, answers: state.answers, cache: state.cache, lookahead: state.lookahead, drafts: state.drafts,
      memory: state.memory, machine: state.machine,
    });
  }
  add(event, data) {
    if (event !== 'state' && event !== 'change') return;
    this.#first ??= data.seconds;
    this.#last = data.seconds;
    if (++this.events <= MOST_EVENTS) this.#lines.push(JSON.stringify({event, data}));
  }
  get seconds() { return this.#last - (this.#first ?? this.#last); }
  text() { return `${this.#lines.join('\n')}\n`; }
}

// Throws Error that says what is wrong with the file.
export function readRecording(text) {
  const lines = text.split('\n').filter(Boolean);
  let head;
  try {
    head = JSON.parse(lines[0] ?? '');
  } catch {
    throw new Error('The file is no recording of an engine.');
  }
  if (head?.format !== FORMAT) throw new Error('The file is no recording of an engine.');
  if (head.version !== VERSION) throw new Error(`The recording is of version ${head.version}; this page reads ${VERSION}.`);
  const events = lines.slice(1, MOST_EVENTS + 1).map((line, i) => {
    try {
      const {event, data} = JSON.parse(line);
      if ((event === 'state' || event === 'change') && isFinite(data.seconds)) return {event, data};
    } catch {  // said below
    }
    throw new Error(`Line ${i + 2} of the recording is not an event.`);
  });
  if (events[0]?.event !== 'state') throw new Error('The recording does not begin with a state.');
  const trial = new EngineState();
  events.forEach(({event, data}, i) => {
    try {
      trial.apply(event, data);
    } catch (error) {
      throw new Error(`Line ${i + 2} of the recording cannot be used: ${error.message}`);
    }
  });
  return {recorded: head.recorded, events};
}

export class Player extends EventTarget {
  #events;
  #state;
  #next = 0;
  #timer = 0;
  #last = 0;
  speed = 1;
  isPlaying = false;
  at = 0;  // seconds from the beginning

  constructor({events}, state) {
    super();
    this.#events = events;
    this.#state = state;
    this.begin = events[0].data.seconds;
    this.length = events.at(-1).data.seconds - this.begin;
    this.seek(0);
  }
  get now() { return this.begin + this.at; }

  seek(at) {
    at = Math.min(Math.max(at, 0), this.length);
    if (at < this.at || this.#next === 0) {
      this.#state.reset();
      this.#next = 0;
    }
    this.#goTo(at);
  }
  #goTo(at) {
    this.at = at;
    while (this.#next < this.#events.length && this.#events[this.#next].data.seconds - this.begin <= at + 1e-6) {
      const {event, data} = this.#events[this.#next++];
      this.#state.apply(event, data);
      this.#state.sample(data.seconds);
    }
    this.#state.sample(this.now);
    this.dispatchEvent(new Event('move'));
  }

  play() {
    if (this.at >= this.length) this.seek(0);
    this.isPlaying = true;
    this.#last = performance.now();
    this.#timer ||= setInterval(() => this.#tick(), 33);
    this.dispatchEvent(new Event('move'));
  }
  pause() {
    this.isPlaying = false;
    clearInterval(this.#timer);
    this.#timer = 0;
    this.dispatchEvent(new Event('move'));
  }
  #tick() {
    const time = performance.now();
    const at = this.at + this.speed * (time - this.#last) / 1000;
    this.#last = time;
    this.#goTo(Math.min(at, this.length));
    if (at >= this.length) this.pause();
  }
}
