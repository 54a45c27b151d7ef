import { expect, test } from "vitest";
import { targetIn } from "./save-artifacts.ts";

test.each(["../a", "/etc/passwd", "a/../../b", ".", ""])(
  "an artifact named %j is not saved outside the folder",
  (name) => {
    expect(() => targetIn("out", name)).toThrow("outside out");
  },
);

test("an artifact in a folder is saved in that folder", () => {
  expect(targetIn("out", "plots/a.png")).toBe("out/plots/a.png");
});
