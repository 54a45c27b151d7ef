// Replaces @types/node, which @libsql/core refers to, so that tsconfig.edge.json compiles the API core
// without Node's types.
