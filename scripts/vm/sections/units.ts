import { equal } from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { containersLeft, startDocker } from "../docker.ts";
import { result, run, submit } from "../outcomes.ts";
import { IN_GUEST } from "../machine/project-disk.ts";
import type { World } from "../sections.ts";
import { controls, reach, untilLogged } from "../service.ts";

const AGENT = "airlock-agent";
const API = "airlock-api";

/** The units of packaging/systemd, put in place as docs/guides/agents.md says. */
export async function checkUnits({ guest, checks: { check } }: World): Promise<void> {
  await startDocker(guest);
  const token = randomBytes(24).toString("hex");
  await guest.run(`# install the units
install -d -m 700 /etc/airlock
(umask 077
echo AIRLOCK_AGENT_TOKENS=${token} >/etc/airlock/api.env
printf 'AIRLOCK_API_URL=http://127.0.0.1:8080\\nAIRLOCK_AGENT_TOKEN=${token}\\n' >/etc/airlock/agent.env)
cp ${IN_GUEST.project}/packaging/systemd/*.service /etc/systemd/system/
systemctl daemon-reload`);

  await check("both start, and are enabled", async () => {
    await guest.run(`systemctl enable --quiet ${API} ${AGENT}\nsystemctl restart ${API} ${AGENT}`);
    await untilLogged(guest, API, "http://127.0.0.1:8080");
    await untilLogged(guest, AGENT, "answers");
  });
  const api = await reach(guest);

  await check("a job runs through the agent's unit", async () => {
    const job = await run(api, "open('note.txt', 'w').write('kept')\nprint('hello')");
    equal(job["stdout"], "hello\n");
    const { text } = await api.get(`/jobs/${String(job["job_id"])}/artifacts/note.txt`);
    equal(text, "kept");
  });
  await check("an agent that is killed comes back and runs jobs", async () => {
    await guest.run(`systemctl kill --signal=KILL --kill-whom=main ${AGENT}`);
    equal((await run(api, "print('again')"))["stdout"], "again\n");
  });
  await check("a stop lets the running job finish, and ends well", async () => {
    const id = await submit(
      api,
      "import time\nprint('begun', flush=True)\ntime.sleep(8)\nprint('finished')",
    );
    // "running" comes earlier: an agent that stops hands back a job that is still on its way to it.
    while (!(await api.get(`/jobs/${id}/logs`)).text.includes("begun")) await sleep(500);
    await controls(guest, AGENT).stop();
    equal((await result(api, id))["stdout"], "begun\nfinished\n");
    equal(await containersLeft(guest), "");
  });
  await check("a stop of the API ends well", () => controls(guest, API).stop());
}
