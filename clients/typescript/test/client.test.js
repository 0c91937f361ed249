// Against a real server: TREECAL is the command that starts it, as in `TREECAL=.venv/bin/treecal npm test`.

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { appendFileSync, mkdtempSync, readFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";

import { Client, ServerError } from "../dist/index.js";
import { fileJournal } from "../dist/node.js";

const folder = mkdtempSync(join(tmpdir(), "treecal-"));
const servers = [];
const quiet = { log: () => {} };
const patient = { timeout: 10_000 };

async function freePort() {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address();
  server.close();
  await once(server, "close");
  return port;
}

async function serve(port, data) {
  const command = process.env.TREECAL ?? "treecal";
  const server = spawn(command, ["serve", "--data", join(folder, data), "--port", String(port)], { stdio: "ignore" });
  let problem;
  server.once("error", (error) => (problem = error));
  server.once("exit", (code) => (problem ??= new Error(`${command} serve ended with code ${code}: set TREECAL to the command`)));
  servers.push(server);
  for (;;) {
    if (problem) throw problem;
    try {
      if ((await fetch(`http://127.0.0.1:${port}/readyz`)).ok) return server;
    } catch {
      await new Promise((resume) => setTimeout(resume, 50));
    }
  }
}

async function kill(server) {
  server.kill("SIGKILL");
  await once(server, "exit");
}

after(() => servers.forEach((server) => server.kill("SIGKILL")));

test("a round: forecast, outcome, record, scores", async () => {
  const port = await freePort();
  await serve(port, "round.sqlite");
  const client = new Client(`http://127.0.0.1:${port}/`, quiet);
  await client.create({ name: "rain", classes: ["dry", "wet"], corrector: { name: "platt" }, tags: ["city"] });
  await client.create({ name: "rain", classes: ["dry", "wet"], corrector: { name: "platt" }, tags: ["city"] });
  for (let day = 0; day < 20; day++) {
    const answer = await client.forecast("rain", [0.2, 0.8], { id: `day ${day}`, tags: { city: "Oslo" }, ...patient });
    assert.equal(answer.corrected, true);
    assert.equal(answer.round, day + 1);
    assert.equal((await client.outcome("rain", `day ${day}`, day % 2 ? "wet" : "dry")).status, "learned");
  }
  assert.equal((await client.outcome("rain", "day 0", "dry")).status, "replayed");
  assert.equal((await client.outcome("rain", "day 99", "dry")).status, "unknown");
  const named = await client.forecast("rain", { wet: 0.8, dry: 0.2 }, { id: "named", ...patient });
  assert.deepEqual(Object.keys(named.forecast).sort(), ["dry", "wet"]);
  assert.equal((await client.record("rain", "day 3")).outcome, "wet");
  assert.equal((await client.scores("rain", { last: 10 })).rounds, 10);
  const names = [];
  for await (const stream of client.streams({ prefix: "ra" })) names.push(stream.name);
  assert.deepEqual(names, ["rain"]);
  assert.deepEqual(await client.alarms({ stream: "rain" }), []);
  await client.close();
});

test("what is wrong raises, and says what", async () => {
  const port = await freePort();
  await serve(port, "wrong.sqlite");
  const client = new Client(`http://127.0.0.1:${port}`, quiet);
  await client.create({ name: "rain", classes: ["dry", "wet"] });
  await assert.rejects(client.forecast("rain", [0.2, 0.9], patient), (error) => {
    assert(error instanceof ServerError);
    assert.deepEqual([error.code, error.status, error.at], ["invalid", 422, "p"]);
    return true;
  });
  await assert.rejects(client.forecast("rain", [0.2, NaN]), /finite/);
  await assert.rejects(client.forecast("snow", [0.2, 0.8], patient), { code: "not_found" });
  await client.archive("rain");
  const answer = await client.forecast("rain", [0.3, 0.7], patient);
  assert.deepEqual([answer.forecast, answer.corrected, answer.kept], [[0.3, 0.7], false, false]);
  await client.close();
});

test("a server that says nothing holds up nobody", async () => {
  const silent = createServer(() => {}).listen(0, "127.0.0.1");
  await once(silent, "listening");
  const client = new Client(`http://127.0.0.1:${silent.address().port}`, { ...quiet, limit: 8 });
  for (let at = 0; at < 10; at++) {
    const answer = await client.forecast("rain", [0.3, 0.7], { id: String(at), timeout: 50 });
    assert.deepEqual([answer.forecast, answer.corrected, answer.kept], [[0.3, 0.7], false, at < 6]);
  }
  assert.deepEqual([client.waiting, client.counts.dropped], [6, 4]); // the last quarter is for outcomes
  await client.outcome("rain", "0", "wet");
  await client.outcome("rain", "1", "wet");
  await assert.rejects(client.outcome("rain", "2", "wet"), { code: "away" });
  await client.close();
  silent.close();
});

test("what waits is delivered once, in order, also by the next process", async () => {
  const port = await freePort();
  const url = `http://127.0.0.1:${port}`;
  const path = join(folder, "journal");
  let server = await serve(port, "away.sqlite");
  const first = new Client(url, { ...quiet, journal: fileJournal(path) });
  await first.create({ name: "rain", classes: ["dry", "wet"], corrector: { name: "platt" } });
  await kill(server);
  const n = 1200;
  for (let at = 0; at < n; at++) {
    const answer = await first.forecast("rain", [0.3, 0.7], { id: `r${at}` });
    assert.deepEqual([answer.corrected, answer.kept], [false, true]);
    assert.equal((await first.outcome("rain", `r${at}`, at === 7 ? "hail" : "wet")).status, "spooled");
  }
  await first.outcome("rain", "nobody", "wet");
  const other = `import { fileJournal } from "./dist/node.js"; await fileJournal(${JSON.stringify(path)}).load()`;
  const refused = spawnSync(process.execPath, ["--input-type=module", "-e", other], { encoding: "utf8" });
  assert.match(refused.stderr, /each process needs a journal of its own/);
  await first.close();
  appendFileSync(path, '{"stream":"rain","fore'); // a crash in the middle of a line
  server = await serve(port, "away.sqlite");
  const next = new Client(url, { ...quiet, journal: fileJournal(path) });
  assert.equal(await next.flush(60_000), 0);
  assert.equal(readFileSync(path, "utf8"), "");
  const { counts } = await next.stream("rain");
  assert.deepEqual([counts.forecasts, counts.learned], [n, n - 1]);
  assert.equal(next.counts.refused, 2); // hail, and the outcome of no forecast
  assert.deepEqual((await next.record("rain", "r11")).used, true);
  await next.close();
});

test("an answer that came too late counts as used, not as corrected", async () => {
  const port = await freePort();
  await serve(port, "late.sqlite");
  const url = `http://127.0.0.1:${port}`;
  const slow = async (...call) => {
    const answer = await fetch(...call);
    if (String(call[0]).endsWith("/forecasts")) throw new TypeError("the answer was lost");
    return answer;
  };
  const client = new Client(url, { ...quiet, fetch: slow });
  await client.create({ name: "rain", classes: ["dry", "wet"], corrector: { name: "platt" } });
  const answer = await client.forecast("rain", [0.3, 0.7], { id: "today", ...patient });
  assert.deepEqual([answer.corrected, answer.kept], [false, true]);
  assert.equal(await client.flush(10_000), 0);
  const record = await client.record("rain", "today");
  assert.deepEqual([record.forecast, record.used], [[0.3, 0.7], true]);
  await client.close();
});
