import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { expect, test } from "vitest";
import { NoServiceError } from "./exit.ts";
import { patientFetch } from "./patient-fetch.ts";
import type { Terminal } from "./terminal.ts";

/** A service that answers with these statuses and then stops. */
async function startService(...statuses: number[]) {
  const notes: string[] = [];
  const server = createServer((_, response) => {
    const status = statuses.shift() ?? 200;
    response.writeHead(status, { Connection: "close" });
    const quota = status === 429 ? "max_cpu_s_day" : undefined;
    response.end(JSON.stringify({ detail: "The queue is full.", quota }));
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const terminal = { note: (text: string) => void notes.push(text) } as unknown as Terminal;
  return {
    url,
    notes,
    fetchIt: patientFetch(url, terminal),
    end: async () => void (await once(server.close(), "close")),
  };
}

test("a service that cannot serve a request now is named once, with its reason", async () => {
  const { url, notes, fetchIt, end } = await startService(503, 503, 200);
  for (const status of [503, 503, 200]) expect((await fetchIt(url)).status).toBe(status);
  expect(notes).toEqual([`${url} cannot serve this now (The queue is full.); trying again …`]);
  await end();
});

test("a met quota that is free again in hours is not said to be tried again", async () => {
  const { url, notes, fetchIt, end } = await startService(429);
  expect((await fetchIt(url)).status).toBe(429);
  expect(notes).toEqual([]);
  await end();
});

test("a refused connection is final at the fifth try, unless a service has answered there", async () => {
  const gone = await startService();
  await gone.end();
  for (let tries = 1; tries < 5; tries++) {
    await expect(gone.fetchIt(gone.url)).rejects.toThrow(TypeError);
  }
  await expect(gone.fetchIt(gone.url)).rejects.toThrow(NoServiceError);
  expect(gone.notes).toEqual([
    `${gone.url} does not answer (nothing listens there); trying again …`,
  ]);

  const lost = await startService(200);
  await lost.fetchIt(lost.url);
  await lost.end();
  for (let tries = 0; tries < 6; tries++) {
    await expect(lost.fetchIt(lost.url)).rejects.toThrow(TypeError);
  }
});

test("an address that can have no service is final at once", async () => {
  const notes: string[] = [];
  const terminal = { note: (text: string) => void notes.push(text) } as unknown as Terminal;
  // One of the ports that no `fetch` connects to.
  const url = "http://127.0.0.1:9";
  await expect(patientFetch(url, terminal)(url)).rejects.toThrow(NoServiceError);
  expect(notes).toEqual([]);
});
