import { once } from "node:events";
import { Config } from "../../shared/config/config.ts";
import { findBaseImage } from "../setup/images/base-image.ts";
import { connect } from "../setup/engine/connect.ts";

/** Gives one engine the base image of another. */
export async function copyBaseImage(from: string, to: string): Promise<void> {
  const docker = connect(from);
  const name = await findBaseImage(docker, Config.parse({}).base_image);
  if (name === undefined) throw new Error(`${from} has no base image: npm run setup`);
  const load = await connect(to).loadImage(await docker.getImage(name).get());
  await once(load.resume(), "end");
}
