// Graphile Worker: `node graphile.mjs agent`, `node graphile.mjs worker CONCURRENCY`.

import { fileURLToPath } from "node:url";
import { checkHandler, handlers, require, serve, timed } from "./agent.mjs";

const { makeWorkerUtils, run, runMigrations } = require("graphile-worker");
const { Pool } = require("pg");

const CONCURRENCY = 24;
const connectionString = process.env.DATABASE_URL;

const HAS_WORK = `
  SELECT EXISTS (
    SELECT FROM graphile_worker._private_jobs WHERE run_at < now()
  ) AS found
`;
// It keeps no finished jobs.
const FILL = `
  SELECT count(*)
  FROM generate_series(1, $1::int) AS number,
  LATERAL graphile_worker.add_job(
    'nothing',
    json_build_object('number', number),
    run_at => now() + interval '1 year'
  )
`;

class System {
  constructor() {
    this.pool = new Pool({ connectionString, max: 2 });
  }

  async prepare() {
    await runMigrations({ connectionString });
    this.utils = await makeWorkerUtils({ pgPool: this.pool });
  }

  async clear() {
    await this.pool.query("TRUNCATE graphile_worker._private_jobs");
  }

  async has_work() {
    const { rows } = await this.pool.query(HAS_WORK);
    return rows[0].found;
  }

  async enqueue_stamped() {
    await this.utils.addJob("stamp", { sent: String(process.hrtime.bigint()) });
  }

  async enqueue_each({ handler, count }) {
    return await timed(async () => {
      for (let i = 0; i < count; i++) await this.utils.addJob(handler, {});
    });
  }

  async enqueue_together({ handler, count }) {
    const add = "SELECT graphile_worker.add_job($1, '{}'::json)";
    const client = await this.pool.connect();
    try {
      return await timed(async () => {
        await client.query("BEGIN");
        for (let i = 0; i < count; i++) await client.query(add, [handler]);
        await client.query("COMMIT");
      });
    } finally {
      client.release();
    }
  }

  async enqueue_bulk({ handler, count }) {
    return await timed(async () => {
      for (let start = 0; start < count; start += 5000) {
        const size = Math.min(5000, count - start);
        await this.utils.addJobs(
          Array.from({ length: size }, () => ({ identifier: handler, payload: {} })),
        );
      }
    });
  }

  async enqueue(how) {
    checkHandler(how.handler);
    await this.enqueue_bulk(how);
  }

  async fill({ future }) {
    await this.pool.query(FILL, [future]);
  }

  worker_commands({ processes, concurrency }) {
    const program = fileURLToPath(import.meta.url);
    const command = ["node", program, "worker", String(concurrency || CONCURRENCY)];
    return Array(processes).fill(command);
  }

  worker_environment() {
    return { NODE_ENV: "production", NO_LOG_SUCCESS: "1" };
  }

  async close() {
    await this.pool.end();
  }
}

async function work(concurrency) {
  const size = Math.max(500, concurrency + 1);
  const runner = await run({
    taskList: handlers,
    noHandleSignals: false,
    preset: {
      worker: {
        connectionString,
        concurrentJobs: concurrency,
        maxPoolSize: 10,
        localQueue: { size, refetchDelay: { durationMs: 10 } },
        completeJobBatchDelay: 0,
        failJobBatchDelay: 0,
      },
    },
  });
  await runner.promise;
}

if (process.argv[2] === "agent") await serve(new System());
else await work(Number(process.argv[3]));
