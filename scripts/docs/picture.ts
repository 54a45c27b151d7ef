import { openBrowser, openPage } from "../../api/testing/browser.ts";
import { OperatorError, runMain, say } from "../operate/command.ts";

const file = "docs/console.png";
const size = { width: 1280, height: 800 };

const code = `import json
import math

with open("/input/data.json") as file:
    waves = json.load(file)["waves"]

points = [
    (x, 60 - 40 * math.sin(x * waves / 48))
    for x in range(0, 480, 4)
]
print(f"\\x1b[32mdrawing\\x1b[0m {len(points)} points")

line = " ".join(f"{x},{y:.1f}" for x, y in points)
with open("/output/wave.svg", "w") as file:
    file.write(
        '<svg xmlns="http://www.w3.org/2000/svg" width="480" height="120">'
        f'<polyline points="{line}" fill="none" stroke="teal" stroke-width="2"/></svg>'
    )
with open("/output/result.json", "w") as file:
    json.dump({"points": len(points)}, file)
`;

/** Takes the picture of the README: the playground of a running service, after a run. */
await runMain(async () => {
  const url = process.argv[2] ?? "http://127.0.0.1:8080";
  const browser = await openBrowser();
  try {
    const { page, complaints } = await openPage(browser);
    await page.setViewportSize(size);
    const draft = JSON.stringify({ code, input: '{\n  "waves": 3\n}\n', jobType: "default" });
    await page.addInitScript(`sessionStorage.setItem("airlock-draft", ${JSON.stringify(draft)})`);
    await page.goto(`${url}/console`);
    await page.getByRole("textbox", { name: "Python code" }).waitFor();
    await page.keyboard.press("Control+Enter");
    await page.getByText("succeeded").waitFor();
    await page.getByRole("img", { name: "wave.svg" }).waitFor();
    await page.screenshot({ path: file });
    if (complaints.length > 0)
      throw new OperatorError(`the page complains: ${complaints.join("; ")}`);
  } finally {
    await browser.close();
  }
  say(`wrote ${file}`);
});
