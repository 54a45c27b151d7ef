import type { Config } from "../../shared/config/config.ts";

/** Name and tag of a job type's image; with a registry, the name under which it is pushed. */
export function imageRefOf(
  { image_registry, image_prefix }: Pick<Config, "image_registry" | "image_prefix">,
  jobType: string,
  tag: string,
): string {
  const registry = image_registry === undefined ? "" : `${image_registry}/`;
  return `${registry}${image_prefix}-${jobType}:${tag}`;
}

/** The name without its tag. */
export function imageRepository(imageRef: string, tag: string): string {
  return imageRef.slice(0, -tag.length - 1);
}
