// What is shown where there are no messages yet.
import {h} from '../base/dom.js';
import {bytes, count} from '../base/text.js';

export class Intro {
  element = h('div', {class: 'intro'});
  #models;
  constructor(models) {
    this.#models = models;
    models.addEventListener('change', () => this.#draw());
    this.#draw();
  }

  async #draw() {
    const {info, problem} = this.#models;
    if (!info) {
      const {needsKey} = this.#models;
      this.element.replaceChildren(mosaic(!needsKey), h('h2', {}, needsKey ? 'This server asks for a key' : 'One moment'), h('p', {role: 'status'}, problem));
      if (needsKey) this.element.append(h('button', {type: 'button', class: 'primary', onclick: () => this.#models.refresh()}, 'Enter the key'));
      return;
    }
    const props = await this.#models.props();
    if (info !== this.#models.info) return;
    const {meta = {}} = info, moeflux = props?.moeflux;
    const facts = [
      meta.n_params ? [parameters(meta.n_params), 'parameters'] : null,
      moeflux?.n_experts ? [`${moeflux.top_k} of ${moeflux.n_experts}`, 'experts a token and layer'] : null,
      meta.size ? [bytes(meta.size), 'on the drive'] : null,
      meta.n_ctx ? [count(meta.n_ctx), 'tokens of context'] : null,
    ].filter(Boolean);
    this.element.replaceChildren(mosaic(false), h('h2', {}, info.id),
      h('dl', {class: 'facts'}, facts.map(([figure, name]) => h('div', {}, h('dt', {}, name), h('dd', {}, figure)))),
      ...(meta.loaded === false ? [h('p', {}, 'This model is not in memory. It will be loaded with the first message.')] : []));
  }
}

function parameters(n) {
  return n >= 1e9 ? `${(n / 1e9).toFixed(n < 1e10 ? 1 : 0)} billion` : `${(n / 1e6).toFixed(1)} million`;
}

// A few experts, as a sign of what is behind it all.
function mosaic(isWaiting) {
  const lit = new Set([3, 9, 13, 20, 22, 31, 34, 42]);
  return h('div', {class: isWaiting ? 'mosaic is-waiting' : 'mosaic', 'aria-hidden': 'true'}, Array.from({length: 48}, (_, i) => h('span', {class: lit.has(i) ? 'lit' : i % 5 === 3 ? 'cold' : null})));
}
