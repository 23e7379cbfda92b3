// The engine at work: the map, four measures over time, who holds the memory, what the governors decided.
// Listens only while it is shown.
import {h, iconButton, setIconButton} from '../base/dom.js';
import {bytes, count, percent, plural, short} from '../base/text.js';
import {setSetting, setting} from '../base/settings.js';
import {Chart} from './chart.js';
import {Feed} from './feed.js';
import {ExpertMap} from './map.js';
import {RecordingBar} from './recording_bar.js';
import {boundOf, cacheText, draftsText, lookaheadText, memoryOwners} from './report.js';
import {DEVICE, DRIVE, EngineState, MEMORY, READING} from './state.js';

const PLACES = [[DEVICE, 'device', 'in device memory'], [MEMORY, 'memory', 'in memory'], [READING, 'reading', 'being read'], [DRIVE, 'drive', 'on the drive']];

export class EnginePanel {
  #element;
  #app;
  #state = new EngineState();
  #feed = new Feed();
  #model = () => '';
  #map = new ExpertMap(this.#state);
  #recording = new RecordingBar(this.#state, this.#feed);
  #seconds = {engine: 0, page: 0};  // when the last event came, by both clocks
  #timer = 0;
  #title = h('h2', {}, 'Engine');
  #subtitle = h('p', {class: 'subtitle'});
  #notice = h('p', {class: 'engine-notice', hidden: true});
  #body = h('div', {class: 'engine-body'});
  #legend = h('ul', {class: 'legend', 'aria-label': 'Experts by place'});
  #measures = [
    new Measure('Tokens per second', '--chart-tokens', (s) => s.tokens + s.prompt),
    new Measure('Hits in the cache', '--chart-hits', (s) => s.hits),
    new Measure('From the drive', '--chart-drive', (s) => s.drive),
    new Measure('From memory', '--chart-memory', (s) => s.memory),
  ];
  #memory = h('div', {class: 'memory'});
  #governors = h('dl', {class: 'governors'});
  #table = h('tbody');
  #size;
  onclose = () => {};

  // model: a function that says which model to look at.
  constructor(element, app, model) {
    this.#element = element;
    this.#app = app;
    this.#model = model;
    this.#size = iconButton('expand', 'Use the whole window', () => this.show(this.mode === 'full' ? 'side' : 'full'), {class: 'icon-button wide-only'});
    const layers = h('details', {class: 'layers'}, h('summary', {}, 'By layer'), h('div', {class: 'table', tabindex: '0', role: 'group', 'aria-label': 'Experts by layer'},
      h('table', {}, h('thead', {}, h('tr', {}, ['Layer', 'In memory', 'Hits', 'Misses', 'Hit rate'].map((name) => h('th', {scope: 'col'}, name)))), this.#table)));
    this.#body.append(
      h('section', {class: 'card map-card', 'aria-label': 'Experts'}, this.#map.element, this.#legend),
      h('section', {class: 'measures', 'aria-label': 'Speed'}, this.#measures.map((each) => each.element)),
      h('section', {class: 'card memory-card'}, h('h3', {}, 'Memory'), this.#memory),
      h('section', {class: 'card governors-card'}, h('h3', {}, 'What the governors decided'), this.#governors),
      h('section', {class: 'card layers-card'}, layers));
    element.append(
      h('header', {class: 'engine-head'}, h('div', {class: 'engine-name'}, this.#title, this.#subtitle), this.#recording.buttons,
        this.#size, iconButton('close', 'Close the engine panel', () => this.show('closed'))),
      this.#recording.transport, this.#notice, this.#body);
    this.#feed.addEventListener('event', ({detail}) => this.#take(detail));
    this.#feed.addEventListener('status', ({detail}) => this.#note(detail));
    this.#state.addEventListener('begin', () => {
      this.#name();
      this.#draw();
    });
    this.#recording.addEventListener('mode', () => this.#follow());
    this.#recording.addEventListener('move', () => this.#draw());
    layers.addEventListener('toggle', () => this.#draw());
    document.addEventListener('visibilitychange', () => this.#follow());
    this.show(setting('engine'), false);
  }

  get mode() { return this.#app.dataset.engine; }
  get isOpen() { return this.mode !== 'closed'; }
  recolour() { this.#map.recolour(); }

  toggle() { this.show(this.isOpen ? 'closed' : 'side'); }

  show(mode, remember = true) {
    const wasOpen = this.isOpen;
    this.#app.dataset.engine = mode;
    this.#element.hidden = mode === 'closed';
    if (mode === 'full') this.#map.element.dataset.tall = 'true';
    else delete this.#map.element.dataset.tall;
    setIconButton(this.#size, mode === 'full' ? 'shrink' : 'expand', mode === 'full' ? 'Beside the chat' : 'Use the whole window');
    if (remember) setSetting('engine', mode);
    this.#follow();
    if (remember && mode === 'closed' && wasOpen) this.onclose();
  }

  // Listens when it is seen, unless a recording is being shown.
  #follow() {
    const listens = this.isOpen && !document.hidden && !this.#recording.isReplaying;
    if (listens) this.#feed.start(this.#model());
    else this.#feed.stop();
    const moves = this.isOpen && !document.hidden;
    if (moves) this.#timer ||= setInterval(() => this.#draw(), 250);
    else {
      clearInterval(this.#timer);
      this.#timer = 0;
    }
    this.#draw();
  }
  // Another model was chosen.
  modelChanged() { if (this.isOpen && !this.#recording.isReplaying) this.#follow(); }

  #take({name, data}) {
    if (name === 'end') return;
    this.#seconds = {engine: data.seconds, page: performance.now() / 1000};
    try {
      this.#state.apply(name, data);
    } catch (error) {
      this.#note({status: 'waiting', why: error.message});
      return;
    }
    this.#recording.take(name, data);
  }

  #note({status, why}) {
    this.#element.dataset.status = status;
    const text = status === 'waiting' ? why || 'The connection was lost; trying again.' : status === 'connecting' && !this.#state.isKnown ? 'Connecting…' : '';
    this.#notice.textContent = text;
    this.#notice.hidden = text === '';
  }

  #name() {
    const {model, layers} = this.#state;
    this.#subtitle.textContent = `${model.name} · ${plural(layers.length, 'layer')} of ${count(Math.max(0, ...layers.map((each) => each.experts)))} experts`;
    this.#subtitle.title = `${model.family}, ${model.backend}, precision ${model.precision}, keys and values ${model.kv}`;
  }

  get #now() {
    if (this.#recording.isReplaying) return this.#recording.now;
    return this.#seconds.engine + performance.now() / 1000 - this.#seconds.page;
  }

  #draw() {
    if (!this.isOpen || !this.#state.isKnown) {
      this.#body.hidden = true;
      return;
    }
    this.#body.hidden = false;
    const now = this.#now;
    if (!this.#recording.isReplaying) this.#state.sample(now);
    this.#drawMeasures(now);
    this.#drawLegend();
    this.#drawMemory();
    this.#drawGovernors();
    if (this.#table.closest('details').open) this.#drawTable();
  }

  #drawMeasures(now) {
    const state = this.#state, {counters, answers} = state;
    const rates = state.rates(now);
    const [tokens, hits, drive, memory] = this.#measures;
    const machine = this.#machine(rates);
    const bound = boundOf({model: state.model, machine}, rates.hits ?? this.#hitRate(counters));
    const reads = rates.prompt > rates.tokens;
    const notes = [reads ? 'reading the prompt' : answers.running > 0 ? plural(answers.running, 'answer') : 'at rest',
      answers.waiting > 0 ? `${answers.waiting} waiting` : '', bound > 0 && answers.running > 0 && !reads ? `at most ${short(bound)}` : ''];
    const show = (measure, [figure, unit], parts, options) => measure.show(figure, unit, parts.filter(Boolean).join(' · '), state.samples, now, options);
    show(tokens, [short(rates.tokens + rates.prompt), ''], notes, {limit: bound});
    show(hits, [rates.hits === null ? '–' : percent(rates.hits, rates.hits > 0.995 ? 0 : 1), ''], [`${percent(this.#hitRate(counters), 1)} since the start`], {top: 1});
    show(drive, rate(rates.drive), [this.#mostText('drive', rates, machine), `${bytes(counters.bytes_read)} in all`], {limit: machine.drive_bytes_per_second});
    show(memory, rate(rates.memory), [this.#mostText('memory', rates, machine), 'weights only'], {limit: machine.memory_bytes_per_second});
  }

  // What the machine can do. Measured while other programs were at work, a speed may be less than what was
  // reached since.
  #machine(rates) {
    const speed = (name) => {
      const measured = this.#state.machine[`${name}_bytes_per_second`];
      return measured > 0 ? Math.max(measured, this.#state.peaks[name] ?? 0, rates[name]) : 0;
    };
    return {drive_bytes_per_second: speed('drive'), memory_bytes_per_second: speed('memory')};
  }
  // Where that is not known, what it has done.
  #mostText(name, rates, machine) {
    const most = machine[`${name}_bytes_per_second`];
    if (most > 0) return `of ${bytes(most)}/s`;
    const peak = Math.max(this.#state.peaks[name] ?? 0, rates[name]);
    return peak > 0 ? `${bytes(peak)}/s at most so far` : '';
  }

  #hitRate({hits, misses}) { return hits + misses > 0 ? hits / (hits + misses) : 1; }

  #drawLegend() {
    const tally = this.#state.tally();
    const items = PLACES.filter(([place]) => tally[place] > 0 || place === MEMORY || place === DRIVE)
      .map(([place, name, text]) => h('li', {class: `place-${name}`}, h('strong', {}, count(tally[place])), ` ${text}`));
    items.push(h('li', {class: 'place-hit'}, 'hit'), h('li', {class: 'place-miss'}, 'miss'));
    update(this.#legend, items);
  }

  #drawMemory() {
    const {memory, cache} = this.#state;
    const owners = memoryOwners(memory);
    const used = owners.reduce((sum, each) => sum + each.bytes, 0);
    const bar = h('div', {class: 'memory-bar', role: 'img', 'aria-label': `${bytes(used)} of ${bytes(memory.ceiling)} are taken`});
    const list = h('ul', {class: 'memory-list'});
    owners.forEach((each, i) => {
      const part = h('span', {class: `owner owner-${i % 8}`});
      part.style.flexGrow = String(each.bytes);
      if (each.name === 'experts') part.style.setProperty('--filled', percent(cache.bytes > 0 ? cache.held_bytes / cache.bytes : 0, 1).replace(' ', ''));
      bar.append(part);
      list.append(h('li', {class: `owner-${i % 8}`}, h('span', {}, each.name), h('span', {class: 'figure'}, bytes(each.bytes))));
    });
    const free = Math.max(0, memory.ceiling - used);
    const room = h('span', {class: 'owner owner-free'});
    room.style.flexGrow = String(free);
    bar.append(room);
    list.append(h('li', {class: 'owner-free'}, h('span', {}, 'free'), h('span', {class: 'figure'}, bytes(free))));
    const resident = memory.resident > 0 ? ` The kernel counts ${bytes(memory.resident)} for the program.` : '';
    update(this.#memory, [bar, h('p', {class: 'hint'}, `${bytes(used)} planned under a ceiling of ${bytes(memory.ceiling)}.${resident}`), list]);
  }

  #drawGovernors() {
    const {lookahead, drafts, cache} = this.#state;
    update(this.#governors, [['Lookahead', lookaheadText(lookahead)], ['Drafts', draftsText(drafts)], ['Cache', cacheText(cache)]]
      .map(([name, text]) => h('div', {}, h('dt', {}, name), h('dd', {}, text))));
  }

  #drawTable() {
    const {layers, locations, layerHits, layerMisses} = this.#state;
    update(this.#table, layers.map(({layer, first, experts}, i) => {
      let held = 0;
      for (let id = first; id < first + experts; ++id) held += locations[id] >= MEMORY ? 1 : 0;
      const asked = layerHits[i] + layerMisses[i];
      return h('tr', {}, h('th', {scope: 'row'}, layer),
        [`${held} of ${experts}`, count(layerHits[i]), count(layerMisses[i]), asked > 0 ? percent(layerHits[i] / asked, 1) : '–'].map((text) => h('td', {class: 'figure'}, text)));
    }));
  }
}

// ["1.20", "GB/s"]
function rate(perSecond) {
  const [figure, unit] = bytes(perSecond).split(' ');
  return [figure, `${unit}/s`];
}

// Replaces children only where something has changed, so that a selection or a reader's place stays.
function update(element, children) {
  if (children.length === element.childNodes.length && children.every((child, i) => child.isEqualNode(element.childNodes[i]))) return;
  element.replaceChildren(...children);
}

class Measure {
  #chart;
  #figure = h('span', {class: 'measure-figure'});
  #unit = h('span', {class: 'measure-unit'});
  note = h('p', {class: 'hint'});

  constructor(name, colour, value) {
    this.#chart = new Chart(value, colour);
    this.element = h('div', {class: 'card measure'}, h('h3', {}, name), h('p', {class: 'measure-value'}, this.#figure, this.#unit), this.note, this.#chart.element);
    this.element.style.setProperty('--own', `var(${colour})`);
  }
  show(figure, unit, note, samples, now, options) {
    this.#figure.textContent = figure;
    this.#unit.textContent = unit;
    this.note.textContent = note;
    this.#chart.draw(samples, now, options);
  }
}
