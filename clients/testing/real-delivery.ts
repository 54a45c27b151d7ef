import { ScriptedAgent } from "../../api/testing/scripted-agent.ts";
import { type Received, receiverSecret, startReceiver } from "../../api/testing/receiver.ts";
import { startNode } from "../../api/testing/start-node.ts";

export const otherSecret = `whsec_${Buffer.alloc(32, 8).toString("base64")}`;
export const wrongSecret = `whsec_${Buffer.alloc(32, 9).toString("base64")}`;

/** What the service sends to an endpoint with these secrets, verified by the reference library with one of them. */
export async function receiveDelivery(secrets = [receiverSecret]): Promise<Received> {
  const receiver = await startReceiver();
  const token = "agent-token-0123456789";
  const api = await startNode({
    AIRLOCK_AGENT_TOKENS: token,
    AIRLOCK_WEBHOOK_ENDPOINTS: JSON.stringify({ main: { url: receiver.url, secrets } }),
    AIRLOCK_WEBHOOK_PRIVATE_ADDRESSES: "127.0.0.1",
  });
  try {
    const agent = new ScriptedAgent(api.url, token);
    const headers = { "Content-Type": "application/json" };
    const body = JSON.stringify({ code: "print(1)", metadata: { order: "ü – 4711" } });
    await fetch(`${api.url}/execute/async`, { method: "POST", headers, body });
    const { lease_id } = await agent.takeJob();
    await agent.result(lease_id, { status: "succeeded", exit_code: 0 });
    return (await receiver.calls(1))[0]!;
  } finally {
    await api.close();
    await receiver.close();
  }
}
