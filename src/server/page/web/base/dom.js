// Making elements. Text is always text: nothing here or elsewhere in the page parses markup.

const SVG = 'http://www.w3.org/2000/svg';
export const MATHML = 'http://www.w3.org/1998/Math/MathML';

// h('button', {class: 'x', onclick: f, 'aria-label': 'Send', disabled: true}, 'text', child, [list])
// An attribute that is false, null or undefined is left out; children of that kind, too.
export function h(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

export function inNamespace(namespace, tag, attributes = {}, ...children) {
  return fill(document.createElementNS(namespace, tag), attributes, children);
}

function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === false || value === null || value === undefined) continue;
    if (name.startsWith('on')) element.addEventListener(name.slice(2), value);
    else if (name === 'value' || name === 'checked') element[name] = value;
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

// Strokes in a square of 24.
const ICONS = {
  plus: 'M12 5v14M5 12h14',
  menu: 'M4 7h16M4 12h16M4 17h16',
  search: 'M10.500 17a6.500 6.500 0 1 0 0-13 6.500 6.500 0 0 0 0 13ZM20 20l-4.600-4.600',
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M7 7h10v10H7z',
  attach: 'M20 11.500l-8.100 8.100a5 5 0 0 1-7.100-7.100l8.500-8.500a3.300 3.300 0 0 1 4.700 4.700l-8.500 8.500a1.700 1.700 0 0 1-2.400-2.400l7.800-7.700',
  copy: 'M9 9h10v11H9zM15 9V4H5v11h4',
  check: 'M5 12.500l4.500 4.500L19 7.500',
  edit: 'M4 20l1-4L16 5l3 3L8 19l-4 1ZM14 7l3 3',
  retry: 'M19 12a7 7 0 1 1-2.200-5.100M19 4v4.500h-4.500',
  trash: 'M5 7h14M10 7V4.500h4V7M7 7l.8 13h8.400L17 7M10.500 11v5.500M13.500 11v5.500',
  left: 'M14.500 6l-6 6 6 6',
  right: 'M9.500 6l6 6-6 6',
  down: 'M6 9.500l6 6 6-6',
  close: 'M6 6l12 12M18 6L6 18',
  sliders: 'M4 8h8M18 8h2M4 16h2M12 16h8M15 8m-2.500 0a2.500 2.500 0 1 0 5 0a2.500 2.500 0 1 0-5 0M9 16m-2.500 0a2.500 2.500 0 1 0 5 0a2.500 2.500 0 1 0-5 0',
  engine: 'M4 4h4v4H4zM10 4h4v4h-4zM16 4h4v4h-4zM4 10h4v4H4zM10 10h4v4h-4zM16 10h4v4h-4zM4 16h4v4H4zM10 16h4v4h-4zM16 16h4v4h-4z',
  expand: 'M9 4H4v5M15 4h5v5M9 20H4v-5M15 20h5v-5',
  shrink: 'M4 9h5V4M20 9h-5V4M4 15h5v5M20 15h-5v5',
  record: 'M12 12m-5.500 0a5.500 5.500 0 1 0 11 0a5.500 5.500 0 1 0-11 0',
  play: 'M8 5.500l10 6.500-10 6.500z',
  pause: 'M9 6v12M15 6v12',
  upload: 'M12 16V5M7 10l5-5 5 5M5 19h14',
  download: 'M12 5v11M7 11l5 5 5-5M5 19h14',
  gear: 'M12 9m-3 3a3 3 0 1 0 6 0a3 3 0 1 0-6 0M12 3v3M12 18v3M3 12h3M18 12h3M5.600 5.600l2.200 2.200M16.200 16.200l2.200 2.200M18.400 5.600l-2.200 2.200M7.800 16.200l-2.200 2.200',
  tool: 'M14.500 6.500a4 4 0 0 1 5-1.300l-2.700 2.700 1.300 2 2 .3 1.500-1.600a4 4 0 0 1-5.300 4.400L9 20.300 5.700 17l7.300-7.300a4 4 0 0 1 1.500-3.200Z',
  thought: 'M12 4a6 6 0 0 0-3.500 10.900V17h7v-2.100A6 6 0 0 0 12 4ZM9.500 20h5',
  file: 'M7 3.500h7l4 4V20.500H7zM14 3.500V8h4',
  more: 'M6 12h.01M12 12h.01M18 12h.01',
};

export function icon(name) {
  return inNamespace(SVG, 'svg', {class: `icon icon-${name}`, viewBox: '0 0 24 24', 'aria-hidden': 'true', focusable: 'false'},
    inNamespace(SVG, 'path', {d: ICONS[name]}));
}

// A button that is only a picture: its name is said and shown as a hint.
export function iconButton(name, label, onclick, attributes = {}) {
  return h('button', {type: 'button', class: 'icon-button', 'aria-label': label, title: label, onclick, ...attributes}, icon(name));
}

export function setIconButton(button, name, label) {
  button.replaceChildren(icon(name));
  button.setAttribute('aria-label', label);
  button.title = label;
}

// What a screen reader is told when it has a moment.
export function announce(text) {
  document.getElementById('announcer').textContent = text;
}

export function toast(text, {action, onaction, seconds = 6} = {}) {
  const box = h('div', {class: 'toast'}, h('span', {}, text));
  const close = () => box.remove();
  if (action) box.append(h('button', {type: 'button', class: 'quiet', onclick: () => { close(); onaction(); }}, action));
  box.append(iconButton('close', 'Dismiss', close));
  document.getElementById('toasts').append(box);
  setTimeout(close, seconds * 1000);
}

export async function copyText(text, button) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {  // not a secure page: a selection can be copied anywhere
    const area = h('textarea', {class: 'visually-hidden', value: text});
    document.body.append(area);
    area.select();
    document.execCommand('copy');
    area.remove();
  }
  announce('Copied');
  if (!button) return;
  const before = [...button.childNodes];
  button.replaceChildren(icon('check'));
  setTimeout(() => button.replaceChildren(...before), 1200);
}

export function download(name, text, type = 'application/json') {
  const url = URL.createObjectURL(new Blob([text], {type}));
  h('a', {href: url, download: name}).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}

// Lets the user choose a file; null where none was chosen.
export function chooseFiles({accept = '', multiple = false} = {}) {
  return new Promise((resolve) => {
    const input = h('input', {type: 'file', accept, multiple});
    input.addEventListener('change', () => resolve([...input.files]));
    input.addEventListener('cancel', () => resolve([]));
    input.click();
  });
}
