import { join } from "node:path";
import type { Logger } from "@logtape/logtape";
import { type Config, ConfigError } from "../../../shared/config/config.ts";
import { describeError } from "../../../shared/log-line.ts";
import { ArtifactOutage, type ArtifactStore } from "../../deps.ts";
import { artifactFolder } from "./artifacts-fs.node.ts";
import { artifactsS3, S3Refusal } from "./artifacts-s3.node.ts";

/** Longer than a healthy service takes for any part of an answer. */
const timeoutMs = 15_000;

/**
 * Opens the configured artifact store: a bucket if `s3_bucket` is set, else a folder of `data_dir`.
 * A bucket that is out of reach gives a warning, since it may come back. A bucket that refuses access
 * is an error of the configuration.
 *
 * @throws ConfigError that names the missing keys or quotes the service's message.
 */
export async function openArtifacts(config: Config, log: Logger): Promise<ArtifactStore> {
  const bucket = bucketOf(config);
  if (!bucket) return artifactFolder(join(config.data_dir, "artifacts"));
  const store = artifactsS3({ ...bucket, timeoutMs });
  try {
    await store.check();
  } catch (error) {
    const { cause } = error as Error;
    if (cause instanceof S3Refusal) {
      throw new ConfigError(
        `the bucket ${bucket.bucket} at ${bucket.endpoint} refuses s3_access_key_id: ${cause.message}`,
        { cause },
      );
    }
    if (!(error instanceof ArtifactOutage)) throw error;
    log.warn("no artifact can be stored or fetched for now: {reason}", {
      reason: `${bucket.endpoint}: ${describeError(error)}`,
    });
  }
  return store;
}

function bucketOf(config: Config) {
  const given = {
    s3_endpoint: config.s3_endpoint,
    s3_bucket: config.s3_bucket,
    s3_access_key_id: config.s3_access_key_id,
    s3_secret_access_key: config.s3_secret_access_key,
  };
  const missing = Object.entries(given).filter(([, value]) => value === undefined);
  if (missing.length === Object.keys(given).length) return undefined;
  const {
    s3_endpoint: endpoint,
    s3_bucket: bucket,
    s3_access_key_id: accessKeyId,
    s3_secret_access_key: secretAccessKey,
  } = given;
  if (!endpoint || !bucket || !accessKeyId || !secretAccessKey) {
    const names = missing.map(([name]) => name).join(", ");
    throw new ConfigError(
      `an S3 artifact store needs ${names} too; without s3_ keys, it is a folder`,
    );
  }
  const { s3_region: region, s3_path_style: pathStyle } = config;
  return { endpoint, bucket, accessKeyId, secretAccessKey, region, pathStyle };
}
