/** Groups of endpoints, in an order for new users. */
export const tags = [
  { name: "Execute", description: "Run Python code, and wait for it or not." },
  { name: "Batches", description: "Many jobs in one request." },
  { name: "Files", description: "Files to use in jobs." },
  { name: "Sessions", description: "Sandboxes whose interpreter remembers from call to call." },
  {
    name: "Jobs",
    description: "Follow a job, read its result, cancel it, run it again.",
  },
  { name: "Artifacts", description: "Files that the code wrote to /output." },
  { name: "Executions", description: "The record of everything that ran." },
  { name: "Job types", description: "Named environments: image, packages, limits." },
  { name: "Dead letters", description: "Asynchronous jobs that failed." },
  { name: "Webhooks", description: "Calls to your own service when a job has ended." },
  { name: "Health", description: "State of the service and its agents." },
  { name: "Hosts and agents", description: "For operators: who may run jobs." },
  {
    name: "Keys and tenants",
    description: "For operators: who may do what, how much, and who did it.",
  },
  { name: "Description", description: "This page, and the OpenAPI document behind it." },
];

export const introduction = `Runs untrusted code, Python or another language, in single-use containers.

The code finds its \`input_data\` in \`/input/data.json\`. What it prints comes back as \`stdout\` and
\`stderr\`; JSON that it writes to \`/output/result.json\` comes back as \`output\`; every other file in
\`/output\` can be downloaded as an artifact. The code has no network, unless its job type has one.

**Try it:** open \`POST /execute\` below, choose an example, and press *Execute*.

- Code that fails is not an HTTP error: the answer is 200, and \`error\` says what went wrong.
- A refused request is answered with problem details (RFC 9457); \`detail\` says what to do.
- Every answer has \`X-Correlation-ID\`, which identifies the request in the service's log. Answers to
  requests that the rate limit counts have \`RateLimit-*\`: how many are left.
`;
