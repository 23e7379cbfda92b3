// A tool server for agents (MCP over standard input and output) with one tool: the weather. Agents
// name a tool after its server too: "weather" of the server "get" is get_weather, which is a tool
// the demo model has learned to use.
import readline from 'node:readline';

const weather = {
  name: 'weather',
  description: 'Get the weather in a city',
  inputSchema: {type: 'object', properties: {city: {type: 'string'}}, required: ['city']},
};
const answers = {
  'initialize': ({protocolVersion}) => (
      {protocolVersion, capabilities: {tools: {}}, serverInfo: {name: 'get', version: '1'}}),
  'ping': () => ({}),
  'tools/list': () => ({tools: [weather]}),
  'tools/call': () => ({content: [{type: 'text', text: '{"temperature": 21, "sky": "rainy"}'}]}),
};

for await (const line of readline.createInterface({input: process.stdin})) {
  const {id, method, params} = JSON.parse(line);
  if (id === undefined) continue;  // a notification
  const answer = answers[method] ? {result: answers[method](params)}
                                 : {error: {code: -32601, message: `no method ${method}`}};
  process.stdout.write(`${JSON.stringify({jsonrpc: '2.0', id, ...answer})}\n`);
}
