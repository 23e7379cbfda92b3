// Elements of parsed Markdown. A text that grows keeps the elements of the blocks that did not change.
import {MATHML, copyText, h, iconButton, inNamespace} from '../base/dom.js';
import {highlight} from './highlight.js';
import {isSafeLink} from './inline.js';
import {parseMarkdown} from './markdown.js';
import {texToMathml} from './tex.js';

export class Prose {
  element = h('div', {class: 'prose'});
  #shown = [];  // {source, element}

  set(text) {
    const blocks = parseMarkdown(text);
    let same = 0;
    while (same < blocks.length && same < this.#shown.length && blocks[same].source === this.#shown[same].source) ++same;
    for (const {element} of this.#shown.splice(same)) element.remove();
    for (const block of blocks.slice(same)) {
      const element = blockElement(block);
      this.#shown.push({source: block.source, element});
      this.element.append(element);
    }
  }
}

function blockElement(block) {
  switch (block.type) {
    // The page has headings of its own above these.
    case 'heading': return h(`h${Math.min(block.level + 2, 6)}`, {'data-level': block.level}, inlineNodes(block.inline));
    case 'paragraph': return h('p', {}, inlineNodes(block.inline));
    case 'rule': return h('hr');
    case 'quote': return h('blockquote', {}, block.blocks.map(blockElement));
    case 'code': return codeElement(block);
    case 'maths': return h('div', {class: 'maths', tabindex: '0', role: 'group', 'aria-label': 'Formula'}, mathsElement(block.tex, true));
    case 'list': return listElement(block);
    case 'table': return tableElement(block);
  }
}

function listElement({ordered, start, loose, items}) {
  return h(ordered ? 'ol' : 'ul', {start: ordered && start !== 1 ? start : null, class: items.some((item) => item.task) ? 'tasks' : null}, items.map((item) => {
    // A short item is no paragraph of its own.
    const content = item.blocks.map((block) => (!loose && block.type === 'paragraph' ? inlineNodes(block.inline) : blockElement(block)));
    if (!item.task) return h('li', {}, content);
    const box = h('input', {type: 'checkbox', disabled: true, checked: item.task === 'done', 'aria-label': item.task === 'done' ? 'done' : 'to do'});
    return h('li', {class: 'task'}, box, content);
  }));
}

function tableElement({align, head, rows}) {
  const cell = (tag, inline, column) => h(tag, {class: align[column] === 'left' ? null : align[column], scope: tag === 'th' ? 'col' : null}, inlineNodes(inline));
  return h('div', {class: 'table', tabindex: '0', role: 'group', 'aria-label': 'Table'}, h('table', {},
    h('thead', {}, h('tr', {}, head.map((inline, i) => cell('th', inline, i)))),
    h('tbody', {}, rows.map((row) => h('tr', {}, row.map((inline, i) => cell('td', inline, i)))))));
}

function codeElement({language, text}) {
  const copy = iconButton('copy', 'Copy code', () => copyText(text, copy));
  return h('figure', {class: 'code'},
    h('figcaption', {}, h('span', {}, language || 'text'), copy),
    h('pre', {tabindex: '0', 'aria-label': `Code${language ? `, ${language}` : ''}`}, h('code', {}, highlightedNodes(text, language))));
}

export function highlightedNodes(text, language) {
  return highlight(text, language).map(([name, piece]) => (name ? h('span', {class: `hl-${name}`}, piece) : piece));
}

function mathsElement(tex, display) {
  const element = (tree) => inNamespace(MATHML, tree.tag, tree.attributes, tree.text ?? tree.children.map(element));
  const math = element(texToMathml(tex, display));
  math.setAttribute('aria-label', tex);
  return math;
}

function inlineNodes(inline) {
  return inline.map((each) => {
    switch (each.type) {
      case 'text': return each.text;
      case 'code': return h('code', {}, each.text);
      case 'break': return h('br');
      case 'maths': return each.display ? h('span', {class: 'maths'}, mathsElement(each.tex, true)) : mathsElement(each.tex, false);
      case 'strong': return h('strong', {}, inlineNodes(each.inline));
      case 'em': return h('em', {}, inlineNodes(each.inline));
      case 'del': return h('del', {}, inlineNodes(each.inline));
      case 'link': return linkElement(each);
    }
  });
}

// Pictures are links: nothing is fetched because a model says so.
function linkElement({href, image, inline}) {
  if (!isSafeLink(href)) return h('span', {}, inlineNodes(inline));
  return h('a', {href, target: '_blank', rel: 'noopener noreferrer nofollow', class: image ? 'picture' : null, title: href}, inlineNodes(inline));
}
