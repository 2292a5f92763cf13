// Reads lines of JSON: the files of extensions, an address and a token, then statements. Answers each on a line of JSON.
import { createInterface } from "node:readline";
import { DuckDBInstance } from "@duckdb/node-api";

const connection = await (await DuckDBInstance.create(":memory:", { allow_unsigned_extensions: "false" })).connect();
const quoted = (text) => `'${text.replaceAll("'", "''")}'`;
let attached = false;

for await (const line of createInterface({ input: process.stdin })) {
  const asked = JSON.parse(line);
  if (!attached) {
    for (const file of asked.extensions) await connection.run(`LOAD ${quoted(file)}`);
    await connection.run(`ATTACH ${quoted(asked.address)} AS clinic (TOKEN ${quoted(asked.token)})`);
    attached = true;
    continue;
  }
  try {
    const reader = await connection.runAndReadAll(`FROM clinic.query(${quoted(asked)})`);
    console.log(JSON.stringify({ columns: reader.columnNames(), rows: reader.getRowsJson() }));
  } catch (error) {
    console.log(JSON.stringify({ refused: String(error.message) }));
  }
}
process.exit(0);
