// The map: a cell for each expert, a row for each layer. Its colour says where the expert is; it lights up
// when a token asks for it, in one colour for those that were there and in another for those that had to
// be read. Events come ten times a second; within each, the layers light up in the order a pass has them.
import {h} from '../base/dom.js';
import {count, plural} from '../base/text.js';

const COLOURS = ['--map-drive', '--map-reading', '--map-memory', '--map-device', '--map-hit', '--map-miss', '--map-ground'];
const GLOW = 0.45;      // seconds until a cell has lost most of its light; less where all would glow at a time
const SWEEP = 0.1;      // seconds a pass is spread over
const PLACES = ['on the drive', 'being read', 'in memory', 'in device memory'];
const LABELS = 30;      // CSS pixels left of the cells

export class ExpertMap {
  #state;
  #canvas = h('canvas', {class: 'map-canvas', role: 'img', tabindex: '0'});
  #tip = h('div', {class: 'map-tip', hidden: true});
  #pixels = document.createElement('canvas');
  #image = null;
  #light = new Float32Array(0);  // 1: just asked for
  #missed = new Uint8Array(0);   // whether the light is of a miss
  #due = [];                     // [time, ids, missed]
  #glow = GLOW;
  #before = 0;                   // seconds of the engine, at the last change
  #colours = [];
  #frame = 0;
  #last = 0;
  #shape = null;
  #described = 0;
  #still = matchMedia('(prefers-reduced-motion: reduce)');
  element = h('div', {class: 'map'}, this.#canvas, this.#tip);

  constructor(state) {
    this.#state = state;
    for (const name of ['begin', 'whole', 'reset']) state.addEventListener(name, () => this.#begin());
    state.addEventListener('change', ({detail}) => this.#change(detail));
    new ResizeObserver(() => this.#resize()).observe(this.element);
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => this.recolour());
    this.#canvas.addEventListener('pointermove', (event) => this.#point(event));
    this.#canvas.addEventListener('pointerleave', () => { this.#tip.hidden = true; });
    this.recolour();
  }

  recolour() {
    const style = getComputedStyle(document.documentElement);
    this.#colours = COLOURS.map((name) => parseColour(style.getPropertyValue(name).trim()));
    this.#resize();
  }

  #begin() {
    const n = this.#state.isKnown ? this.#state.locations.length : 0;
    if (n !== this.#light.length) {
      this.#light = new Float32Array(n);
      this.#missed = new Uint8Array(n);
    }
    this.#light.fill(0);
    this.#due = [];
    this.#resize();
  }

  #change({hits, misses, seconds}) {
    const now = performance.now() / 1000;
    const perSecond = (hits.length + misses.length) / Math.max(seconds - this.#before, 0.05);
    this.#before = seconds;
    this.#glow = GLOW * Math.min(1, Math.max(0.2, this.#light.length / 2 / Math.max(perSecond, 1)));
    if (this.#still.matches) this.#light.fill(0);
    this.#light_up(hits, 0, now);
    this.#light_up(misses, 1, now);
    this.#draw();
  }

  #light_up(ids, missed, now) {
    const {layers} = this.#state;
    let i = 0;
    while (i < ids.length) {
      const layer = this.#state.layerOf(ids[i]);
      const end = layers[layer].first + layers[layer].experts;
      const own = [];
      while (i < ids.length && ids[i] < end) own.push(ids[i++]);
      const delay = this.#still.matches ? 0 : SWEEP * layer / layers.length;
      this.#due.push([now + delay, own, missed]);
    }
  }

  // Rows of cells for each layer, as wide as the room allows; all cells have the same size.
  #resize() {
    const {layers, isKnown} = this.#state;
    const width = this.element.clientWidth;
    if (!isKnown || width === 0 || layers.length === 0) return;
    const scale = devicePixelRatio || 1;
    const most = Math.max(...layers.map((layer) => layer.experts));
    const room = Math.floor((width - LABELS) * scale);
    const least = Math.ceil(2.5 * scale);
    const rows = Math.max(1, Math.ceil(most * least / room));  // of a layer
    const columns = Math.ceil(most / rows);
    const cell = Math.max(1, Math.floor(room / columns));
    const total = layers.length * rows;
    const wanted = (this.element.dataset.tall ? innerHeight - 260 : 440) * scale;
    const highest = (this.element.dataset.tall ? 40 : 16) * scale;
    const tallest = this.element.dataset.tall ? 3.5 : 2.4;  // of a cell, by its width
    const height = Math.round(Math.max(Math.min(wanted / total, tallest * cell, highest), 3 * scale));
    const gap = layers.length > 1 && rows > 1 ? Math.max(1, Math.round(scale)) : 0;
    const top = Math.max(0, Math.round((10 * scale - rows * height) / 2));  // half of a label
    this.#shape = {scale, rows, columns, cell, height, gap, left: Math.round(LABELS * scale), top};
    this.#canvas.width = this.#shape.left + columns * cell;
    this.#canvas.height = total * height + (layers.length - 1) * gap + 2 * top;
    this.#canvas.style.width = `${this.#canvas.width / scale}px`;
    this.#canvas.style.height = `${this.#canvas.height / scale}px`;
    this.#pixels.width = columns;
    this.#pixels.height = total;
    this.#image = new ImageData(columns, total);
    this.#paint();
    this.#describe();
  }

  #draw() {
    if (!this.#frame) this.#frame = requestAnimationFrame((time) => this.#tick(time / 1000));
  }

  #tick(time) {
    this.#frame = 0;
    const elapsed = Math.min(time - this.#last, 0.1);
    this.#last = time;
    const now = performance.now() / 1000;
    let glows = false;
    if (!this.#still.matches) {
      const fade = Math.exp(-elapsed / (this.#glow / 2.3));
      for (let i = 0; i < this.#light.length; ++i) {
        if (this.#light[i] === 0) continue;
        this.#light[i] *= fade;
        if (this.#light[i] < 0.02) this.#light[i] = 0;
        else glows = true;
      }
    }
    this.#due = this.#due.filter(([due, ids, missed]) => {
      if (due > now) return true;
      for (const id of ids) {
        this.#light[id] = 1;
        this.#missed[id] = missed;
      }
      glows = true;
      return false;
    });
    this.#paint();
    if ((glows && !this.#still.matches) || this.#due.length > 0) this.#draw();
    if (time - this.#described > 3) {
      this.#described = time;
      this.#describe();
    }
  }

  #paint() {
    const {layers, locations} = this.#state;
    if (!this.#shape || !this.#image || layers.length * this.#shape.rows !== this.#pixels.height) return;
    const {rows, columns, cell, height, gap, left, top, scale} = this.#shape;
    const data = this.#image.data;
    data.fill(0);
    for (let l = 0; l < layers.length; ++l) {
      const {first, experts} = layers[l];
      for (let e = 0; e < experts; ++e) {
        const id = first + e, light = this.#light[id];
        const base = this.#colours[locations[id]];
        const lit = this.#colours[this.#missed[id] ? 5 : 4];
        const at = 4 * ((l * rows + Math.floor(e / columns)) * columns + (e % columns));
        data[at] = base[0] + light * (lit[0] - base[0]);
        data[at + 1] = base[1] + light * (lit[1] - base[1]);
        data[at + 2] = base[2] + light * (lit[2] - base[2]);
        data[at + 3] = 255;
      }
    }
    this.#pixels.getContext('2d').putImageData(this.#image, 0, 0);
    const context = this.#canvas.getContext('2d');
    context.clearRect(0, 0, this.#canvas.width, this.#canvas.height);
    context.imageSmoothingEnabled = false;
    for (let l = 0; l < layers.length; ++l)
      context.drawImage(this.#pixels, 0, l * rows, columns, rows, left, top + l * (rows * height + gap), columns * cell, rows * height);
    this.#rule(context);
    this.#label(context, scale);
  }

  // Thin lines between cells that are large enough for them.
  #rule(context) {
    const {rows, columns, cell, height, gap, left, top, scale} = this.#shape;
    const [r, g, b] = this.#colours[6];
    const line = Math.max(1, Math.round(scale / 2));
    context.fillStyle = `rgb(${r} ${g} ${b})`;
    if (cell >= 3 * scale) for (let c = 1; c <= columns; ++c) context.fillRect(left + c * cell - line, 0, line, this.#canvas.height);
    if (height < 4 * scale) return;
    for (let l = 0; l < this.#state.layers.length; ++l) {
      for (let row = 1; row <= rows; ++row) context.fillRect(left, top + l * (rows * height + gap) + row * height - line, columns * cell, line);
    }
  }

  #label(context, scale) {
    const {rows, height, gap, top} = this.#shape;
    const pitch = rows * height + gap;
    const every = Math.max(1, Math.ceil(11 * scale / pitch));
    context.font = `${9.5 * scale}px ui-sans-serif, system-ui, sans-serif`;
    context.textAlign = 'right';
    context.textBaseline = 'middle';
    context.fillStyle = getComputedStyle(document.documentElement).getPropertyValue('--ink-3');
    const {layers} = this.#state;
    layers.forEach(({layer}, l) => {
      const isLast = l === layers.length - 1;
      if (l % every === 0 ? !(isLast || layers.length - 1 - l >= every / 2) : !isLast) return;
      context.fillText(layer, (LABELS - 6) * scale, top + l * pitch + rows * height / 2);
    });
  }

  #point(event) {
    const shape = this.#shape, {layers, locations} = this.#state;
    if (!shape) return;
    const x = event.offsetX * shape.scale - shape.left, y = event.offsetY * shape.scale - shape.top;
    const pitch = shape.rows * shape.height + shape.gap;
    const l = Math.floor(y / pitch), inside = Math.floor((y - l * pitch) / shape.height);
    const e = inside * shape.columns + Math.floor(x / shape.cell);
    const layer = layers[l];
    this.#tip.hidden = !layer || x < 0 || inside >= shape.rows || e >= layer.experts;
    if (this.#tip.hidden) return;
    this.#tip.textContent = `Layer ${layer.layer}, expert ${e}: ${PLACES[locations[layer.first + e]]}`;
    this.#tip.style.left = `${Math.min(event.offsetX, this.element.clientWidth - 210)}px`;
    this.#tip.style.top = `${event.offsetY + 16}px`;
  }

  // For who cannot see it.
  #describe() {
    const {layers} = this.#state;
    const tally = this.#state.tally();
    const parts = tally.map((n, place) => (n > 0 ? `${count(n)} ${PLACES[place]}` : null)).filter(Boolean);
    this.#canvas.setAttribute('aria-label', `Map of ${plural(layers.length, 'layer')} with ${count(this.#state.locations.length)} experts: ${parts.join(', ')}.`);
  }
}

function parseColour(text) {
  const hex = /^#([\da-f]{2})([\da-f]{2})([\da-f]{2})$/i.exec(text);
  return hex ? hex.slice(1).map((part) => parseInt(part, 16)) : [128, 128, 128];
}
