// Keeps listening to the engine while it is switched on: a stream that ends is begun anew.
import {streamEngine} from '../base/api.js';

export class Feed extends EventTarget {
  #abort = null;
  #model = '';
  status = 'off';  // 'connecting', 'live', 'waiting'

  get isOn() { return this.#abort !== null; }

  start(model) {
    if (this.#abort && this.#model === model && this.status !== 'waiting') return;
    this.stop();
    this.#model = model;
    this.#abort = new AbortController();
    this.#run(this.#abort.signal);
  }

  stop() {
    this.#abort?.abort();
    this.#abort = null;
    this.#set('off');
  }

  #set(status, why = '') {
    this.status = status;
    this.dispatchEvent(new CustomEvent('status', {detail: {status, why}}));
  }

  async #run(signal) {
    while (!signal.aborted) {
      let wait = 1, why = '';
      try {
        this.#set('connecting');
        for await (const {name, data} of streamEngine(this.#model, signal)) {
          if (signal.aborted) return;
          if (this.status !== 'live') this.#set('live');
          this.dispatchEvent(new CustomEvent('event', {detail: {name, data}}));
        }
      } catch (error) {
        if (signal.aborted) return;
        why = error.message;
        wait = Math.min(error.retryAfter || 3, 5);
      }
      if (signal.aborted) return;
      this.#set('waiting', why);
      await new Promise((resolve) => setTimeout(resolve, 1000 * wait));
    }
  }
}
