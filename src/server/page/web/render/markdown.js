// Markdown to a tree of blocks, as models write it: CommonMark's usual parts, tables, task lists and
// maths. HTML is text like any other. Pure functions; nodes.js makes elements of the tree.
import {parseInline} from './inline.js';

// Blocks: {type, source, ...}. `source` is the text it was made of, so that whoever shows a growing
// text can tell which blocks have changed.
export function parseMarkdown(text) {
  return parseBlocks(text.replace(/\r\n?/g, '\n').replace(/\t/g, '    ').split('\n'), 0);
}

const MOST_NESTED = 12;  // deeper, it is a paragraph
const FENCE = /^( {0,3})(`{3,}|~{3,})\s*([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:\s+(.*?))?(?:\s+#+)?\s*$/;
const RULE = /^ {0,3}(?:(?:\*\s*){3,}|(?:-\s*){3,}|(?:_\s*){3,})$/;
const ITEM = /^( *)([-*+]|\d{1,9}[.)])(?: +(.*)|)$/;
const QUOTE = /^ {0,3}> ?/;
const MATHS = /^\s*(\$\$|\\\[)/;
const indentOf = (line) => line.length - line.trimStart().length;

function parseBlocks(lines, depth) {
  const blocks = [];
  let at = 0;
  while (at < lines.length) {
    if (lines[at].trim() === '') {
      ++at;
      continue;
    }
    const begin = at;
    const [block, next] = parseBlock(lines, at, depth);
    at = next;
    block.source = lines.slice(begin, at).join('\n');
    blocks.push(block);
  }
  return blocks;
}

function parseBlock(lines, at, depth) {
  const line = lines[at];
  const fence = FENCE.exec(line);
  if (fence) return parseFence(lines, at, fence);
  const heading = HEADING.exec(line);
  if (heading) return [{type: 'heading', level: heading[1].length, inline: parseInline(heading[2] ?? '')}, at + 1];
  if (RULE.test(line)) return [{type: 'rule'}, at + 1];
  if (depth < MOST_NESTED && QUOTE.test(line)) return parseQuote(lines, at, depth);
  if (depth < MOST_NESTED && ITEM.test(line)) return parseList(lines, at, depth);
  if (MATHS.test(line)) {
    const maths = parseMaths(lines, at);
    if (maths) return maths;
  }
  if (indentOf(line) >= 4) return parseIndented(lines, at);
  const table = parseTable(lines, at);
  return table ?? parseParagraph(lines, at, depth);
}

function parseFence(lines, at, [, indent, ticks, info]) {
  const text = [];
  let next = at + 1;
  const closes = new RegExp(`^ {0,3}${ticks[0] === '`' ? '`' : '~'}{${ticks.length},}\\s*$`);
  while (next < lines.length && !closes.test(lines[next]))
    text.push(lines[next].slice(Math.min(indent.length, indentOf(lines[next++]))));
  const closed = next < lines.length;
  return [{type: 'code', language: info.trim().split(/\s+/)[0].toLowerCase(), text: text.join('\n'), closed}, closed ? next + 1 : next];
}

function parseIndented(lines, at) {
  const text = [];
  let next = at;
  while (next < lines.length && (indentOf(lines[next]) >= 4 || lines[next].trim() === '')) text.push(lines[next++].slice(4));
  while (text.at(-1)?.trim() === '') {
    text.pop();
    --next;
  }
  return [{type: 'code', language: '', text: text.join('\n'), closed: true}, next];
}

function parseQuote(lines, at, depth) {
  const inner = [];
  let next = at;
  // A line that only goes on with a paragraph may leave the mark out.
  while (next < lines.length && (QUOTE.test(lines[next]) || (lines[next].trim() !== '' && inner.at(-1)?.trim() && !beginsBlock(lines[next]))))
    inner.push(lines[next++].replace(QUOTE, ''));
  return [{type: 'quote', blocks: parseBlocks(inner, depth + 1)}, next];
}

function parseList(lines, at, depth) {
  const [, , marker] = ITEM.exec(lines[at]);
  const ordered = marker.length > 1;
  const isSame = (match) => match && (match[2].length > 1) === ordered && match[2].at(-1) === marker.at(-1);
  const items = [];
  let next = at, loose = false;
  const base = indentOf(lines[at]);
  while (next < lines.length) {
    const match = ITEM.exec(lines[next]);
    if (!isSame(match) || indentOf(lines[next]) > base + 3 || RULE.test(lines[next])) break;
    const inside = match[1].length + match[2].length + 1;
    const own = [match[3] ?? ''];
    ++next;
    while (next < lines.length) {
      const blank = lines[next].trim() === '';
      if (blank && (next + 1 >= lines.length || indentOf(lines[next + 1]) < Math.min(inside, base + 2))) break;
      if (!blank && indentOf(lines[next]) < Math.min(inside, base + 2)) {
        if (ITEM.test(lines[next]) || beginsBlock(lines[next]) || own.at(-1).trim() === '') break;
      }
      own.push(lines[next].slice(Math.min(inside, indentOf(lines[next]))));
      ++next;
    }
    let skipped = next;
    while (skipped < lines.length && lines[skipped].trim() === '') ++skipped;
    if (skipped > next && isSame(ITEM.exec(lines[skipped] ?? '')) && indentOf(lines[skipped]) <= base + 3) {
      loose = true;
      next = skipped;
    }
    items.push(readItem(own, depth));
  }
  return [{type: 'list', ordered, start: ordered ? parseInt(marker, 10) : 1, loose, items}, next];
}

function readItem(lines, depth) {
  const task = /^\[([ xX])\] +/.exec(lines[0]);
  if (task) lines = [lines[0].slice(task[0].length), ...lines.slice(1)];
  return {task: task ? (task[1] === ' ' ? 'open' : 'done') : null, blocks: parseBlocks(lines, depth + 1)};
}

// A block of maths; null where it does not end, unless the text does.
function parseMaths(lines, at) {
  const open = MATHS.exec(lines[at])[1], close = open === '$$' ? '$$' : '\\]';
  const first = lines[at].slice(lines[at].indexOf(open) + open.length);
  const end = first.indexOf(close);
  if (end >= 0) {
    if (first.slice(end + close.length).trim() !== '') return null;  // goes on as text: maths inside a paragraph
    return [{type: 'maths', tex: first.slice(0, end).trim()}, at + 1];
  }
  const tex = [first];
  for (let next = at + 1; next < lines.length && next < at + 200; ++next) {
    const found = lines[next].indexOf(close);
    if (found >= 0) {
      tex.push(lines[next].slice(0, found));
      return [{type: 'maths', tex: tex.join('\n').trim()}, next + 1];
    }
    if (lines[next].trim() === '' && open === '$$') return null;
    tex.push(lines[next]);
  }
  return null;
}

function cells(line) {
  const text = line.trim().replace(/^\|/, '').replace(/(?<!\\)\|$/, '');
  const found = [];
  let cell = '', ticks = false;
  for (let i = 0; i < text.length; ++i) {
    if (text[i] === '\\' && text[i + 1] === '|') cell += text[++i];
    else if (text[i] === '|' && !ticks) {
      found.push(cell);
      cell = '';
    } else {
      if (text[i] === '`') ticks = !ticks;
      cell += text[i];
    }
  }
  found.push(cell);
  return found.map((each) => each.trim());
}

function parseTable(lines, at) {
  const below = lines[at + 1];
  if (below === undefined || !lines[at].includes('|') || !/^[\s|:-]+$/.test(below) || !below.includes('-')) return null;
  const head = cells(lines[at]), marks = cells(below);
  if (head.length !== marks.length || !marks.every((mark) => /^:?-+:?$/.test(mark))) return null;
  const align = marks.map((mark) => (mark.endsWith(':') ? (mark.startsWith(':') ? 'center' : 'right') : 'left'));
  const rows = [];
  let next = at + 2;
  while (next < lines.length && lines[next].includes('|') && lines[next].trim() !== '') {
    const row = cells(lines[next++]);
    rows.push(head.map((_, i) => parseInline(row[i] ?? '')));
  }
  return [{type: 'table', align, head: head.map(parseInline), rows}, next];
}

function beginsBlock(line) {
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || MATHS.test(line);
}

function parseParagraph(lines, at, depth) {
  const text = [lines[at]];
  let next = at + 1;
  while (next < lines.length && lines[next].trim() !== '' && !(beginsBlock(lines[next]) && !/^\s*\$\$.*\$\$\s*\S/.test(lines[next]))) {
    const item = ITEM.exec(lines[next]);
    if (item && depth < MOST_NESTED && (item[2].length === 1 || /^1[.)]$/.test(item[2])) && item[3]) break;
    if (parseTable(lines, next)) break;
    text.push(lines[next++]);
  }
  return [{type: 'paragraph', inline: parseInline(text.map((line, i) => (i === 0 ? line.trimStart() : line.replace(/^ +/, ''))).join('\n').trimEnd())}, next];
}
