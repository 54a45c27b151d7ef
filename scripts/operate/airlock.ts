// npm changes to the package's folder; paths on the command line begin where the person stands.
process.chdir(process.env["INIT_CWD"] ?? ".");
await import("../../clients/cli/main.ts");
