// The agent of a system for Node: the same lines of JSON as benchmarks/agent.py, and
// the same records of calls as benchmarks/record.py.

import { createRequire } from "node:module";
import { createInterface } from "node:readline";
import fs from "node:fs";
import path from "node:path";

export const require = createRequire(path.join(process.env.NODE_PATH, "x.js"));

export class Unsupported extends Error {}

const REASONS = {
  enqueue_together: "jobs are not part of a transaction",
  fill: "finished and future jobs are not kept in PostgreSQL",
  fill_others: "measured for ours only",
};

// Answer requests until standard input is closed.
export async function serve(system) {
  for await (const line of createInterface({ input: process.stdin })) {
    const question = JSON.parse(line);
    process.stdout.write(JSON.stringify(await answer(system, question)) + "\n");
  }
  await system.close();
}

async function answer(system, question) {
  try {
    if (!system[question.do]) throw new Unsupported(REASONS[question.do]);
    const value = await system[question.do](question.with);
    return { value: value === undefined ? null : value };
  } catch (error) {
    if (error instanceof Unsupported) return { unsupported: error.message };
    return { error: String(error.message || error) };
  }
}

export async function timed(work) {
  const started = process.hrtime.bigint();
  await work();
  return Number(process.hrtime.bigint() - started) / 1e9;
}

// Node has no shared memory between unrelated processes: the count is kept in a
// variable and written to the file at most every 5 ms.
const record = path.join(process.env.BENCH_RECORD, String(process.pid));
let calls = 0n;
let first = 0n;
let timer = null;
let file = null;

function write() {
  timer = null;
  if (file === null) file = fs.openSync(`${record}.count`, "w");
  const block = Buffer.alloc(16);
  block.writeBigInt64LE(calls, 0);
  block.writeBigInt64LE(first, 8);
  fs.writeSync(file, block, 0, 16, 0);
}

export function countCall() {
  if (!first) first = process.hrtime.bigint();
  calls += 1n;
  // No interval timer: it would keep an idle worker busy.
  timer ||= setTimeout(write, 5);
}

function keepDelay(sent) {
  const block = Buffer.alloc(8);
  block.writeBigInt64LE(process.hrtime.bigint() - BigInt(sent), 0);
  fs.appendFileSync(`${record}.delays`, block);
  countCall();
}

const sleep = () =>
  new Promise((resolve) =>
    setTimeout(() => {
      countCall();
      resolve();
    }, 10),
  );

function burn() {
  const start = process.cpuUsage();
  for (;;) {
    const used = process.cpuUsage(start);
    if (used.user + used.system >= 5000) break;
  }
  countCall();
}

export const handlers = {
  nothing: async () => countCall(),
  stamp: async ({ sent }) => keepDelay(sent),
  sleep,
  asleep: sleep,
  burn: async () => burn(),
};

// Node cannot use the ORM of Django.
export function checkHandler(handler) {
  if (!handlers[handler]) throw new Unsupported("no Django in Node");
}
