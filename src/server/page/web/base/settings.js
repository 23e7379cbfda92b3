// What the browser remembers besides the chats: small values by name. Whoever changes one is heard
// by all who listen for it.

const PREFIX = 'moeflux.';
const DEFAULTS = {
  theme: 'system',   // 'light', 'dark'
  key: '',           // of the server
  engine: 'closed',  // 'side', 'full'
  sidebar: 'open',   // on wide windows
  model: '',         // chosen last
  chat: {},          // parameters of new chats
  sendWith: 'enter', // or 'ctrl'
};

const listeners = new Map();
const values = new Map();

export function setting(name) {
  if (!values.has(name)) values.set(name, load(name));
  return values.get(name);
}

function load(name) {
  try {
    const text = localStorage.getItem(PREFIX + name);
    return text === null ? DEFAULTS[name] : JSON.parse(text);
  } catch {  // no storage, or somebody else's value
    return DEFAULTS[name];
  }
}

export function setSetting(name, value) {
  values.set(name, value);
  try {
    localStorage.setItem(PREFIX + name, JSON.stringify(value));
  } catch {  // then for as long as the page is open
  }
  for (const call of listeners.get(name) ?? []) call(value);
}

export function onSetting(name, call) {
  if (!listeners.has(name)) listeners.set(name, []);
  listeners.get(name).push(call);
}
