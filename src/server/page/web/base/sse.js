// Reads a stream of server-sent events. EventSource cannot send a key, so this reads what fetch gets.

// Cuts text into events wherever the pieces of a stream happen to end.
export class EventParser {
  #rest = '';
  #name = '';
  #data = [];

  // The events that are complete by now: [{name, data}].
  feed(text) {
    const events = [];
    const lines = (this.#rest + text).split(/\r\n|\n|\r(?!$)/);
    this.#rest = lines.pop();
    for (const line of lines) {
      if (line === '') {
        if (this.#data.length > 0) events.push({name: this.#name || 'message', data: this.#data.join('\n')});
        this.#name = '';
        this.#data = [];
      } else if (!line.startsWith(':')) {
        const colon = line.indexOf(':');
        const field = colon < 0 ? line : line.slice(0, colon);
        const value = colon < 0 ? '' : line.slice(line[colon + 1] === ' ' ? colon + 2 : colon + 1);
        if (field === 'data') this.#data.push(value);
        else if (field === 'event') this.#name = value;
      }
    }
    return events;
  }
}

export async function* readEvents(response) {
  const parser = new EventParser();
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  try {
    while (true) {
      const {done, value} = await reader.read();
      if (done) return;
      yield* parser.feed(value);
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
