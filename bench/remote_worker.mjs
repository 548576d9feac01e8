// Takes up to 500 jobs a poll and does nothing with them, until COUNT are done:
// node remote_worker.mjs SERVER QUEUE TASK COUNT
const [server, queue, task, count] = process.argv.slice(2);
const headers = { "content-type": "application/json" };
const call = async (path, body) => {
  const answer = await fetch(`${server}/api/v1${path}`, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(await answer.text());
  return answer.json();
};
const { worker } = await call("/workers", { name: "bench", queues: { [queue]: { [task]: {} } }, concurrency: 1000, lease: 60 });
let ends = [];
for (let number = 1, done = 0; done < Number(count); number++) {
  const { jobs } = await call(`/workers/${worker}/poll`, { number, ends, want: 500, wait: 5 });
  done += ends.length;
  ends = jobs.map(({ id, lease }) => ({ job: id, lease, end: "succeeded" }));
}
