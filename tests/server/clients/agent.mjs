// What tests with coding agents share. An agent completes a turn: it asks the model, the model calls
// a tool, the agent runs it and hands back the result, the model answers.
//
// Agents are given a short prompt and one tool: the demo model has learned neither their long
// prompts nor their tools, but the weather it knows (weather_mcp.mjs).
import {spawn} from 'node:child_process';
import {mkdtempSync, rmSync} from 'node:fs';
import {tmpdir} from 'node:os';
import path from 'node:path';
import {fileURLToPath} from 'node:url';

export const question = 'Is it raining in Rabat?';
export const answer = 'It is 21 degrees and rainy in Rabat.';
export const weatherServer = fileURLToPath(new URL('weather_mcp.mjs', import.meta.url));

// Calls `test` with a folder of its own, which is the agent's home too.
export async function inFolder(test) {
  const folder = mkdtempSync(path.join(tmpdir(), 'agent-'));
  try {
    await test(folder);
  } finally {
    rmSync(folder, {recursive: true, force: true});
  }
}

// What the agent reports: a JSON object per line.
export function run(program, options, folder, environment) {
  const agent = spawn(program, options, {
    cwd: folder,
    env: {PATH: process.env.PATH, HOME: folder, TMPDIR: folder, ...environment},
    stdio: ['ignore', 'pipe', 'inherit'],
    timeout: 90_000,
  });
  return new Promise((resolve, reject) => {
    let said = '';
    agent.stdout.on('data', (chunk) => said += chunk);
    agent.on('error', reject);
    agent.on('close', (status, signal) => {
      if (status !== 0) return reject(new Error(`${program}: ${status ?? signal}: ${said}`));
      resolve(said.trim().split('\n').map((line) => JSON.parse(line)));
    });
  });
}
