// A quiet line of the last minute, or what there is of it, with a dashed one for what the machine can do.
import {h} from '../base/dom.js';
import {HISTORY} from './state.js';

const SHORTEST = 10;  // seconds

export class Chart {
  element = h('canvas', {class: 'chart', 'aria-hidden': 'true'});
  #value;
  #colour;

  // value: of a sample, or null; colour: the name of a CSS variable.
  constructor(value, colour) {
    this.#value = value;
    this.#colour = colour;
  }

  // limit: a value to draw a line at, if it is anywhere near; top: the highest one shown, if it is fixed.
  draw(samples, now, {limit = 0, top = 0} = {}) {
    const scale = devicePixelRatio || 1;
    const width = Math.round(this.element.clientWidth * scale), height = Math.round(this.element.clientHeight * scale);
    if (width === 0 || height === 0) return;
    if (this.element.width !== width || this.element.height !== height) {
      this.element.width = width;
      this.element.height = height;
    }
    const style = getComputedStyle(document.documentElement);
    const context = this.element.getContext('2d');
    context.clearRect(0, 0, width, height);
    const highest = Math.max(1e-9, ...samples.map((sample) => this.#value(sample) ?? 0));
    const ceiling = top || Math.max(highest, limit < 4 * highest ? limit : 0) * 1.08;
    const span = Math.min(HISTORY, Math.max(SHORTEST, now - (samples[0]?.seconds ?? now)));
    const x = (sample) => width * (1 + (sample.seconds - now) / span);
    const y = (value) => height - scale - (height - 3 * scale) * Math.min(value / ceiling, 1);

    if (limit > 0 && limit <= ceiling) {
      context.strokeStyle = style.getPropertyValue('--ink-3');
      context.lineWidth = scale;
      context.setLineDash([2 * scale, 3 * scale]);
      context.beginPath();
      context.moveTo(0, y(limit));
      context.lineTo(width, y(limit));
      context.stroke();
      context.setLineDash([]);
    }
    const colour = style.getPropertyValue(this.#colour);
    context.lineWidth = 1.5 * scale;
    context.lineJoin = 'round';
    for (const run of this.#runs(samples)) {
      const line = new Path2D();
      run.forEach((sample, i) => line[i === 0 ? 'moveTo' : 'lineTo'](x(sample), y(this.#value(sample))));
      const area = new Path2D(line);
      area.lineTo(x(run.at(-1)), height);
      area.lineTo(x(run[0]), height);
      context.fillStyle = colour;
      context.globalAlpha = 0.12;
      context.fill(area);
      context.globalAlpha = 1;
      context.strokeStyle = colour;
      context.stroke(line);
    }
  }

  // Samples between which there is a value.
  #runs(samples) {
    const runs = [[]];
    for (const sample of samples) {
      if (this.#value(sample) === null) {
        if (runs.at(-1).length > 0) runs.push([]);
      } else {
        runs.at(-1).push(sample);
      }
    }
    return runs.filter((run) => run.length > 1);
  }
}
