import type { Config } from "../../shared/config/config.ts";
import { ensureBaseImage } from "./images/base-image.ts";
import { connect } from "./engine/connect.ts";
import { type Engine, ensureEngine } from "./engine/ensure-engine.ts";

export type SetUp = Engine & {
  /** The image that is used as `base_image`. */
  image: string;
};

/** Makes sure that an engine answers and has the default image; fast if both are there. */
export async function setUp(config: Config): Promise<SetUp> {
  const engine = await ensureEngine(config.docker_host);
  const image = await ensureBaseImage(connect(engine.dockerHost), config.base_image);
  return { ...engine, image };
}
