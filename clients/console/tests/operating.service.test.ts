import { createHash } from "node:crypto";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { receiverSecret, startReceiver } from "../../../api/testing/receiver.ts";
import { needs } from "../../../scripts/testing/needs.ts";
import {
  failedWith,
  faultsOf,
  patienceMs,
  startConsole,
  useConsole,
  world,
} from "../../testing/console-world.ts";

const queueSize = 5;

describe("what an operator does in the console", needs("chromium"), () => {
  let receiver: Awaited<ReturnType<typeof startReceiver>>;
  beforeAll(async () => {
    receiver = await startReceiver((response) => response.writeHead(410).end());
  });
  useConsole(() => ({
    AIRLOCK_MAX_QUEUE_SIZE: String(queueSize),
    AIRLOCK_WEBHOOK_ENDPOINTS: JSON.stringify({
      orders: { url: `${receiver.url}/`, secrets: [receiverSecret] },
    }),
    AIRLOCK_JOB_TYPES: JSON.stringify({
      science: { apt: ["fonts-noto-cjk"], requirements: ["numpy==2.3.4"] },
    }),
    AIRLOCK_WEBHOOK_PRIVATE_ADDRESSES: "127.0.0.1",
  }));
  afterAll(() => receiver.close());

  async function fail(count: number, fields: object): Promise<string[]> {
    const ids: string[] = [];
    for (let i = 0; i < count; i++) {
      ids.push(await world.run("1/0", failedWith("value_error", "ValueError: x"), fields));
    }
    return ids;
  }

  test("all that a filter shows is run again: counted, asked, and waiting while the queue is full", async () => {
    const count = queueSize + 2;
    const ids = await fail(count, { metadata: { night: "monday" } });
    await fail(1, {});
    const page = await world.open("/console/executions?metadata=night:monday");
    await page.getByRole("button", { name: "Rerun all of these" }).click();
    const dialog = page.getByRole("dialog", { name: "Run again" });
    await dialog.getByText(`${count} executions.`).waitFor();
    await dialog.getByRole("button", { name: `Run again (${count})` }).click();
    await dialog.getByText(`The queue is full (max_queue_size ${queueSize}).`).waitFor();
    await dialog.getByText(`${queueSize} of ${count} done.`).waitFor();
    for (let i = 0; i < count; i++) {
      await world.finish();
    }
    await dialog.getByText(`All ${count} done.`).waitFor();
    await dialog.getByRole("button", { name: "Close" }).click();
    for (const id of ids) {
      expect(await world.ask(`/executions?parent_execution_id=${id}`)).toMatchObject({ count: 1 });
    }
  });

  test("when it is stopped, it says how far it came, and only in its dialog", async () => {
    const count = queueSize + 2;
    await fail(count, { metadata: { night: "sunday" } });
    const page = await world.open("/console/executions?metadata=night:sunday");
    await page.getByRole("button", { name: "Rerun all of these" }).click();
    const dialog = page.getByRole("dialog", { name: "Run again" });
    await dialog.getByRole("button", { name: `Run again (${count})` }).click();
    await dialog.getByText(`${queueSize} of ${count} done.`).waitFor();
    await dialog.getByText("The queue is full").waitFor();
    // Escape alone does not close the dialog before it has said so.
    await page.keyboard.press("Escape");
    await dialog.getByRole("button", { name: "Stop" }).click();
    await dialog.getByText(`Stopped after ${queueSize} of ${count}.`).waitFor();
    await dialog.getByRole("button", { name: "Close" }).click();
    await dialog.waitFor({ state: "detached" });
    expect(await page.locator(".announcement").allInnerTexts()).toEqual([""]);
    const { items } = await world.ask<{ items: { execution_id: string }[] }>(
      "/executions?status=queued",
    );
    for (const { execution_id: id } of items) {
      await world.ask(`/jobs/${id}/cancel`, {});
    }
  });

  test("all that wait are cancelled", async () => {
    const metadata = { night: "wednesday" };
    const ids = await Promise.all([1, 2, 3].map(() => world.submit("1", { metadata })));
    const page = await world.open("/console/executions?status=queued&metadata=night:wednesday");
    await page.getByRole("button", { name: "Cancel all of these" }).click();
    const dialog = page.getByRole("dialog", { name: "Cancel executions" });
    await dialog.getByRole("button", { name: "Cancel executions (3)" }).click();
    await dialog.getByText("All 3 done.").waitFor();
    const focused = () => page.evaluate<string>("document.activeElement.textContent");
    await expect.poll(focused).toBe("Close");
    for (const id of ids) {
      expect(await world.ask(`/executions/${id}`)).toMatchObject({ status: "cancelled" });
    }
  });

  test("an execution that was deleted meanwhile does not keep the others from running again", async () => {
    const ids = await fail(3, { metadata: { night: "tuesday" } });
    const page = await world.open("/console/executions?metadata=night:tuesday");
    await page.getByRole("button", { name: "Rerun all of these" }).click();
    const dialog = page.getByRole("dialog", { name: "Run again" });
    const confirm = dialog.getByRole("button", { name: "Run again (3)" });
    await confirm.waitFor();
    await fetch(`${world.url}/executions/${ids[1]}`, { method: "DELETE" });
    await confirm.click();
    await dialog.getByText("2 of 3 done.").waitFor();
    await dialog.getByText("1 refused.").waitFor();
    await dialog.getByRole("button", { name: "Close" }).click();
    for (const id of [ids[0], ids[2]]) {
      expect(await world.ask(`/executions?parent_execution_id=${id}`)).toMatchObject({ count: 1 });
      await world.finish();
    }
  });

  test("all dead letters of an error type are removed", async () => {
    await fail(2, {});
    const page = await world.open("/console/dead-letters?error_type=value_error");
    await page.getByRole("button", { name: "Remove all" }).click();
    const dialog = page.getByRole("dialog", { name: "Remove" });
    await dialog.getByRole("button", { name: /^Remove \(/ }).click();
    await dialog.getByText(/^All \d+ done\.$/).waitFor();
    await page.keyboard.press("Escape");
    await page.getByText("No dead letter has the error value_error.").waitFor();
    expect(await world.ask("/dlq/stats")).toMatchObject({ total: 0 });
  });

  test("a delivery that failed shows the answer, and is sent again", async () => {
    const [id] = await fail(1, {});
    const page = await world.open(`/console/webhooks?job_id=${id}`);
    await page.getByRole("cell", { name: "failed" }).first().waitFor();
    await page.getByRole("cell", { name: /answered 410/ }).waitFor();
    receiver.answering = (response) => void response.writeHead(204).end();
    await page.getByRole("button", { name: /^Send delivery/ }).click();
    await page.getByRole("cell", { name: "delivered" }).waitFor();
    expect(await page.getByRole("cell", { name: "orders" }).count()).toBe(1);
  });

  test("without deliveries, the view says how to configure a receiver", async () => {
    const other = await startConsole();
    const page = await other.open("/console/webhooks");
    const shown = page.getByLabel("Configuration");
    expect(await shown.innerText()).toContain("[webhook_endpoints.orders]");
    await other.close();
  });

  test("a host's token is revoked", async () => {
    const { code } = await world.ask<{ code: string }>("/hosts/invitations", { name: "gpu-7" });
    const token_sha256 = createHash("sha256").update("ala_secret").digest("hex");
    await world.ask("/agent/v1/join", { code, token_sha256, name: "its-own" });
    const page = await world.open("/console/queue");
    const dialog = page.getByRole("dialog", { name: "Revoke gpu-7" });
    await page.getByRole("button", { name: "Revoke gpu-7" }).press("Enter");
    // Enter alone revokes nothing, and the focus is where it was.
    await dialog.waitFor();
    await page.keyboard.press("Enter");
    // A closed dialog is hidden at once and removed a moment later.
    await page.locator("dialog").waitFor({ state: "detached" });
    expect(await page.getByRole("cell", { name: "valid" }).count()).toBe(1);
    await page.keyboard.press("Enter");
    await dialog.getByRole("button", { name: "Revoke" }).click();
    await page.getByRole("cell", { name: "revoked" }).waitFor();
    const { hosts } = await world.ask<{ hosts: { revoked_at: string | null }[] }>("/hosts");
    expect(hosts[0]?.revoked_at).not.toBeNull();
  });

  test("an agent is drained and resumed, and a code to join is shown", async () => {
    const page = await world.open("/console/queue");
    await page.getByRole("button", { name: "Drain scripted" }).click();
    await page.getByRole("cell", { name: "draining" }).waitFor();
    expect(await world.ask("/pool/stats")).toMatchObject({ agents: [{ state: "draining" }] });
    await page.getByRole("button", { name: "Resume scripted" }).click();
    await page.getByRole("cell", { name: "draining" }).waitFor({ state: "detached" });
    await page.getByRole("button", { name: "Add an agent" }).click();
    const dialog = page.getByRole("dialog", { name: "Add an agent" });
    await dialog.getByText(/join --url .* --code /).waitFor();
    await page.keyboard.press("Escape");
    await dialog.waitFor({ state: "detached" });
  });

  test("a job that waits for its image says which step of the build runs, and so do the job types", async () => {
    const id = await world.submit("1", { job_type: "science" });
    const page = await world.open(`/console/executions/${id}`);
    await page.getByText("Waits for the image of science.").waitFor();
    const { lease_id } = await world.agent.takeBuild();
    const data_base64 = Buffer.from("[1/2] apt: fonts-noto-cjk\n").toString("base64");
    await world.agent.postBuild(lease_id, "logs", { offset: 0, data_base64, step: 1 });
    await page.getByText("Waits for the image of science: step 1 of 2, apt.").waitFor();
    await page.goto(`${world.url}/console/job-types?build=science`);
    const row = page.getByRole("row", { name: "science" });
    await row.getByText("building").waitFor();
    for (const shown of [row, page.getByRole("region", { name: "Build of science" })])
      await shown.getByText("step 1 of 2").waitFor();
    const error = { type: "dependency_error", message: "No numpy.", phase: "startup" };
    await world.agent.postBuild(lease_id, "result", { status: "failed", error });
    await row.getByText("build failed").waitFor();
    await page.goto(`${world.url}/console/executions/${id}`);
    await page.getByText("Job type science was not built: No numpy.").first().waitFor();
    expect(await faultsOf(page)).toEqual([]);
  });

  test("a job type is built while its log is shown", async () => {
    const page = await world.open("/console/job-types");
    await page.getByRole("button", { name: "Build default", exact: true }).click();
    const build = await world.agent.takeBuild();
    await page.getByText("No output yet.").waitFor();
    const data_base64 = Buffer.from("Step 1 of 3\n").toString("base64");
    await world.agent.postBuild(build.lease_id, "logs", { offset: 0, data_base64 });
    const log = page.getByRole("region", { name: "Log of the build", exact: true });
    await expect.poll(() => log.innerText(), { timeout: patienceMs }).toContain("Step 1 of 3");
    await world.agent.postBuild(build.lease_id, "result", {
      status: "built",
      digest: `sha256:${"4e".repeat(32)}`,
      python_version: "3.13.5",
      manifest_digest: null,
    });
    await page.getByText("default is built").waitFor();
    await page.close();
    // The next build, also from the page that shows the last one.
    const again = await world.open("/console/job-types?build=default");
    await again.getByText("Step 1 of 3").waitFor();
    await again.getByRole("button", { name: "Build default", exact: true }).click();
    const next = await world.agent.takeBuild();
    const text = Buffer.from("Collecting numpy\n").toString("base64");
    await world.agent.postBuild(next.lease_id, "logs", { offset: 0, data_base64: text });
    await again.getByText("Collecting numpy").waitFor();
  });
});
