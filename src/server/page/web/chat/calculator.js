// Arithmetic as it is written, without running it as code.

const FUNCTIONS = {
  sqrt: Math.sqrt, abs: Math.abs, sin: Math.sin, cos: Math.cos, tan: Math.tan, asin: Math.asin, acos: Math.acos, atan: Math.atan, exp: Math.exp,
  ln: Math.log, log: Math.log10, log2: Math.log2, floor: Math.floor, ceil: Math.ceil, round: Math.round, min: Math.min, max: Math.max,
};
const CONSTANTS = {pi: Math.PI, e: Math.E, tau: 2 * Math.PI};

// Throws Error for what is no expression.
export function calculate(text) {
  const tokens = text.replace(/\*\*/g, '^').replace(/[×·]/g, '*').replace(/÷/g, '/').replace(/−/g, '-')
    .match(/\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+|[a-zA-Z_]\w*|[-+*\/%^(),!]|\S/g) ?? [];
  if (tokens.length > 1000) throw new Error('the expression is too long');
  let at = 0;
  const accept = (token) => tokens[at] === token && ++at > 0;
  const expect = (token) => {
    if (!accept(token)) throw new Error(at < tokens.length ? `${tokens[at]} is not expected here` : `${token} is missing`);
  };
  const sum = () => {
    let value = product();
    while (tokens[at] === '+' || tokens[at] === '-') value = tokens[at++] === '+' ? value + product() : value - product();
    return value;
  };
  const product = () => {
    let value = signed();
    while ('*/%'.includes(tokens[at] ?? ' ')) {
      const sign = tokens[at++], right = signed();
      value = sign === '*' ? value * right : sign === '/' ? value / right : value % right;
    }
    return value;
  };
  const signed = () => (accept('-') ? -signed() : accept('+') ? signed() : power());
  const power = () => {
    const base = factorial();
    return accept('^') ? base ** signed() : base;
  };
  const factorial = () => {
    let value = atom();
    while (accept('!')) {
      if (!Number.isInteger(value) || value < 0 || value > 170) throw new Error(`${value}! cannot be computed`);
      let result = 1;
      for (let i = 2; i <= value; ++i) result *= i;
      value = result;
    }
    return value;
  };
  const atom = () => {
    if (accept('(')) {
      const value = sum();
      expect(')');
      return value;
    }
    const token = tokens[at++];
    if (token === undefined) throw new Error('the expression ends too early');
    if (/^[\d.]/.test(token)) return Number(token);
    const name = token.toLowerCase();
    if (Object.hasOwn(CONSTANTS, name)) return CONSTANTS[name];
    if (!Object.hasOwn(FUNCTIONS, name)) throw new Error(`${token} is not known`);
    expect('(');
    const values = [sum()];
    while (accept(',')) values.push(sum());
    expect(')');
    return FUNCTIONS[name](...values);
  };
  const value = sum();
  if (at < tokens.length) throw new Error(`${tokens[at]} is not expected here`);
  return Number.isInteger(value) ? value : Number(value.toPrecision(12));
}
