// The messages of a chat are a tree: what was asked or answered again is a branch beside the first.
// A message is {id, chat, parent, role, time, content, ...}; the root's parent is null. Pure functions.

export function newId() {
  const random = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(random, (byte) => byte.toString(16).padStart(2, '0')).join('');
}

export class Tree {
  #byId = new Map();
  #children = new Map();  // of each id, by time

  constructor(messages = []) {
    for (const message of [...messages].sort((a, b) => a.time - b.time)) this.add(message);
  }

  add(message) {
    this.#byId.set(message.id, message);
    const key = message.parent ?? null;
    if (!this.#children.has(key)) this.#children.set(key, []);
    this.#children.get(key).push(message.id);
  }
  get(id) { return this.#byId.get(id); }
  get size() { return this.#byId.size; }
  all() { return [...this.#byId.values()]; }
  children(id) { return (this.#children.get(id ?? null) ?? []).map((each) => this.#byId.get(each)); }

  // From the root to this message.
  path(leaf) {
    const path = [], seen = new Set();
    for (let at = this.#byId.get(leaf); at && !seen.has(at.id); at = this.#byId.get(at.parent)) {
      seen.add(at.id);
      path.push(at);
    }
    return path.reverse();
  }

  // The end of the branch that goes through a message: the latest child of each.
  leafBelow(id) {
    let at = id;
    for (let children = this.children(at); children.length > 0; children = this.children(at)) at = children.at(-1).id;
    return at;
  }

  // This message and the others in its place.
  branches(id) {
    const message = this.#byId.get(id);
    const siblings = this.children(message.parent);
    return {siblings, index: siblings.findIndex((each) => each.id === id)};
  }
}
