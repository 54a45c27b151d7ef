import { connect } from "../setup/engine/connect.ts";
import { ensureScienceImage } from "../setup/images/science-image.ts";
import { setUp } from "../setup/set-up.ts";
import { installTools } from "../setup/install-tools.ts";
import { toolsOf, type Tier } from "../setup/tools.ts";
import { OperatorError } from "../command/operator-error.ts";
import { readConfig } from "../command/config.ts";
import { say } from "../command/say.ts";

export type SetUpTiers = {
  dockerHost?: string;
  /** Why tests on containers cannot run here. */
  noEngine?: string;
};

/** Gets what these tiers need and no more. A tool that cannot be installed is for the tests to tell. */
export async function setUpTiers(tiers: readonly Tier[]): Promise<SetUpTiers> {
  try {
    await installTools(toolsOf(tiers));
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    say(`not all tools could be installed: ${error.message}`);
  }
  if (!needsEngine(tiers)) return {};
  try {
    const { dockerHost, image } = await setUp(readConfig(process.env));
    say(`testing against the engine at ${dockerHost} with the image ${image}`);
    await ensureScienceImage(connect(dockerHost));
    return { dockerHost };
  } catch (error) {
    if (!(error instanceof OperatorError)) throw error;
    return { noEngine: error.message };
  }
}

export function needsEngine(tiers: readonly Tier[]): boolean {
  return (["engine", "zygote", "lab"] as const).some((tier) => tiers.includes(tier));
}
