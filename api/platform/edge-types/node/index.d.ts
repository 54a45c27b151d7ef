// Stands in for @types/node, which @libsql/core refers to, so that nothing of Node is in scope
// where tsconfig.edge.json compiles the API core.
