// The TeX that models write to MathML: {tag, attributes, children | text}. A command that is not known
// is shown as it is written; nothing throws.
import {
  ACCENTS, FUNCTIONS, IDENTIFIERS, INTEGRALS, LIMIT_FUNCTIONS, OPERATORS, SPACES, SUMS, UNDERS, inAlphabet, isAlphabet,
} from './tex_symbols.js';

const MOST_NESTED = 60;
const node = (tag, attributes, ...children) => ({tag, attributes, children});
const leaf = (tag, text, attributes = {}) => ({tag, attributes, text});
const row = (children) => (children.length === 1 ? children[0] : node('mrow', {}, ...children));

export function texToMathml(tex, display = false) {
  const parser = new Parser(tokens(tex), display);
  const children = parser.parseUntil(() => false);
  return node('math', display ? {display: 'block'} : {}, row(children));
}

// Commands keep their backslash: "\frac", "\,". Blanks matter only in texts, which keep theirs.
function tokens(tex) {
  return tex.replace(/(?<!\\)%.*$/gm, '').match(/\\[a-zA-Z]+\*?|\\[\s\S]|\s+|[\s\S]/gu) ?? [];
}

class Parser {
  #tokens;
  #at = 0;
  #depth = 0;
  #display;
  constructor(list, display) {
    this.#tokens = list;
    this.#display = display;
  }

  #skipBlanks() {
    while (this.#at < this.#tokens.length && /^\s/.test(this.#tokens[this.#at])) ++this.#at;
  }
  #peek() {
    this.#skipBlanks();
    return this.#tokens[this.#at];
  }
  #next() {
    this.#skipBlanks();
    return this.#tokens[this.#at++];
  }
  #accept(token) {
    if (this.#peek() !== token) return false;
    ++this.#at;
    return true;
  }

  parseUntil(ends) {
    const out = [];
    if (++this.#depth > MOST_NESTED) this.#at = this.#tokens.length;
    while (this.#peek() !== undefined && !ends(this.#peek())) {
      const before = this.#at;
      if (this.#peek() === '\\over' || this.#peek() === '\\choose') {  // divides the whole group
        const isChoose = this.#next() === '\\choose';
        const above = row(out.splice(0)), below = row(this.parseUntil(ends));
        out.push(isChoose ? binomial(above, below) : node('mfrac', {}, above, below));
        break;
      }
      const atom = this.#scripts();
      if (atom) out.push(atom);
      if (this.#at === before) ++this.#at;
    }
    --this.#depth;
    return out;
  }

  // An atom with what is above and below it.
  #scripts() {
    const base = this.#peek() === '^' || this.#peek() === '_' ? {node: leaf('mi', '')} : this.#atom();
    if (!base) return null;
    let limits = base.limits ?? false, below = null, above = null, primes = 0;
    while (true) {
      const token = this.#peek();
      if (token === '\\limits' || token === '\\nolimits') {
        limits = token === '\\limits';
        ++this.#at;
      } else if (token === "'") {
        ++primes;
        ++this.#at;
      } else if (token === '_' && !below) {
        ++this.#at;
        below = this.#argument();
      } else if (token === '^' && !above) {
        ++this.#at;
        above = this.#argument();
      } else {
        break;
      }
    }
    if (primes > 0) {
      const marks = leaf('mo', '′'.repeat(primes), {lspace: '0', rspace: '0'});
      above = above ? row([marks, above]) : marks;
    }
    const [under, over, both] = limits ? ['munder', 'mover', 'munderover'] : ['msub', 'msup', 'msubsup'];
    if (below && above) return node(both, {}, base.node, below, above);
    if (below) return node(under, {}, base.node, below);
    if (above) return node(over, {}, base.node, above);
    return base.node;
  }

  // A group, a command with its own arguments, or one character.
  #argument() {
    if (this.#peek() === undefined) return leaf('mi', '');
    if (++this.#depth > MOST_NESTED) this.#at = this.#tokens.length;
    const argument = this.#accept('{') ? this.#group() : this.#atom()?.node ?? leaf('mi', '');
    --this.#depth;
    return argument;
  }
  #group() {
    const inside = this.parseUntil((token) => token === '}');
    this.#accept('}');
    return row(inside);
  }

  // The text of a group, blanks included.
  #rawGroup() {
    if (!this.#accept('{')) return (this.#next() ?? '').replace(/^\\/, '');
    let text = '', depth = 1;
    while (this.#at < this.#tokens.length) {
      const token = this.#tokens[this.#at++];
      if (token === '{') ++depth;
      else if (token === '}' && --depth === 0) break;
      text += /^\\[^a-zA-Z]$/.test(token) ? token[1] : token === '~' ? ' ' : token;
    }
    return text;
  }
  #optional() {
    if (!this.#accept('[')) return null;
    const inside = this.parseUntil((token) => token === ']');
    this.#accept(']');
    return row(inside);
  }

  #atom() {
    const token = this.#next();
    if (token === undefined) return null;
    if (token === '{') return {node: this.#group()};
    if (token === '}' || token === '&') return null;
    if (token[0] === '\\' && token.length > 1) return this.#command(token.slice(1));
    if (/[0-9.]/.test(token)) {
      let number = token;
      while (/^[0-9.]$/.test(this.#tokens[this.#at] ?? '') || (this.#tokens[this.#at] === ',' && /^[0-9]$/.test(this.#tokens[this.#at + 1] ?? '') && /[0-9]$/.test(number) && this.#threeDigits()))
        number += this.#tokens[this.#at++];
      return {node: leaf('mn', number)};
    }
    if (/\p{L}/u.test(token)) return {node: leaf('mi', token)};
    if (token === '-') return {node: leaf('mo', '−')};
    if (token === '*') return {node: leaf('mo', '∗')};
    if (token === '~') return {node: space(0.25)};
    if ('()[]|/'.includes(token)) return {node: leaf('mo', token, {stretchy: 'false'})};
    return {node: leaf('mo', token)};
  }
  // "1,000" is a number, "f(1,2)" is not.
  #threeDigits() {
    const after = this.#tokens.slice(this.#at + 1, this.#at + 5);
    return after.slice(0, 3).every((each) => /^[0-9]$/.test(each ?? '')) && !/^[0-9]$/.test(after[3] ?? '');
  }

  #command(name) {
    if (name in IDENTIFIERS) return {node: leaf('mi', IDENTIFIERS[name], /^[A-Z]/.test(name) ? {mathvariant: 'normal'} : {})};
    if (name in OPERATORS) return {node: leaf('mo', OPERATORS[name], /vert$/i.test(name) ? {stretchy: 'false'} : {})};
    if (name in SUMS) return {node: leaf('mo', SUMS[name], {largeop: 'true', movablelimits: this.#display ? 'false' : 'true'}), limits: this.#display};
    if (name in INTEGRALS) return {node: leaf('mo', INTEGRALS[name], {largeop: 'true'})};
    if (FUNCTIONS.has(name)) return {node: row([leaf('mi', name), ...this.#applied()])};
    if (LIMIT_FUNCTIONS.has(name)) return {node: leaf('mo', name.replace(/^(arg|lim)(max|min|sup|inf)$/, '$1 $2'), {movablelimits: this.#display ? 'false' : 'true'}), limits: this.#display};
    if (name in SPACES) return {node: space(SPACES[name])};
    if (name in ACCENTS) return this.#accent(ACCENTS[name], name);
    if (name in UNDERS) return {node: node('munder', {}, this.#argument(), leaf('mo', UNDERS[name], {stretchy: 'true'})), limits: true};
    if (isAlphabet(name)) return {node: restyled(this.#argument(), (text) => inAlphabet(name, text))};
    switch (name) {
      case 'frac': case 'dfrac': case 'tfrac': case 'cfrac': return {node: node('mfrac', {}, this.#argument(), this.#argument())};
      case 'binom': case 'dbinom': case 'tbinom': return {node: binomial(this.#argument(), this.#argument())};
      case 'sqrt': return this.#root();
      case 'text': case 'textrm': case 'textnormal': case 'mbox': case 'textit': case 'textbf': case 'texttt': case 'textsf':
        return {node: leaf('mtext', this.#rawGroup().replace(/^ | $/g, '\u00A0'), name === 'textbf' ? {class: 'bold'} : {})};
      case 'mathrm': case 'mathit': case 'mathnormal': return {node: upright(this.#argument(), name)};
      case 'operatorname': case 'operatorname*':
        return {node: leaf('mo', this.#rawGroup(), {lspace: '0', rspace: '0.167em'}), limits: name.endsWith('*') && this.#display};
      case 'left': return {node: this.#delimited()};
      case 'big': case 'Big': case 'bigg': case 'Bigg': case 'bigl': case 'bigr': case 'Bigl': case 'Bigr': case 'biggl': case 'biggr': case 'bigm': case 'middle':
        return {node: leaf('mo', this.#delimiter(), {stretchy: name === 'middle' ? 'true' : 'false'})};
      case 'overset': case 'stackrel': return this.#stacked('mover');
      case 'underset': return this.#stacked('munder');
      case 'xrightarrow': case 'xleftarrow': return {node: node('mover', {}, leaf('mo', name === 'xrightarrow' ? '→' : '←', {stretchy: 'true'}), this.#argument())};
      case 'boxed': case 'fbox': return {node: node('mrow', {class: 'boxed'}, this.#argument())};
      case 'phantom': return {node: node('mphantom', {}, this.#argument())};
      case 'not': return {node: struck(this.#argument())};
      case 'pmod': return {node: row([leaf('mo', '('), leaf('mi', 'mod'), space(0.333), this.#argument(), leaf('mo', ')')])};
      case 'bmod': case 'mod': return {node: leaf('mo', 'mod')};
      case 'begin': return {node: this.#environment()};
      case 'color': case 'label': case 'tag': this.#rawGroup(); return null;
      case 'textcolor': this.#rawGroup(); return {node: this.#argument()};
      case 'substack': return {node: this.#substack()};
      case '|': return {node: leaf('mo', '‖', {stretchy: 'false'})};
      case '\\': return null;  // a new line outside of a table
      case 'displaystyle': case 'textstyle': case 'scriptstyle': case 'nonumber': case 'notag': case 'hline': case 'right': case 'end': return null;
      default:
        if (!/^[a-zA-Z]/.test(name)) return {node: leaf('mo', name)};  // \{ \% \$ \#
        return {node: leaf('mtext', `\\${name}`, {class: 'unknown'})};
    }
  }

  // Some room between a function and what it is applied to, unless that is in brackets.
  #applied() {
    const token = this.#peek();
    return token === undefined || /^[([{^_)\]},=]$/.test(token) || token === '\\left' ? [] : [space(0.167)];
  }
  #accent(mark, name) {
    const wide = /^(wide|over)/.test(name);
    return {node: node('mover', {accent: 'true'}, this.#argument(), leaf('mo', mark, {stretchy: wide ? 'true' : 'false'})), limits: name === 'overbrace'};
  }
  #root() {
    const degree = this.#optional();
    const inside = this.#argument();
    return {node: degree ? node('mroot', {}, inside, degree) : node('msqrt', {}, inside)};
  }
  #stacked(tag) {
    const mark = this.#argument(), base = this.#argument();
    return {node: node(tag, {}, base, mark)};
  }
  #substack() {
    this.#accept('{');
    return this.#table((token) => token === '}', {});
  }

  #delimiter() {
    const token = this.#next() ?? '.';
    if (token === '.') return '';
    const name = token.replace(/^\\/, '');
    if (token[0] !== '\\') return token;
    return name === '|' ? '‖' : OPERATORS[name] ?? name;
  }
  #delimited() {
    const open = this.#delimiter();
    const inside = this.parseUntil((token) => token === '\\right');
    const close = this.#accept('\\right') ? this.#delimiter() : '';
    return node('mrow', {}, leaf('mo', open, {fence: 'true', stretchy: 'true'}), ...inside, leaf('mo', close, {fence: 'true', stretchy: 'true'}));
  }

  #environment() {
    const name = this.#rawGroup().replace(/\*$/, '');
    let align = /^(align|aligned|alignat|split|eqnarray)/.test(name) ? 'equations' : '';
    if (name === 'array') align = this.#rawGroup().replace(/[^lcr]/g, '');
    if (name === 'cases') align = 'l';
    const table = this.#table((token) => token === '\\end', {align});
    if (this.#accept('\\end')) this.#rawGroup();
    const fences = {pmatrix: '()', bmatrix: '[]', Bmatrix: '{}', vmatrix: '||', Vmatrix: '‖‖', cases: '{ '}[name];
    if (!fences) return table;
    const fence = (text) => leaf('mo', text.trim(), {fence: 'true', stretchy: 'true'});
    return node('mrow', {}, fence(fences[0]), table, fence(fences[1]));
  }
  #table(ends, {align = ''}) {
    const rows = [];
    let cells = [];
    const isEnd = (token) => ends(token) || token === '&' || token === '\\\\';
    while (this.#peek() !== undefined) {
      cells.push(node('mtd', cellAlignment(align, cells.length), row(this.parseUntil(isEnd))));
      const token = this.#peek();
      if (token === '&') {
        ++this.#at;
        continue;
      }
      rows.push(node('mtr', {}, ...cells));
      cells = [];
      if (token !== '\\\\') break;
      ++this.#at;
      if (this.#accept('[')) this.parseUntil((each) => each === ']'), this.#accept(']');
    }
    if (ends === undefined) return node('mtable', {}, ...rows);
    if (this.#peek() === '}' && ends('}')) ++this.#at;
    return node('mtable', align === 'equations' ? {class: 'equations'} : {}, ...rows);
  }
}

function cellAlignment(align, column) {
  if (align === 'equations') return {class: column % 2 === 0 ? 'right' : 'left'};
  const letter = align.length === 1 ? align : align[column];
  return letter === 'l' ? {class: 'left'} : letter === 'r' ? {class: 'right'} : {};
}

function space(em) {
  return {tag: 'mspace', attributes: {width: `${em}em`}, children: []};
}

function binomial(above, below) {
  return node('mrow', {}, leaf('mo', '(', {fence: 'true'}), node('mfrac', {linethickness: '0'}, above, below), leaf('mo', ')', {fence: 'true'}));
}

// The same tree with other letters.
function restyled(tree, change) {
  if (tree.text !== undefined) {
    const text = change(tree.text);
    return text === tree.text ? tree : {...tree, text, attributes: {...tree.attributes, ...(tree.tag === 'mi' ? {mathvariant: 'normal'} : {})}};
  }
  return {...tree, children: tree.children.map((child) => restyled(child, change))};
}

// \mathrm{kg}: letters as one upright word.
function upright(tree, name) {
  const letters = tree.tag === 'mrow' && tree.children.every((child) => child.tag === 'mi' && child.text);
  if (letters && name !== 'mathnormal') return leaf('mi', tree.children.map((child) => child.text).join(''), {mathvariant: 'normal'});
  return name === 'mathrm' ? restyled(tree, (text) => text) && withVariant(tree) : tree;
}
function withVariant(tree) {
  if (tree.text !== undefined) return tree.tag === 'mi' ? {...tree, attributes: {...tree.attributes, mathvariant: 'normal'}} : tree;
  return {...tree, children: tree.children.map(withVariant)};
}

function struck(tree) {
  return tree.text === undefined ? tree : {...tree, text: `${tree.text}\u0338`};
}
