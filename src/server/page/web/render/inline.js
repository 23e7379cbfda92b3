// The inside of a paragraph: emphasis, code, links, maths. Makes a list of
// {type: 'text' | 'code' | 'maths' | 'break', text} and {type: 'strong' | 'em' | 'del' | 'link', inline}.

const ESCAPED = /^[!-/:-@[-`{-~]/;
const AUTO_LINK = /^https?:\/\/[^\s<>"'`]+[^\s<>"'`.,;:!?)\]}*_]/;
const MOST_NESTED = 8;
const FARTHEST = 2000;  // that a mark may be from the one that closes it

// Only these may be opened from a text that a model wrote.
export function isSafeLink(href) {
  return /^(https?:|mailto:)/i.test(href.trim());
}

export function parseInline(text, depth = 0) {
  const out = [];
  let plain = '';
  const flush = () => {
    if (plain) out.push({type: 'text', text: plain});
    plain = '';
  };
  for (let at = 0; at < text.length;) {
    const found = depth < MOST_NESTED ? parseOne(text, at, depth) : null;
    if (found) {
      flush();
      out.push(found.node);
      at = found.next;
    } else if (text[at] === '\\' && ESCAPED.test(text.slice(at + 1, at + 2))) {
      plain += text[at + 1];
      at += 2;
    } else {
      plain += text[at++];
    }
  }
  flush();
  return out;
}

function parseOne(text, at, depth) {
  switch (text[at]) {
    case '`': return parseCode(text, at);
    case '$': return parseDollars(text, at);
    case '\\': return text[at + 1] === '\n' ? {node: {type: 'break'}, next: at + 2} : parseBrackets(text, at);
    case '\n': return parseBreak(text, at);
    case ' ': return /^ {2,}\n/.test(text.slice(at)) ? {node: {type: 'break'}, next: text.indexOf('\n', at) + 1} : null;
    case '*':
    case '_': return parseEmphasis(text, at, depth);
    case '~': return parsePair(text, at, '~~', 'del', depth);
    case '!':
    case '[': return parseLink(text, at, depth);
    case '<': return parseAngles(text, at);
    case 'h': return parseAutoLink(text, at);
    default: return null;
  }
}

// Models break lines where they mean it.
function parseBreak(text, at) {
  return {node: {type: 'break'}, next: at + 1};
}

function parseCode(text, at) {
  const ticks = /^`+/.exec(text.slice(at))[0];
  let end = at + ticks.length;
  while (true) {
    end = text.indexOf(ticks, end);
    if (end < 0) return {node: {type: 'text', text: ticks}, next: at + ticks.length};
    const run = /^`+/.exec(text.slice(end))[0];
    if (run.length === ticks.length) break;
    end += run.length;
  }
  let inside = text.slice(at + ticks.length, end).replace(/\n/g, ' ');
  if (/^ .* $/.test(inside) && inside.trim()) inside = inside.slice(1, -1);
  return {node: {type: 'code', text: inside}, next: end + ticks.length};
}

// $x$, not "$5 and $6": no blank inside, no digit behind.
function parseDollars(text, at) {
  if (text.startsWith('$$', at)) {
    const end = text.indexOf('$$', at + 2);
    return end < 0 ? null : {node: {type: 'maths', tex: text.slice(at + 2, end).trim(), display: true}, next: end + 2};
  }
  if (/\s/.test(text[at + 1] ?? ' ')) return null;
  for (let end = at + 1; (end = text.indexOf('$', end)) > 0 && end < at + FARTHEST; ++end) {
    if (text[end - 1] === '\\') continue;
    if (/\s/.test(text[end - 1]) || /\d/.test(text[end + 1] ?? '') || end === at + 1) return null;
    const tex = text.slice(at + 1, end);
    if (tex.includes('\n\n')) return null;
    return {node: {type: 'maths', tex, display: false}, next: end + 1};
  }
  return null;
}

function parseBrackets(text, at) {
  const open = text.slice(at, at + 2);
  if (open !== '\\(' && open !== '\\[') return null;
  const near = text.slice(at + 2, at + 2 + FARTHEST);
  const end = near.indexOf(open === '\\(' ? '\\)' : '\\]');
  if (end < 0) return null;
  return {node: {type: 'maths', tex: near.slice(0, end).trim(), display: open === '\\['}, next: at + end + 4};
}

const isWord = (character) => character !== undefined && /[\p{L}\p{N}]/u.test(character);

function parseEmphasis(text, at, depth) {
  const mark = text[at];
  if (mark === '_' && isWord(text[at - 1])) return null;
  for (const [delimiter, type] of [[mark.repeat(2), 'strong'], [mark, 'em']]) {
    const found = parsePair(text, at, delimiter, type, depth);
    if (found) return found;
  }
  return null;
}

function parsePair(text, at, delimiter, type, depth) {
  const begin = at + delimiter.length;
  if (!text.startsWith(delimiter, at) || /\s/.test(text[begin] ?? ' ')) return null;
  for (let end = begin; (end = text.indexOf(delimiter, end)) > 0 && end < begin + FARTHEST; ++end) {
    if (end === begin || /[\s\\]/.test(text[end - 1])) continue;
    if (delimiter.length === 1 && (text[end + 1] === delimiter || text[end - 1] === delimiter)) {
      ++end;
      continue;
    }
    if (delimiter[0] === '_' && isWord(text[end + delimiter.length])) continue;
    const inside = text.slice(begin, end);
    if ((inside.split('`').length - 1) % 2 === 1) continue;  // ends inside of code
    // "***both***": the longest run of marks closes.
    if (delimiter.length === 2 && text[end + 2] === delimiter[0] && inside[0] === delimiter[0]) ++end;
    return {node: {type, inline: parseInline(text.slice(begin, end), depth + 1)}, next: end + delimiter.length};
  }
  return null;
}

function parseLink(text, at, depth) {
  const image = text[at] === '!';
  const open = image ? at + 1 : at;
  if (text[open] !== '[') return null;
  const close = matching(text, open, '[', ']');
  if (close < 0 || text[close + 1] !== '(') return null;
  const end = matching(text, close + 1, '(', ')');
  if (end < 0) return null;
  const target = /^\s*<?([^\s>]*)>?(?:\s+["'(].*["')])?\s*$/.exec(text.slice(close + 2, end));
  if (!target) return null;
  const label = text.slice(open + 1, close);
  return {node: {type: 'link', href: target[1], image, inline: parseInline(label || target[1], depth + 1)}, next: end + 1};
}

function matching(text, at, open, close) {
  for (let depth = 0, i = at; i < text.length && i < at + 4000; ++i) {
    if (text[i] === '\\') ++i;
    else if (text[i] === open) ++depth;
    else if (text[i] === close && --depth === 0) return i;
  }
  return -1;
}

function parseAngles(text, at) {
  const link = /^<((?:https?:\/\/|mailto:)[^\s<>]+)>/.exec(text.slice(at));
  if (!link) return null;
  return {node: {type: 'link', href: link[1], inline: [{type: 'text', text: link[1]}]}, next: at + link[0].length};
}

function parseAutoLink(text, at) {
  if (isWord(text[at - 1])) return null;
  const link = AUTO_LINK.exec(text.slice(at, at + 2000));
  if (!link) return null;
  return {node: {type: 'link', href: link[0], inline: [{type: 'text', text: link[0]}]}, next: at + link[0].length};
}
