// BullMQ with redis: `node bullmq.mjs agent`, `node bullmq.mjs worker CONCURRENCY`.

import { fileURLToPath } from "node:url";
import { checkHandler, handlers, require, serve, timed } from "./agent.mjs";

const { Queue, Worker } = require("bullmq");
const IORedis = require("ioredis");

const CONCURRENCY = 100;
const options = { removeOnComplete: true, removeOnFail: true };

function connect() {
  const Client = IORedis.default || IORedis;
  return new Client(process.env.REDIS_URL, { maxRetriesPerRequest: null });
}

class System {
  constructor() {
    this.redis = connect();
    this.queue = new Queue("bench", { connection: this.redis });
  }

  async prepare() {
    await this.queue.waitUntilReady();
  }

  async clear() {
    await this.redis.flushdb();
  }

  async has_work() {
    const counts = await this.queue.getJobCounts("waiting", "active", "prioritized");
    return Object.values(counts).some((count) => count > 0);
  }

  async enqueue_stamped() {
    await this.queue.add("stamp", { sent: String(process.hrtime.bigint()) }, options);
  }

  async enqueue_each({ handler, count }) {
    return await timed(async () => {
      for (let i = 0; i < count; i++) await this.queue.add(handler, {}, options);
    });
  }

  async enqueue_bulk({ handler, count }) {
    return await timed(async () => {
      for (let start = 0; start < count; start += 1000) {
        const size = Math.min(1000, count - start);
        await this.queue.addBulk(
          Array.from({ length: size }, () => ({ name: handler, data: {}, opts: options })),
        );
      }
    });
  }

  async enqueue(how) {
    checkHandler(how.handler);
    await this.enqueue_bulk(how);
  }

  worker_commands({ processes, concurrency }) {
    const program = fileURLToPath(import.meta.url);
    const command = ["node", program, "worker", String(concurrency || CONCURRENCY)];
    return Array(processes).fill(command);
  }

  worker_environment() {
    return { NODE_ENV: "production" };
  }

  async close() {
    await this.queue.close();
    this.redis.disconnect();
  }
}

async function work(concurrency) {
  const worker = new Worker("bench", (job) => handlers[job.name](job.data), {
    connection: connect(),
    concurrency,
  });
  process.on("SIGTERM", async () => {
    await worker.close();
    process.exit(0);
  });
}

if (process.argv[2] === "agent") await serve(new System());
else await work(Number(process.argv[3]));
