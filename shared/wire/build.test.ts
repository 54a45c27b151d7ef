import { expect, test } from "vitest";
import { JobTypeName } from "./job-type.ts";
import { VersionTag } from "./build.ts";

test.each(["v0.0.0", "v1.2.3", "v1.0.0-rc.1", "v1.0.0-0", "v1.0.0-a-b.0a"])(
  "%s is a version tag",
  (tag) => {
    expect(VersionTag.safeParse(tag).success).toBe(true);
  },
);

test.each([
  "",
  "1.2.3",
  "v1.2",
  "v01.0.0",
  "v1.0.0-",
  "v1.0.0-01",
  "v1.0.0-a..b",
  "v1.0.0+1",
  "v1.0.0\n",
])("%j is not a version tag", (tag) => {
  expect(VersionTag.safeParse(tag).success).toBe(false);
});

test.each(["a", "science", "py3.12", "a_b", "a__b", "a---b", "7"])(
  "%s names a job type, and an image",
  (name) => {
    expect(JobTypeName.safeParse(name).success).toBe(true);
  },
);

test.each(["", "A", "a b", "-a", "a-", "a..b", "a.-b", "a___b", "a/b", "é", "x".repeat(64)])(
  "%j is not the name of a job type",
  (name) => {
    expect(JobTypeName.safeParse(name).success).toBe(false);
  },
);
