// Jobs and events of a cloud, by types that are generated from its openapi.json (docs/howto/clients.md).
//
//     node jobs.ts URL TOKEN_FILE run COMMAND...            submit a held job, read why it waits, release it, wait for its end
//     node jobs.ts URL TOKEN_FILE follow LAST_FILE [KIND]   handle each event once, also over restarts; end behind one of KIND
//
// The id of the last event that was handled is kept in LAST_FILE.

import { randomUUID } from "node:crypto";
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";

import createClient from "openapi-fetch";

import type { components, paths } from "./phoenix.d.ts";

type Event = components["schemas"]["Event"];
type Job = components["schemas"]["Job"];
type Problem = components["schemas"]["Problem"];

const AGAIN_MS = 500;
const [url = "", tokenFile = "", verb = "", ...words] = process.argv.slice(2);
const token = readFileSync(tokenFile, "utf8").trim();
const phoenix = createClient<paths>({ baseUrl: url, headers: { Authorization: `Bearer ${token}` } });

class Refused extends Error {
  constructor(problem: Problem) {
    super(`${problem.code}: ${problem.detail}`);
  }
}

function granted<T>(answer: { data?: T; error?: Problem }): T {
  if (answer.error) throw new Refused(answer.error);
  return answer.data as T;
}

async function submit(argv: string[]): Promise<string> {
  // A request that is repeated with the same id is granted once.
  const body = { argv, held: true, request: randomUUID() };
  return granted(await phoenix.POST("/v1/jobs", { body })).job;
}

async function why(name: string): Promise<string[]> {
  return granted(await phoenix.GET("/v1/why/{name}", { params: { path: { name } } })).sentences;
}

async function release(id: string): Promise<void> {
  const { results } = granted(await phoenix.POST("/v1/jobs/{job}/release", { params: { path: { job: id } } }));
  for (const { error } of results) if (error) throw new Refused(error);
}

async function ended(job: string): Promise<Job> {
  for (;;) {
    const found = granted(await phoenix.GET("/v1/jobs/{job}", { params: { path: { job } } }));
    if (found.ended_at !== null) return found;
    await sleep(AGAIN_MS);
  }
}

async function* lines(bytes: ReadableStream<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder();
  let rest = "";
  for await (const part of bytes) {
    const whole = (rest + decoder.decode(part, { stream: true })).split("\n");
    rest = whole.pop() ?? "";
    yield* whole;
  }
}

// Events behind the one with this id, and those that come.  Several may have one position, so the last one's is asked for again.
async function* events(last: string): AsyncGenerator<Event> {
  let [position = 0, index = -1] = last === "" ? [] : last.split(".").map(Number);
  for (;;) {
    const query = { after: Math.max(0, position - 1), follow: true };
    try {
      const { data, error } = await phoenix.GET("/v1/events", { params: { query }, parseAs: "stream" });
      if (error) throw new Refused(error); // 410: some are not kept any more
      for await (const line of lines(data as ReadableStream<Uint8Array>)) {
        if (line === "") continue; // the connection lives
        const event: Event = JSON.parse(line);
        if (event.position < position || (event.position === position && event.index <= index)) continue;
        [position, index] = [event.position, event.index];
        yield event;
      }
    } catch (error) {
      if (error instanceof Refused) throw error;
      console.error(`again, as the connection broke: ${error}`);
    }
    await sleep(AGAIN_MS);
  }
}

async function run(argv: string[]): Promise<number> {
  const job = await submit(argv);
  for (const sentence of await why(job)) console.error(`job ${job}: ${sentence}`);
  await release(job);
  const end = await ended(job);
  console.error(`job ${job} is ${end.state}`);
  return end.exit_code ?? 1;
}

async function follow(file: string, kind?: string): Promise<number> {
  for await (const event of events(existsSync(file) ? readFileSync(file, "utf8") : "")) {
    const code = event.fact.kind === "attempt.reported" ? ` exit code ${event.fact.exit}` : "";
    console.log(`${event.id} ${event.kind}${code}`);
    writeFileSync(file, event.id); // it is handled
    if (event.kind === kind) break;
  }
  return 0;
}

try {
  process.exitCode = verb === "run" ? await run(words) : await follow(words[0] ?? "last", words[1]);
} catch (error) {
  console.error(error instanceof Refused ? error.message : error);
  process.exitCode = 2;
}
