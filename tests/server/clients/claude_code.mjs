// A turn of Claude Code, over /v1/messages.
import assert from 'node:assert/strict';
import path from 'node:path';

import {answer, inFolder, question, run, weatherServer} from './agent.mjs';
import {install, withServer} from './setup.mjs';

// The package of the program itself, without the script that would choose it.
const kPackage = `@anthropic-ai/claude-code-${process.platform}-${process.arch}`;
const claude = path.join(install({[kPackage]: '2.1.197'}), 'node_modules', kPackage, 'claude');

const servers = {mcpServers: {get: {command: process.execPath, args: [weatherServer]}}};
const options = [
  '-p', question, '--output-format', 'stream-json', '--verbose',
  '--system-prompt', 'You answer briefly.', '--tools', '', '--allowedTools', 'mcp__get__weather',
  '--strict-mcp-config', '--mcp-config', JSON.stringify(servers),
];

await withServer((url) => inFolder(async (folder) => {
  const events = await run(claude, options, folder, {
    ANTHROPIC_BASE_URL: url,
    ANTHROPIC_AUTH_TOKEN: 'none',
    ANTHROPIC_MODEL: 'demo',
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
  });
  const blocks = (type) => events.filter((event) => event.type === type)
                               .flatMap((event) => event.message.content);
  const [call, text, ...more] = blocks('assistant');
  assert.deepEqual(more, []);
  // The model has learned to call get_weather; it can only call what there is.
  assert.equal(call.name, 'mcp__get__weather');
  assert.deepEqual(call.input, {city: 'Rabat'});
  assert.deepEqual(blocks('user').map((block) => block.type), ['tool_result']);
  assert.equal(text.text, answer);
  const result = events.at(-1);
  assert.equal(result.result, answer);
  assert.equal(result.is_error, false);
  assert.ok(result.usage.cache_read_input_tokens > 100);
}), ['--ctx-size', '4096']);
