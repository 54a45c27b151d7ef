/** What the playground begins with. */
export const exampleCode = `import json
import time

with open("/input/data.json") as file:
    data = json.load(file)

for step in range(1, data["steps"] + 1):
    print(f"step {step} of {data['steps']}", flush=True)
    time.sleep(0.5)

with open("/output/result.json", "w") as file:
    json.dump({"steps": data["steps"]}, file)
`;
export const exampleInput = `{
  "steps": 5
}
`;
