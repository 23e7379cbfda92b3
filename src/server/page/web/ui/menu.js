// A small menu at a button.
import {h} from '../base/dom.js';

// items: [{label, onclick, danger}]
export function openMenu(button, items) {
  const menu = h('div', {class: 'menu', role: 'menu'});
  const close = (refocus = true) => {
    menu.remove();
    button.setAttribute('aria-expanded', 'false');
    removeEventListener('pointerdown', outside, true);
    if (refocus) button.focus();
  };
  const outside = (event) => {
    if (!menu.contains(event.target)) close(false);
  };
  menu.append(...items.map(({label, onclick, danger}) => h('button', {type: 'button', role: 'menuitem', tabindex: '-1', class: danger ? 'danger' : null, onclick: () => {
    close();
    onclick();
  }}, label)));
  menu.addEventListener('keydown', (event) => {
    const entries = [...menu.children], at = entries.indexOf(document.activeElement);
    const to = {ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: entries.length - 1}[event.key];
    if (to !== undefined) entries.at(to % entries.length).focus();
    else if (event.key === 'Escape') close();
    else if (event.key === 'Tab') close(false);
    else return;
    event.stopPropagation();
    if (event.key !== 'Tab') event.preventDefault();
  });
  document.body.append(menu);
  const box = button.getBoundingClientRect();
  menu.style.left = `${Math.max(8, Math.min(box.left, innerWidth - menu.offsetWidth - 8))}px`;
  menu.style.top = `${box.bottom + menu.offsetHeight + 8 > innerHeight ? box.top - menu.offsetHeight - 4 : box.bottom + 4}px`;
  button.setAttribute('aria-expanded', 'true');
  addEventListener('pointerdown', outside, true);
  menu.firstElementChild.focus();
}
