// One step a line: node story.js PORT STEP ARGUMENT…  Prints what the client gave back, as JSON.
// The client is the published one (package-lock.json); nothing of it is changed or replaced.
const KsqldbClient = require("ksqldb-client");

const [port, step, ...given] = process.argv.slice(2);
const client = new KsqldbClient({ host: "http://127.0.0.1", port: Number(port) });

/** Rows of a push query until there are so many; then it is terminated by its id. */
async function push(sql, wanted) {
  const rows = [];
  let closed;
  const ended = client.streamQuery(
    sql,
    ({ metadata, rows: more }) => {
      rows.push(...(more || []));
      if (rows.length >= Number(wanted) && !closed) {
        closed = client.terminatePushQuery(metadata.queryId);
      }
    },
    { properties: { "auto.offset.reset": "earliest" } },
  );
  const answer = await ended;
  return { rows, answer, closed: await closed };
}

const steps = {
  execute: (sql, extra) => client.executeStatement(sql, extra && JSON.parse(extra)),
  query: (sql, extra) => client.query(sql, extra && JSON.parse(extra)),
  // all at once over the one connection
  insert: (stream, rows) =>
    Promise.all(JSON.parse(rows).map((row) => client.insertInto(stream, row))),
  push,
  listStreams: () => client.listStreams(),
  listTables: () => client.listTables(),
  listTopics: () => client.listTopics(),
  listQueries: () => client.listQueries(),
  describe: (name) => client.describeSource(name),
};

(async () => {
  await client.connect();
  const result = await steps[step](...given);
  await client.disconnect();
  console.log(JSON.stringify(result));
})().catch((error) => {
  console.error(error);
  process.exit(1);
});
