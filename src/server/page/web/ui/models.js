// Which models there are, which one answers, and the list to choose from.
import {listModels, modelProps} from '../base/api.js';
import {h} from '../base/dom.js';
import {setSetting, setting} from '../base/settings.js';

export class Models extends EventTarget {
  list = [];
  needsKey = false;  // and the user has not given one
  problem = 'Connecting to the server…';
  select = h('select', {class: 'model-picker', 'aria-label': 'Model', title: 'Model'});
  #props = new Map();
  #timer = 0;

  constructor() {
    super();
    this.select.addEventListener('change', () => this.choose(this.select.value));
    this.#draw();
  }

  get isReady() { return this.list.length > 0; }
  // The one that was chosen, where the server has it.
  get current() {
    const chosen = setting('model');
    if (this.list.some((model) => model.id === chosen)) return chosen;
    return (this.list.find((model) => model.meta?.loaded !== false) ?? this.list[0])?.id ?? '';
  }
  get info() { return this.list.find((model) => model.id === this.current); }

  choose(id) {
    setSetting('model', id);
    this.#draw();
    this.dispatchEvent(new Event('change'));
  }

  // Asks until the server has a model to answer with.
  async refresh() {
    clearTimeout(this.#timer);
    try {
      this.list = await listModels();
      this.problem = this.list.length > 0 ? '' : 'There is no model in the directory of the server.';
      this.needsKey = false;
    } catch (error) {
      this.problem = error.message;
      this.needsKey = error.status === 401;
      this.list = [];
    }
    this.#draw();
    this.dispatchEvent(new Event('change'));
    if (!this.isReady && !this.needsKey) this.#timer = setTimeout(() => this.refresh(), 2000);
  }

  // The current model is answering, so it is in memory.
  answers() {
    const {info} = this;
    if (info?.meta?.loaded !== false) return;
    info.meta.loaded = true;
    this.refresh();
  }

  // Defaults and facts of the current model; null while it is not in memory.
  async props() {
    const {info} = this;
    if (!info || info.meta?.loaded === false) return null;
    if (!this.#props.has(info.id)) {
      try {
        this.#props.set(info.id, await modelProps(info.id));
      } catch {
        return null;
      }
    }
    return this.#props.get(info.id);
  }

  #draw() {
    const {current} = this;
    const options = this.list.map(({id, meta}) => h('option', {value: id}, meta?.loaded === false ? `${id} (not in memory)` : id));
    this.select.replaceChildren(...(options.length > 0 ? options : [h('option', {value: ''}, 'No model')]));
    this.select.value = current;
    this.select.disabled = options.length === 0;
  }
}
