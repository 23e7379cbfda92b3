// Chats and messages in IndexedDB. Where the browser allows none (a private window), they live as long
// as the page.

const NAME = 'moeflux', VERSION = 1;

function promised(request) {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}

class Database {
  #db;
  constructor(db) {
    this.#db = db;
    db.onversionchange = () => db.close();
  }
  get isKept() { return true; }
  all(store) { return promised(this.#db.transaction(store).objectStore(store).getAll()); }
  messagesOf(chat) {
    return promised(this.#db.transaction('messages').objectStore('messages').index('chat').getAll(chat));
  }
  async put(store, ...values) {
    const transaction = this.#db.transaction(store, 'readwrite');
    for (const value of values) transaction.objectStore(store).put(value);
    await ended(transaction);
  }
  async removeChat(id) {
    const transaction = this.#db.transaction(['chats', 'messages'], 'readwrite');
    transaction.objectStore('chats').delete(id);
    const messages = transaction.objectStore('messages');
    const keys = await promised(messages.index('chat').getAllKeys(id));
    for (const key of keys) messages.delete(key);
    await ended(transaction);
  }
  async clear() {
    const transaction = this.#db.transaction(['chats', 'messages'], 'readwrite');
    transaction.objectStore('chats').clear();
    transaction.objectStore('messages').clear();
    await ended(transaction);
  }
}

function ended(transaction) {
  return new Promise((resolve, reject) => {
    transaction.oncomplete = () => resolve();
    transaction.onerror = transaction.onabort = () => reject(transaction.error);
  });
}

class MemoryDatabase {
  #stores = {chats: new Map(), messages: new Map()};
  get isKept() { return false; }
  async all(store) { return [...this.#stores[store].values()]; }
  async messagesOf(chat) { return [...this.#stores.messages.values()].filter((each) => each.chat === chat); }
  async put(store, ...values) { for (const value of values) this.#stores[store].set(value.id, structuredClone(value)); }
  async removeChat(id) {
    this.#stores.chats.delete(id);
    for (const message of await this.messagesOf(id)) this.#stores.messages.delete(message.id);
  }
  async clear() { for (const store of Object.values(this.#stores)) store.clear(); }
}

export async function openDatabase() {
  try {
    const opening = indexedDB.open(NAME, VERSION);
    opening.onupgradeneeded = () => {
      const db = opening.result;
      db.createObjectStore('chats', {keyPath: 'id'});
      db.createObjectStore('messages', {keyPath: 'id'}).createIndex('chat', 'chat');
    };
    return new Database(await promised(opening));
  } catch {
    return new MemoryDatabase();
  }
}
