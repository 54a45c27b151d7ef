// Stands in for @types/node, which @libsql/core's types refer to, so that nothing of Node is in
// scope where tsconfig.edge.json compiles the API's core.
export {};
