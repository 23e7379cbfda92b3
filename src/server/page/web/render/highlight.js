// Colours for code: cuts a text into [class, text] pieces by the words and marks of its language. A
// rough reading that is never wrong about the text itself.

const words = (text) => new Set(text.trim().split(/\s+/));

const C_COMMENTS = String.raw`\/\/[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`;
const HASH_COMMENTS = String.raw`#[^\n]*`;
const STRINGS = String.raw`"(?:\\[\s\S]|[^"\\\n])*"?|'(?:\\[\s\S]|[^'\\\n])*'?`;
const NUMBERS = String.raw`\b(?:0[xX][\da-fA-F_']+|0[bB][01_]+|\d[\d_']*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)\w*`;
const NAMES = String.raw`[A-Za-z_$][\w$]*`;

function language({comments = C_COMMENTS, strings = STRINGS, keywords = '', constants = 'true false null', meta = null, ignoreCase = false}) {
  const parts = [`(?<comment>${comments})`, `(?<string>${strings})`];
  if (meta) parts.push(`(?<meta>${meta})`);
  parts.push(`(?<number>${NUMBERS})`, `(?<name>${NAMES})`);
  return {pattern: new RegExp(parts.join('|'), ignoreCase ? 'gi' : 'g'), keywords: words(keywords), constants: words(constants), ignoreCase};
}

const JS = language({
  strings: String.raw`\`(?:\\[\s\S]|[^\`\\])*\`?|` + STRINGS,
  keywords: `as async await break case catch class const continue debugger default delete do else enum export extends finally for from
    function get if implements import in instanceof interface let namespace new of private protected public readonly return set static
    super switch this throw try type typeof var void while with yield`,
  constants: 'true false null undefined NaN Infinity',
});
const C = language({
  meta: String.raw`^[ \t]*#\s*\w+`,
  keywords: `alignas alignof asm auto bool break case catch char char8_t class co_await co_return co_yield concept const consteval constexpr
    constinit const_cast continue decltype default delete do double dynamic_cast else enum explicit export extern final float for friend
    goto if inline int long mutable namespace new noexcept operator override private protected public register reinterpret_cast requires
    return short signed sizeof static static_assert static_cast struct switch template this thread_local throw try typedef typename union
    unsigned using virtual void volatile while __global__ __device__ __shared__ size_t int8_t int16_t int32_t int64_t uint8_t uint16_t
    uint32_t uint64_t`,
  constants: 'true false nullptr NULL',
});
C.pattern = new RegExp(C.pattern.source, 'gm');

const LANGUAGES = {
  js: JS,
  c: C,
  python: language({
    comments: HASH_COMMENTS,
    strings: String.raw`[rRbBfFuU]{0,2}(?:"""[\s\S]*?(?:"""|$)|'''[\s\S]*?(?:'''|$)|"(?:\\[\s\S]|[^"\\\n])*"?|'(?:\\[\s\S]|[^'\\\n])*'?)`,
    meta: String.raw`@[\w.]+`,
    keywords: `and as assert async await break case class continue def del elif else except finally for from global if import in is lambda
      match nonlocal not or pass raise return try while with yield self`,
    constants: 'True False None',
  }),
  rust: language({
    strings: String.raw`b?"(?:\\[\s\S]|[^"\\])*"?|r#*"[\s\S]*?"#*|'(?:\\.|[^'\\\n])'`,
    meta: String.raw`#!?\[[^\]]*\]|\w+!(?=[([{])`,
    keywords: `as async await break const continue crate dyn else enum extern fn for if impl in let loop match mod move mut pub ref return
      self Self static struct super trait type union unsafe use where while u8 u16 u32 u64 usize i8 i16 i32 i64 isize f32 f64 bool char str
      String Vec Option Result`,
    constants: 'true false None Some Ok Err',
  }),
  go: language({
    strings: String.raw`\`[^\`]*\`?|` + STRINGS,
    keywords: `break case chan const continue default defer else fallthrough for func go goto if import interface map package range return
      select struct switch type var any bool byte error float32 float64 int int8 int16 int32 int64 rune string uint uint8 uint16 uint32 uint64`,
    constants: 'true false nil iota',
  }),
  java: language({
    meta: String.raw`@\w+`,
    keywords: `abstract as assert async await base bool boolean break byte case catch char class companion const continue data decimal default
      defer delegate do double else enum event explicit extends extension final finally float for foreach fun func get goto guard if
      implements implicit import in init inline inout instanceof int interface internal is lateinit let lock long namespace native new
      object open operator out override package params partial private protected protocol public readonly record ref return sealed set
      short static string struct suspend super switch synchronized this throw throws transient try typealias typeof uint ulong unsafe
      ushort using val var virtual void volatile when where while yield`,
    constants: 'true false null nil',
  }),
  bash: language({
    comments: String.raw`(?<![\w$])#[^\n]*`,
    strings: String.raw`"(?:\\[\s\S]|[^"\\])*"?|'[^']*'?`,
    meta: String.raw`\$\{[^}]*\}|\$[\w@#?*!-]+|(?<=\s)--?[A-Za-z][\w-]*`,
    keywords: `if then else elif fi for while until do done case esac in function select time return exit export local readonly declare set
      unset shift source alias cd echo eval exec test trap`,
    constants: 'true false',
  }),
  sql: language({
    comments: String.raw`--[^\n]*|\/\*[\s\S]*?(?:\*\/|$)`,
    ignoreCase: true,
    keywords: `add all alter and as asc between by case check column constraint create cross database default delete desc distinct drop else end
      exists foreign from full group having if in index inner insert into is join key left like limit not offset on or order outer primary
      references returning right select set table then union unique update using values view when where with over partition int integer
      text varchar boolean date timestamp numeric serial bigint`,
  }),
  ruby: language({
    comments: HASH_COMMENTS,
    meta: String.raw`:\w+|@{1,2}\w+`,
    keywords: `alias and begin break case class def defined do else elsif end ensure for if in module next not or redo rescue retry return self
      super then undef unless until when while yield require attr_accessor attr_reader puts`,
    constants: 'true false nil',
  }),
  lua: language({
    comments: String.raw`--\[\[[\s\S]*?\]\]|--[^\n]*`,
    keywords: 'and break do else elseif end for function goto if in local not or repeat return then until while',
    constants: 'true false nil',
  }),
  json: language({comments: C_COMMENTS, meta: String.raw`"(?:\\.|[^"\\\n])*"(?=\s*:)`}),
  yaml: language({comments: HASH_COMMENTS, meta: String.raw`^[ \t-]*[\w.\/-]+(?=\s*:(?:\s|$))|^---`, constants: 'true false null yes no on off'}),
  ini: language({comments: String.raw`[#;][^\n]*`, meta: String.raw`^\s*\[[^\]\n]*\]|^\s*[\w.-]+(?=\s*=)`}),
  css: language({
    comments: String.raw`\/\*[\s\S]*?(?:\*\/|$)`,
    meta: String.raw`@[\w-]+|--[\w-]+|[\w-]+(?=\s*:\s)|[.#][A-Za-z_][\w-]*`,
    keywords: 'important inherit initial unset none auto',
  }),
  make: language({
    comments: HASH_COMMENTS,
    meta: String.raw`\$[({][^)}]*[)}]|^[\w.%\/-]+(?=\s*:)`,
    ignoreCase: true,
    keywords: `ifeq ifneq endif else include define endef phony from run copy add workdir env expose cmd entrypoint arg label user volume
      if elseif foreach function macro set project add_library add_executable target_link_libraries find_package`,
  }),
};
// Names are tried before values in a language where a name is a string, too.
LANGUAGES.json.pattern = /(?<comment>\/\/[^\n]*)|(?<meta>"(?:\\.|[^"\\\n])*"(?=\s*:))|(?<string>"(?:\\.|[^"\\\n])*"?)|(?<number>-?\b\d[\d.eE+-]*)|(?<name>[A-Za-z_]+)/g;
for (const name of ['yaml', 'ini', 'make']) LANGUAGES[name].pattern = new RegExp(LANGUAGES[name].pattern.source, `${LANGUAGES[name].pattern.flags}m`);

const ALIASES = {
  javascript: 'js', jsx: 'js', ts: 'js', typescript: 'js', tsx: 'js', mjs: 'js', node: 'js', 'c++': 'c', cpp: 'c', cc: 'c', h: 'c', hpp: 'c',
  cuda: 'c', cu: 'c', objc: 'c', glsl: 'c', hlsl: 'c', metal: 'c', py: 'python', python3: 'python', rs: 'rust', golang: 'go', kotlin: 'java',
  kt: 'java', swift: 'java', cs: 'java', csharp: 'java', 'c#': 'java', scala: 'java', dart: 'java', php: 'java', sh: 'bash', shell: 'bash',
  zsh: 'bash', console: 'bash', fish: 'bash', rb: 'ruby', jsonc: 'json', json5: 'json', jsonl: 'json', yml: 'yaml', toml: 'ini', conf: 'ini',
  properties: 'ini', scss: 'css', less: 'css', makefile: 'make', dockerfile: 'make', cmake: 'make', html: 'markup', xml: 'markup',
  svg: 'markup', vue: 'markup', mysql: 'sql', postgresql: 'sql', sqlite: 'sql', patch: 'diff',
};
const LONGEST = 100_000;  // beyond that, plain

// [[class, text], ...]; a class of '' is plain.
export function highlight(text, name) {
  const id = ALIASES[name] ?? name;
  if (text.length > LONGEST) return [['', text]];
  if (id === 'diff') return highlightDiff(text);
  if (id === 'markup') return pieces(text, MARKUP, (groups) => Object.keys(groups).find((key) => groups[key] !== undefined));
  const found = LANGUAGES[id];
  if (!found) return [['', text]];
  return pieces(text, found.pattern, (groups, match, end) => {
    if (groups.name === undefined) return Object.keys(groups).find((key) => groups[key] !== undefined);
    const word = found.ignoreCase ? match.toLowerCase() : match;
    if (found.keywords.has(word)) return 'keyword';
    if (found.constants.has(word)) return 'number';
    if (text[end] === '(') return 'function';
    return /^[A-Z][a-z]/.test(match) ? 'type' : '';
  });
}

const MARKUP = /(?<comment><!--[\s\S]*?(?:-->|$))|(?<keyword><\/?[\w:-]+|\/?>)|(?<string>"[^"<]*"|'[^'<]*')|(?<meta>[\w:-]{1,60}(?==))|(?<number>&[\w#]+;)/g;

function pieces(text, pattern, classOf) {
  const out = [];
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    if (match[0] === '') continue;
    if (match.index > at) out.push(['', text.slice(at, match.index)]);
    at = match.index + match[0].length;
    out.push([classOf(match.groups, match[0], at) ?? '', match[0]]);
  }
  if (at < text.length) out.push(['', text.slice(at)]);
  return out;
}

function highlightDiff(text) {
  return text.split(/(?<=\n)/).map((line) => {
    if (/^(\+\+\+|---|@@|diff|index)/.test(line)) return ['meta', line];
    return [line[0] === '+' ? 'added' : line[0] === '-' ? 'removed' : '', line];
  });
}
