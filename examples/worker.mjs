// A worker in JavaScript: node worker.mjs, with the server's address in PENSTOCK_SERVER and a token in PENSTOCK_TOKEN.
const server = `${process.env.PENSTOCK_SERVER ?? "http://127.0.0.1:8080"}/api/v1`;
const headers = { "content-type": "application/json" };
if (process.env.PENSTOCK_TOKEN) headers.authorization = `Bearer ${process.env.PENSTOCK_TOKEN}`;

const tasks = { greet: async ({ name }) => `hello ${name}` };
const concurrency = 10;
const announced = Object.fromEntries(Object.keys(tasks).map((task) => [task, { max_attempts: 5, timeout: 60 }]));
const queues = { [process.argv[2] ?? "greetings"]: announced };

// Whatever goes wrong on the way is asked again: the same number has the same answer, at any server. What is refused
// (no such queue, no such token) would be refused again: that ends the worker, but for leases and workers that are lost.
async function call(path, body) {
  for (let pause = 100; ; pause = Math.min(pause * 2, 5000)) {
    const asked = fetch(server + path, { method: "POST", headers, body: JSON.stringify(body) });
    const told = await asked.then(async (it) => ({ ...(await it.json()), status: it.status })).catch((why) => ({ why }));
    if (told.status < 300 || told.status === 409 || told.status === 410) return told;
    if (told.status < 500 && told.status !== 429) throw new Error(`refused: ${told.detail}`);
    console.error(`asked again in ${pause} ms: ${told.detail ?? told.why.cause ?? told.why}`);
    await new Promise((resolve) => setTimeout(resolve, pause));
  }
}

async function run({ id, lease, task, args }) {
  let said;
  try { said = { end: "succeeded", result: (await tasks[task](args)) ?? null }; }
  catch (error) { said = { end: "retry", error: String(error?.stack ?? error) }; }
  ends.push({ job: id, lease, ...said });
  console.log(`job ${id} (${task}): ${said.end}`);
  running.delete(lease + id);
  wake();
}

let ends = [], running = new Set(), stopping = false, wake = () => {};
process.on("SIGTERM", () => { stopping = true; wake(); });
while (!stopping || running.size || ends.length) {
  const { worker } = await call("/workers", { name: "node", queues, concurrency, lease: 15 });
  for (let number = 1; ; number++) {
    const told = ends.splice(0), want = stopping ? 0 : concurrency - running.size;
    const answer = await call(`/workers/${worker}/poll`, { number, ends: told, want, wait: running.size ? 0 : 5 });
    if (answer.status === 410) break; // it was declared dead: what it held goes to others
    for (const job of answer.jobs ?? []) { running.add(job.lease + job.id); run(job); }
    if (stopping && !running.size && !ends.length) break;
    if (running.size && !ends.length) await new Promise((resolve) => { wake = resolve; setTimeout(resolve, 1000); });
  }
  if (stopping) await fetch(`${server}/workers/${worker}`, { method: "DELETE", headers });
}
