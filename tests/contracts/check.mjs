// Checks generated documents with programs of others, and prints what is wrong as JSON:
//
//     node check.mjs NODE_MODULES asyncapi FILE       what the parser of AsyncAPI reports: [{severity, code, message, path}, …]
//     node check.mjs NODE_MODULES patterns FILE...    patterns that are no regular expressions of ECMA-262: [pattern, …]

import { readFileSync } from "node:fs";
import { createRequire } from "node:module";

const [modules, what, ...files] = process.argv.slice(2);
const require = createRequire(`${modules}/`);

async function asyncapi(file) {
  const { Parser } = require("@asyncapi/parser");
  const found = await new Parser().validate(readFileSync(file, "utf8"));
  return found.map(({ severity, code, message, path }) => ({ severity, code, message, path: path.join("/") }));
}

function* patterns(node) {
  if (node === null || typeof node !== "object") return;
  if (typeof node.pattern === "string") yield node.pattern;
  for (const value of Object.values(node)) yield* patterns(value);
}

function refused(pattern) {
  try {
    new RegExp(pattern, "u");
    return false;
  } catch {
    return true;
  }
}

function wrong(all) {
  const found = all.flatMap((file) => [...patterns(JSON.parse(readFileSync(file, "utf8")))]);
  return [...new Set(found)].filter(refused);
}

console.log(JSON.stringify(what === "asyncapi" ? await asyncapi(files[0]) : wrong(files)));
