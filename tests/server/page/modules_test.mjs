// The modules of the page that need no page: what they make of texts, trees, streams and files.
//   modules_test.mjs DIRECTORY    the one with the page's files
import assert from 'node:assert/strict';
import {pathToFileURL} from 'node:url';
import {test} from 'node:test';

const root = pathToFileURL(`${process.argv[2]}/`);
const load = (path) => import(new URL(path, root));
const {parseMarkdown} = await load('render/markdown.js');
const {parseInline, isSafeLink} = await load('render/inline.js');
const {texToMathml} = await load('render/tex.js');
const {highlight} = await load('render/highlight.js');
const {EventParser} = await load('base/sse.js');
const {Tree} = await load('store/tree.js');
const {fromJson, toJson, toMarkdown, withFiles, fenced} = await load('store/transfer.js');
const {calculate} = await load('chat/calculator.js');
const {apiMessages, takeChunk} = await load('chat/answer.js');
const {requestFields, ownTools, countSet} = await load('chat/parameters.js');
const {EngineState} = await load('engine/state.js');
const {Recorder, Player, readRecording} = await load('engine/recording.js');
const {boundOf, lookaheadText, memoryOwners} = await load('engine/report.js');
const text = await load('base/text.js');

// A short way to write what was parsed.
const inlineText = (inline) => inline.map((each) => {
  switch (each.type) {
    case 'text': return each.text;
    case 'code': return `<code>${each.text}</code>`;
    case 'break': return '<br>';
    case 'maths': return each.display ? `<$$>${each.tex}</$$>` : `<$>${each.tex}</$>`;
    case 'link': return `<a ${each.href}>${inlineText(each.inline)}</a>`;
    default: return `<${each.type}>${inlineText(each.inline)}</${each.type}>`;
  }
}).join('');
const blockText = (block) => {
  switch (block.type) {
    case 'heading': return `<h${block.level}>${inlineText(block.inline)}</h${block.level}>`;
    case 'paragraph': return `<p>${inlineText(block.inline)}</p>`;
    case 'rule': return '<hr>';
    case 'quote': return `<quote>${block.blocks.map(blockText).join('')}</quote>`;
    case 'code': return `<pre ${block.language}>${block.text}</pre>`;
    case 'maths': return `<$$>${block.tex}</$$>`;
    case 'list': return `<${block.ordered ? `ol ${block.start}` : 'ul'}>${block.items.map((item) => `<li${item.task ? ` ${item.task}` : ''}>${item.blocks.map(blockText).join('')}</li>`).join('')}</list>`;
    case 'table': return `<table ${block.align.join(' ')}>${[block.head, ...block.rows].map((row) => row.map(inlineText).join('|')).join('/')}</table>`;
  }
};
const markdown = (source) => parseMarkdown(source).map(blockText).join('');
const inline = (source) => inlineText(parseInline(source));

test('blocks of Markdown', () => {
  for (const [source, wanted] of [
    ['# One\n## Two ##\ntext', '<h1>One</h1><h2>Two</h2><p>text</p>'],
    ['#no heading', '<p>#no heading</p>'],
    ['a\nb\n\nc', '<p>a<br>b</p><p>c</p>'],
    ['***\n---\n_ _ _', '<hr><hr><hr>'],
    ['> a\n> b\nc\n\nd', '<quote><p>a<br>b<br>c</p></quote><p>d</p>'],
    ['> > deep', '<quote><quote><p>deep</p></quote></quote>'],
    ['```js\nlet a;\n\n  b\n```\nc', '<pre js>let a;\n\n  b</pre><p>c</p>'],
    ['~~~\n```\n~~~', '<pre >```</pre>'],
    ['````md\n```\nx\n```\n````', '<pre md>```\nx\n```</pre>'],
    ['```py\nhalf', '<pre py>half</pre>'],
    ['    code\n    more\n\ntext', '<pre >code\nmore</pre><p>text</p>'],
    ['- a\n- b', '<ul><li><p>a</p></li><li><p>b</p></li></list>'],
    ['3. a\n4. b', '<ol 3><li><p>a</p></li><li><p>b</p></li></list>'],
    ['- a\n  - b\n    - c\n- d', '<ul><li><p>a</p><ul><li><p>b</p><ul><li><p>c</p></li></list></li></list></li><li><p>d</p></li></list>'],
    ['1. a\n   ```\n   x\n   ```\n2. b', '<ol 1><li><p>a</p><pre >x</pre></li><li><p>b</p></li></list>'],
    ['- [ ] a\n- [x] b', '<ul><li open><p>a</p></li><li done><p>b</p></li></list>'],
    ['text\n- a', '<p>text</p><ul><li><p>a</p></li></list>'],
    ['2024. was a year', '<ol 2024><li><p>was a year</p></li></list>'],
    ['in\n2024. was', '<p>in<br>2024. was</p>'],
    ['| a | b |\n|:--|--:|\n| 1 | `x|y` |\n| 2 |', '<table left right>a|b/1|<code>x|y</code>/2|</table>'],
    ['a | b\n--|--\n1 \\| 2 | 3', '<table left left>a|b/1 | 2|3</table>'],
    ['a | b', '<p>a | b</p>'],
    ['$$\na = b\n$$', '<$$>a = b</$$>'],
    ['\\[ x \\]', '<$$>x</$$>'],
    ['$$x$$ and more', '<p><$$>x</$$> and more</p>'],
    ['$$\nnever closed', '<p>$$<br>never closed</p>'],
    ['<b>no</b>', '<p><b>no</b></p>'],
    ['', ''],
  ]) assert.equal(markdown(source), wanted, source);
});

test('the inside of a paragraph', () => {
  for (const [source, wanted] of [
    ['**a** *b* ***c*** __d__ _e_ ~~f~~', '<strong>a</strong> <em>b</em> <strong><em>c</em></strong> <strong>d</strong> <em>e</em> <del>f</del>'],
    ['snake_case_name 2*3*4', 'snake_case_name 2<em>3</em>4'],
    ['a * b * c', 'a * b * c'],
    ['**not closed', '**not closed'],
    ['**a `**` b**', '<strong>a <code>**</code> b</strong>'],
    ['`a` ``b ` c`` `half', '<code>a</code> <code>b ` c</code> `half'],
    ['\\*a\\* \\`', '*a* `'],
    ['$x_1$ costs $5 and $6', '<$>x_1</$> costs $5 and $6'],
    ['\\(a\\) \\[b\\]', '<$>a</$> <$$>b</$$>'],
    ['[a *b*](https://x.y/(z) "t")', '<a https://x.y/(z)>a <em>b</em></a>'],
    ['![p](https://x.y/p.png)', '<a https://x.y/p.png>p</a>'],
    ['see https://x.y/a_b_c, and <https://z.w>.', 'see <a https://x.y/a_b_c>https://x.y/a_b_c</a>, and <a https://z.w>https://z.w</a>.'],
    ['[no link] (x)', '[no link] (x)'],
    ['a  \nb\\\nc', 'a<br>b<br>c'],
  ]) assert.equal(inline(source), wanted, source);
  for (const href of ['https://a', 'http://a', 'mailto:a@b']) assert.ok(isSafeLink(href));
  for (const href of ['javascript:a', ' JavaScript:a', 'data:text/html,a', 'file:///a', '//a', 'a']) assert.ok(!isSafeLink(href));
});

test('long and hostile texts take no time', () => {
  const begin = process.cpuUsage();
  for (const piece of ['*a ', '`', '[', '$', '**', '_a_', '- ', '> ', '|', '<', '\\(', 'a*b`c[d(', '1. ', '$$', '\t- a\n'])
    parseMarkdown(piece.repeat(20_000));
  parseMarkdown('> '.repeat(5000) + 'deep');
  for (const piece of ['{', '\\left(', '\\frac', '^', '\\begin{a}', '}', '&', '\\sqrt{']) texToMathml(piece.repeat(5000));
  for (const language of ['js', 'py', 'html', 'json', 'c', 'diff', 'yaml']) for (const piece of ['"', "'", '/*', '#', '<a ', '`', 'a.', '0x']) highlight(piece.repeat(20_000), language);
  const seconds = process.cpuUsage(begin).user / 1e6;  // not by the clock: other tests run, too
  assert.ok(seconds < 10, `${seconds} s`);
});

test('a growing text changes only its last blocks', () => {
  const source = '# A\n\ntext **bold** $x$\n\n- a\n- b\n\n```js\nlet x = 1;\n```\n\n| a |\n|---|\n| 1 |\n\nend';
  const whole = parseMarkdown(source).map((block) => block.source);
  assert.equal(whole.join('\n\n'), source);
  let most = 0;
  for (let n = 1; n <= source.length; ++n) {
    const blocks = parseMarkdown(source.slice(0, n)).map((block) => block.source);
    let same = 0;
    while (same < blocks.length && blocks[same] === whole[same]) ++same;
    assert.ok(blocks.length - same <= 2);
    most = Math.max(most, same);
  }
  assert.equal(most, whole.length);
});

const mathml = (tree) => (tree.text !== undefined ? `${tree.tag}:${tree.text}` : `${tree.tag}(${tree.children.map(mathml).join(' ')})`);
test('TeX to MathML', () => {
  for (const [tex, wanted] of [
    ['x^2_1', 'math(msubsup(mi:x mn:1 mn:2))'],
    ['\\frac12', 'math(mfrac(mn:12 mi:))'],
    ['\\frac{1}{2}', 'math(mfrac(mn:1 mn:2))'],
    ['\\sqrt[3]{x}', 'math(mroot(mi:x mn:3))'],
    ['\\alpha \\le \\infty', 'math(mrow(mi:α mo:≤ mi:∞))'],
    ['1,000.5 + f(1,2)', 'math(mrow(mn:1,000.5 mo:+ mi:f mo:( mn:1 mo:, mn:2 mo:)))'],
    ['\\mathbb{R}^n', 'math(msup(mi:ℝ mi:n))'],
    ["f''", 'math(msup(mi:f mo:′′))'],
    ['\\text{if } x', 'math(mrow(mtext:if\u00A0 mi:x))'],
    ['\\mathrm{kg}', 'math(mi:kg)'],
    ['a \\over b', 'math(mfrac(mi:a mi:b))'],
    ['\\left[ x \\right.', 'math(mrow(mo:[ mi:x mo:))'],
    ['\\begin{matrix} a & b \\\\ c & d \\end{matrix}', 'math(mtable(mtr(mtd(mi:a) mtd(mi:b)) mtr(mtd(mi:c) mtd(mi:d))))'],
    ['\\begin{cases} 1 & x \\\\ 0 \\end{cases}', 'math(mrow(mo:{ mtable(mtr(mtd(mn:1) mtd(mi:x)) mtr(mtd(mn:0))) mo:))'],
    ['\\overline{ab}', 'math(mover(mrow(mi:a mi:b) mo:¯))'],
    ['\\sum_{i}^n', 'math(msubsup(mo:∑ mi:i mi:n))'],
    ['\\binom{n}{k}', 'math(mrow(mo:( mfrac(mi:n mi:k) mo:)))'],
    ['\\not= x', 'math(mrow(mo:=\u0338 mi:x))'],
    ['\\unknown', 'math(mtext:\\unknown)'],
    ['\\{a\\}', 'math(mrow(mo:{ mi:a mo:}))'],
    ['a % note\nb', 'math(mrow(mi:a mi:b))'],
  ]) assert.equal(mathml(texToMathml(tex)), wanted, tex);
  assert.equal(mathml(texToMathml('\\sum_{i}^n', true)), 'math(munderover(mo:∑ mi:i mi:n))');
  for (const broken of ['{', '}', '^', '_', '\\frac', '\\left', '\\right)', '\\begin{x', '\\end{x}', '&', '\\\\', '\\', 'x^{', '\\sqrt[', '\\begin{array}{cc} a'])
    assert.equal(texToMathml(broken).tag, 'math', broken);
});

test('highlighting loses nothing', () => {
  const sources = ['def f(x):\n  """doc"""\n  return x + 1  # c', 'const a = `x${1}`; // c', '{"a": [1, true]}', '<a href="b">c</a>', '#include <x>\nint main() { return 0x1F; }',
    'SELECT * FROM t -- c', '+ a\n- b\n@@ c', 'key: value # c', 'if [ "$A" ]; then echo \'x\'; fi', '"never closed', '/* never closed'];
  for (const name of ['py', 'js', 'json', 'html', 'cpp', 'sql', 'diff', 'yaml', 'bash', 'rust', 'go', 'java', 'ruby', 'lua', 'css', 'toml', 'make', 'nothing', ''])
    for (const source of sources) assert.equal(highlight(source, name).map(([, piece]) => piece).join(''), source, `${name}: ${source}`);
  const classes = Object.fromEntries(highlight('def f(x):  # c\n  return "s" + 1', 'python').filter(([name]) => name).map(([name, piece]) => [piece, name]));
  assert.deepEqual(classes, {def: 'keyword', f: 'function', '# c': 'comment', return: 'keyword', '"s"': 'string', 1: 'number'});
});

test('events of a stream, however it is cut', () => {
  const stream = ': ping\n\nevent: state\ndata: {"a":1}\n\ndata: one\ndata: two\r\n\r\nevent: empty\n\ndata: last\n\ndata: half';
  const wanted = [{name: 'state', data: '{"a":1}'}, {name: 'message', data: 'one\ntwo'}, {name: 'message', data: 'last'}];
  for (let size = 1; size <= stream.length; ++size) {
    const parser = new EventParser(), events = [];
    for (let at = 0; at < stream.length; at += size) events.push(...parser.feed(stream.slice(at, at + size)));
    assert.deepEqual(events, wanted, `pieces of ${size}`);
  }
});

const said = (id, parent, role, time, content = id) => ({id, chat: 'c', parent, role, time, content});
test('branches of a chat', () => {
  const tree = new Tree([said('a2', 'q1', 'assistant', 3), said('q1', null, 'user', 1), said('a1', 'q1', 'assistant', 2), said('q2', 'a1', 'user', 4)]);
  assert.deepEqual(tree.path('q2').map((each) => each.id), ['q1', 'a1', 'q2']);
  assert.equal(tree.leafBelow('q1'), 'a2');
  assert.equal(tree.leafBelow('a1'), 'q2');
  assert.deepEqual([tree.branches('a2').index, tree.branches('a2').siblings.length], [1, 2]);
  assert.deepEqual(tree.path('nothing'), []);
  const loop = new Tree([said('x', 'y', 'user', 1), said('y', 'x', 'user', 2)]);
  assert.equal(loop.path('x').length, 2);
});

test('chats as files', () => {
  const chat = {id: 'c', title: 'T', created: 1, updated: 2, leaf: 'a', model: 'm', options: {temperature: 1}};
  const messages = [{...said('q', null, 'user', 1), files: [{name: 'f', text: 't'}]}, {...said('a', 'q', 'assistant', 2), calls: [{id: 'k', name: 'n', arguments: '{}'}], reasoning: 'r', evil: 'x'}];
  const [entry] = fromJson(toJson([{chat, messages}]));
  assert.deepEqual(entry.chat, chat);
  assert.equal(entry.messages[1].evil, undefined);
  assert.deepEqual(entry.messages[0], messages[0]);
  for (const [wrong, why] of [['{', 'JSON'], ['{}', 'no chats'], ['{"format":"moeflux-chats","version":9}', 'version 9'], [toJson([{chat: {}, messages: []}]), 'Chat 1'], [toJson([{chat, messages: [{}]}]), 'Chat 1'], ['null', 'no chats']])
    assert.throws(() => fromJson(wrong), (error) => error.message.includes(why), wrong);
  const shown = toMarkdown(chat, messages);
  for (const part of ['# T', '## You', '> r', '`n({})`']) assert.ok(shown.includes(part), part);
  assert.equal(withFiles(messages[0]), 'f:\n```\nt\n```\n\nq');
  assert.equal(fenced('a ```` b'), '`````\na ```` b\n`````');
});

test('arithmetic', () => {
  for (const [expression, value] of [['1 + 2 * 3', 7], ['(1 + 2) * 3', 9], ['-2 ^ 2', -4], ['2 ^ 3 ^ 2', 512], ['sqrt(16) + max(1, 5)', 9], ['5!', 120], ['10 % 4', 2], ['0.1 + 0.2', 0.3], ['2 × 3 ÷ 4', 1.5], ['1e3', 1000], ['2 ** 3', 8], ['pi', 3.14159265359]])
    assert.equal(calculate(expression), value, expression);
  for (const wrong of ['', '1 +', '(1', '1 2', 'alert(1)', 'constructor', 'x', '__proto__', '1)']) assert.throws(() => calculate(wrong), wrong);
});

test('what a request says', () => {
  const path = [said('q', null, 'user', 1), {...said('a', 'q', 'assistant', 2, ''), reasoning: 'r', calls: [{id: 'k', name: 'n', arguments: ''}]}, {...said('t', 'a', 'tool', 3), results: [{id: 'k', name: 'n', content: '42'}]},
    {...said('b', 't', 'assistant', 4, ''), error: 'x'}];
  assert.deepEqual(apiMessages(path, 'S'), [
    {role: 'system', content: 'S'}, {role: 'user', content: 'q'},
    {role: 'assistant', content: '', reasoning_content: 'r', tool_calls: [{id: 'k', type: 'function', function: {name: 'n', arguments: '{}'}}]},
    {role: 'tool', tool_call_id: 'k', name: 'n', content: '42'}]);
  assert.equal(apiMessages([...path, said('q2', 'b', 'user', 5)], '')[1].reasoning_content, undefined);
  const options = {temperature: 0, top_k: 5, stop: 'a\n\nb', thinking: 'off', tools: '{"name": "f"}', builtin: ['calculator', 'nothing']};
  const fields = requestFields(options);
  assert.deepEqual([fields.temperature, fields.top_k, fields.stop, fields.chat_template_kwargs, fields.tools.map((tool) => tool.function.name)], [0, 5, ['a', 'b'], {enable_thinking: false}, ['calculator', 'f']]);
  assert.equal(requestFields({thinking: 'high'}).reasoning_effort, 'high');
  assert.deepEqual(requestFields({}), {});
  assert.equal(countSet(options), 6);
  assert.throws(() => ownTools('{'), /not JSON/);
  assert.throws(() => ownTools('[1]'), /needs a name/);
});

test('chunks become a message', () => {
  const message = {content: ''}, progress = {};
  const chunk = (delta, more = {}) => ({choices: [{delta, finish_reason: null, ...more}]});
  takeChunk(message, {...chunk({}), prompt_progress: {total: 5, processed: 2}}, progress);
  assert.equal(progress.prompt.processed, 2);
  for (const delta of [{reasoning_content: 'a'}, {content: 'b'}, {content: 'c'}, {tool_calls: [{index: 0, id: 'k', function: {name: 'f', arguments: ''}}]}, {tool_calls: [{index: 0, function: {arguments: '{}'}}]}])
    assert.ok(takeChunk(message, chunk(delta), progress));
  takeChunk(message, chunk({}, {finish_reason: 'tool_calls'}), progress);
  takeChunk(message, {choices: [], usage: {total_tokens: 3}, timings: {predicted_n: 1}}, progress);
  assert.equal(progress.prompt, null);
  assert.deepEqual([message.reasoning, message.content, message.calls, message.reason, message.report.usage.total_tokens], ['a', 'bc', [{id: 'k', name: 'f', arguments: '{}'}], 'tool_calls', 3]);
  assert.ok(message.thoughtSeconds >= 0);
});

const counters = (n) => ({tokens: n, prompt_tokens: 0, hits: 3 * n, misses: n, bytes_read: 1000 * n, bytes_used: 4000 * n});
const stateAt = (seconds, n, locations = '0012') => ({
  version: 1, seconds, model: {name: 'm'}, layers: [{layer: '0', experts: 2, top_k: 1, expert_bytes: 1}, {layer: 'mtp', experts: 2, top_k: 1, expert_bytes: 1}], locations,
  counters: counters(n), answers: {running: 0, waiting: 0}, cache: {}, lookahead: {}, drafts: {}, memory: {ceiling: 10, owners: {}}, machine: {},
});
const changeAt = (seconds, n, more = {}) => ({seconds, moved: {}, hits: [], misses: [], counters: counters(n), ...more});

test('the state of an engine', () => {
  const state = new EngineState();
  state.apply('change', changeAt(0, 0));  // before any state: nothing
  assert.ok(!state.isKnown);
  state.apply('state', stateAt(10, 0));
  assert.deepEqual([...state.locations], [0, 0, 1, 2]);
  assert.deepEqual(state.tally(), [2, 1, 1, 0]);
  state.apply('change', changeAt(10.1, 1, {moved: {memory: [0, 2], drive: [3]}, hits: [0, 0], misses: [2], answers: {running: 1, waiting: 2}}));
  assert.deepEqual([...state.locations], [2, 0, 2, 0]);
  assert.deepEqual([state.layerHits, state.layerMisses], [[2, 0], [0, 1]]);
  assert.equal(state.answers.waiting, 2);
  assert.deepEqual([0, 1, 2, 3].map((id) => state.layerOf(id)), [0, 0, 1, 1]);
  for (let i = 2; i <= 30; ++i) state.apply('change', changeAt(10 + i / 10, i));
  const rates = state.rates(13);
  assert.ok(Math.abs(rates.tokens - 10) < 1e-6 && Math.abs(rates.drive - 10_000) < 1e-3);
  assert.equal(rates.hits, 0.75);
  assert.equal(state.rates(20).tokens, 0);  // it says nothing while it rests
  assert.equal(state.rates(20).hits, null);
  state.sample(13);
  state.sample(15);
  assert.ok(state.samples.length >= 8);
  assert.ok(state.peaks.tokens > 9);
  assert.throws(() => state.apply('state', {...stateAt(16, 30), locations: '00'}));
});

test('recordings', () => {
  const state = new EngineState(), recorder = new Recorder();
  state.apply('state', stateAt(5, 0));
  recorder.begin(state);
  for (let i = 1; i <= 20; ++i) {
    const data = changeAt(5 + i / 10, i, {moved: i % 2 ? {memory: [0]} : {drive: [0]}, hits: [1]});
    state.apply('change', data);
    recorder.add('change', data);
  }
  recorder.add('end', {});
  assert.ok(Math.abs(recorder.seconds - 2) < 1e-9);
  const recording = readRecording(recorder.text());
  assert.equal(recording.events.length, 21);
  const shown = new EngineState(), player = new Player(recording, shown);
  assert.deepEqual([...shown.locations], [0, 0, 1, 2]);
  player.seek(0.35);
  assert.deepEqual([shown.locations[0], shown.counters.tokens], [2, 3]);
  player.seek(9);
  assert.deepEqual([player.at, shown.counters.tokens, shown.layerHits[0]], [player.length, 20, 20]);
  player.seek(0.2);
  assert.deepEqual([shown.counters.tokens, shown.layerHits[0]], [2, 2]);
  for (const [wrong, why] of [['', 'no recording'], ['{}', 'no recording'], ['{"format":"moeflux-engine-recording","version":7}', 'version 7'], ['{"format":"moeflux-engine-recording","version":1}\n{', 'Line 2'],
    ['{"format":"moeflux-engine-recording","version":1}\n{"event":"change","data":{"seconds":1}}', 'begin with a state'], [`{"format":"moeflux-engine-recording","version":1}\n${JSON.stringify({event: 'state', data: {seconds: 1}})}`, 'Line 2']])
    assert.throws(() => readRecording(wrong), (error) => error.message.includes(why), wrong);
});

test('words and numbers', () => {
  assert.deepEqual([text.bytes(0), text.bytes(999), text.bytes(1500), text.bytes(21.9e6), text.bytes(1.234e12)], ['0 B', '999 B', '1.50 KB', '21.9 MB', '1.23 TB']);
  assert.deepEqual([text.percent(0.957, 1), text.duration(0.28), text.duration(3.21), text.duration(125), text.clock(67)], ['95.7 %', '280 ms', '3.2 s', '2 min 5 s', '1:07']);
  assert.deepEqual([text.plural(1, 'token'), text.plural(1200, 'token'), text.firstLine('a\nb'), text.short(0)], ['1 token', '1,200 tokens', 'a', '0']);
  const now = new Date('2026-06-15T12:00').getTime(), day = 86_400_000;
  assert.deepEqual([now, now - day, now - 3 * day, now - 20 * day].map((time) => text.dayOf(time, now)), ['Today', 'Yesterday', 'This week', 'This month']);
  assert.equal(lookaheadText({width: 0, fixed: false, on_trial: false, gain: 0, precision: 0, wait_share: 0.5}), 'Prefetches nothing: it would not pay now. 50 % of the time is spent waiting for the drive.');
  assert.deepEqual(memoryOwners({owners: {'expert cache': 50, program: 30, drafts: 0.1, reader: 0.2}, ceiling: 100}).map((each) => each.name), ['experts', 'program', 'others']);
  const engine = {model: {dense_bytes_per_token: 10, expert_bytes_per_token: 10}, machine: {memory_bytes_per_second: 200, drive_bytes_per_second: 20}};
  assert.deepEqual([boundOf(engine, 1), boundOf(engine, 0), boundOf({...engine, machine: {}}, 0)], [10, 2, 0]);
});
