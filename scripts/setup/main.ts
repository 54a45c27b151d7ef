import { runMain } from "../operator-error.ts";
import { ensureEngine } from "./ensure-engine.ts";
import { ensureBaseImage } from "./base-image.ts";
import { connect } from "./connect.ts";
await runMain(async () => {
  const e = await ensureEngine(undefined);
  console.log(e, await ensureBaseImage(connect(e.dockerHost), "python:3.13-slim"));
});
