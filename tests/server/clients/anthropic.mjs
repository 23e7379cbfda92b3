// The official @anthropic-ai/sdk against a server with the demo model.
//
//   node anthropic.mjs PROGRAM MODEL CACHE
//
// Packages are installed into CACHE once; where that cannot be done the test skips itself (77).
import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { existsSync, mkdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import path from 'node:path';

const kPackage = '@anthropic-ai/sdk@1.8.0';
const [program, model, cache] = process.argv.slice(2);

function loadSdk() {
  const folder = path.resolve(cache);
  if (!existsSync(path.join(folder, 'node_modules/@anthropic-ai/sdk/package.json'))) {
    mkdirSync(folder, { recursive: true });
    try {
      execFileSync('npm', ['install', '--prefix', folder, '--no-audit', '--no-fund', kPackage],
                   { stdio: 'ignore', timeout: 90_000 });
    } catch (error) {
      console.log(`SKIP: ${kPackage} cannot be installed: ${error.message}`);
      process.exit(77);
    }
  }
  return createRequire(path.join(folder, 'index.js'))('@anthropic-ai/sdk');
}

// Resolves with the address once the model is there.
function startServer() {
  const server = spawn(program, ['serve', model, '--port', '0', '--ctx-size', '1024', '--threads',
                                 '1', '--prefix-store', 'off', '--no-profile', '--api-key', 'k'],
                       { stdio: ['ignore', 'ignore', 'pipe'] });
  const ready = new Promise((resolve, reject) => {
    let text = '';
    server.stderr.on('data', (bytes) => {
      text += bytes;
      const found = text.match(/ready: .* at (http:\/\/[^ ]+)\/v1/);
      if (found) resolve(found[1]);
    });
    server.on('exit', (code) => reject(new Error(`the server ended with ${code}: ${text}`)));
  });
  return { server, ready };
}

const ask = (text) => ({
  model: 'demo', max_tokens: 100, temperature: 0, messages: [{ role: 'user', content: text }],
});
const weather = {
  ...ask('Is it raining in Rabat?'),
  tools: [{
    name: 'get_weather', description: 'Get the weather in a city',
    input_schema: { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] },
  }],
};

async function checkText(client) {
  const message = await client.messages.create(ask('What is 12 + 30?'));
  assert.equal(message.type, 'message');
  assert.equal(message.role, 'assistant');
  assert.deepEqual(message.content, [{ type: 'text', text: '12 + 30 = 42' }]);
  assert.equal(message.stop_reason, 'end_turn');
  assert.match(message._request_id, /^req_/);
  const { input_tokens, cache_read_input_tokens, output_tokens } = message.usage;
  assert.equal(output_tokens, 10);
  const counted = await client.messages.countTokens({
    model: 'demo', messages: ask('What is 12 + 30?').messages,
  });
  assert.equal(counted.input_tokens, input_tokens + cache_read_input_tokens);
}

async function checkStream(client) {
  const stream = client.messages.stream(ask('What is 12 + 30?'));
  let text = '';
  stream.on('text', (piece) => { text += piece; });
  const message = await stream.finalMessage();
  assert.equal(text, '12 + 30 = 42');
  assert.equal(message.content[0].text, text);
  assert.equal(message.stop_reason, 'end_turn');
  assert.equal(message.usage.output_tokens, 10);
}

async function checkThinking(client) {
  const body = { ...ask('Compute 40 + 91.'), thinking: { type: 'enabled', budget_tokens: 1024 } };
  const whole = await client.messages.create(body);
  const streamed = await client.messages.stream(body).finalMessage();
  for (const message of [whole, streamed]) {
    assert.deepEqual(message.content.map((block) => block.type), ['thinking', 'text']);
    assert.equal(message.content[0].thinking, '0 + 1 = 1, 4 + 9 = 13, so 131.');
    assert.ok(message.content[0].signature.length > 0);
    assert.equal(message.content[1].text, '40 + 91 = 131');
  }
}

async function checkTools(client) {
  const whole = await client.messages.create(weather);
  const streamed = await client.messages.stream(weather).finalMessage();
  for (const message of [whole, streamed]) {
    assert.equal(message.stop_reason, 'tool_use');
    assert.equal(message.content.length, 1);
    const [call] = message.content;
    assert.match(call.id, /^toolu_/);
    assert.equal(call.name, 'get_weather');
    assert.deepEqual(call.input, { city: 'Rabat' });
    const answer = await client.messages.create({
      ...weather,
      messages: [...weather.messages, { role: 'assistant', content: message.content },
                 { role: 'user', content: [
                   { type: 'tool_result', tool_use_id: call.id, content: 'sunny' }] }],
    });
    assert.equal(answer.stop_reason, 'end_turn');
    assert.equal(answer.content[0].type, 'text');
    assert.match(answer.content[0].text, /Rabat|sunny/);
  }
}

async function checkStops(client) {
  const stopped = await client.messages.create({
    ...ask('What is 12 + 30?'), stop_sequences: [' ='],
  });
  assert.equal(stopped.stop_reason, 'stop_sequence');
  assert.equal(stopped.stop_sequence, ' =');
  assert.equal(stopped.content[0].text, '12 + 30');
  const cut = await client.messages.create({ ...ask('What is 12 + 30?'), max_tokens: 2 });
  assert.equal(cut.stop_reason, 'max_tokens');
}

async function checkErrors(client, sdk, url) {
  await assert.rejects(client.messages.create({ ...ask('x'.repeat(9000)) }), (error) => {
    assert.ok(error instanceof sdk.BadRequestError);
    assert.match(error.message, /prompt is too long: \d+ tokens > 1024 maximum/);
    assert.match(error.requestID, /^req_/);
    return true;
  });
  const stranger = new sdk.Anthropic({ baseURL: url, apiKey: 'wrong', maxRetries: 0 });
  await assert.rejects(stranger.messages.create(ask('Hi')), sdk.AuthenticationError);
}

const sdk = loadSdk();
const { server, ready } = startServer();
try {
  const url = await ready;
  const client = new sdk.Anthropic({ baseURL: url, apiKey: 'k', maxRetries: 0 });
  for (const check of [checkText, checkStream, checkThinking, checkTools, checkStops,
                       checkErrors]) {
    await check(client, sdk, url);
    console.log(`${check.name}: ok`);
  }
} finally {
  server.removeAllListeners('exit');
  server.kill('SIGTERM');
}
