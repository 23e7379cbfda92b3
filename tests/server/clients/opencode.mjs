// A turn of opencode, over /v1/chat/completions.
import assert from 'node:assert/strict';
import {writeFileSync} from 'node:fs';
import path from 'node:path';

import {answer, inFolder, question, run, weatherServer} from './agent.mjs';
import {install, withServer} from './setup.mjs';

// The package of the program itself; opencode-ai would bring those of other machines too.
const kPackage = `opencode-${process.platform}-${process.arch}`;
const opencode = path.join(
    install({[kPackage]: '1.18.33'}), 'node_modules', kPackage, 'bin/opencode');

function configuration(url) {
  return {
    share: 'disabled',
    autoupdate: false,
    model: 'moeflux/demo',
    small_model: 'moeflux/demo',
    provider: {
      moeflux: {
        npm: '@ai-sdk/openai-compatible',
        options: {baseURL: `${url}/v1`, apiKey: 'none'},
        models: {demo: {limit: {context: 4096, output: 512}}},
      },
    },
    // Its tool is called get_weather: opencode puts the server's name in front.
    mcp: {get: {type: 'local', command: [process.execPath, weatherServer]}},
    agent: {
      short: {
        mode: 'primary',
        prompt: 'You answer briefly.',
        temperature: 0,
        tools: {'*': false, get_weather: true},
      },
    },
  };
}

await withServer((url) => inFolder(async (folder) => {
  writeFileSync(path.join(folder, 'opencode.json'), JSON.stringify(configuration(url)));
  const events = await run(
      opencode, ['run', '--agent', 'short', '--format', 'json', question], folder, {
        OPENCODE_DISABLE_AUTOUPDATE: '1',
        OPENCODE_DISABLE_LSP_DOWNLOAD: '1',
        OPENCODE_DISABLE_MODELS_FETCH: '1',
      });
  const parts = (type) => events.filter((event) => event.type === type).map((event) => event.part);
  const [call, ...more] = parts('tool_use');
  assert.deepEqual(more, []);
  assert.equal(call.tool, 'get_weather');
  assert.equal(call.state.status, 'completed');
  assert.deepEqual(call.state.input, {city: 'Rabat'});
  assert.deepEqual(parts('step_finish').map((part) => part.reason), ['tool-calls', 'stop']);
  assert.deepEqual(parts('text').map((part) => part.text), [answer]);
  // The second step begins with what was read for the first.
  assert.ok(parts('step_finish')[1].tokens.cache.read > 100);
}), ['--ctx-size', '4096']);
