// An application that Myriad asks what its clients may do: `node application.mjs [PORT] [SECONDS]`.
// SECONDS is how long a connection and a subscription last until Myriad asks again.
import { createServer } from 'node:http';

const [port = '3000', seconds = '60'] = process.argv.slice(2);
const expireAt = () => Math.floor(Date.now() / 1000) + Number(seconds);

const refresh = () => ({ result: { expire_at: expireAt() } });

const calls = {
  '/connect': ({ data }) => data?.name
    ? { result: { user: data.name, expire_at: expireAt(), data: { hello: data.name }, channels: ['news'] } }
    : { disconnect: { code: 4501, reason: 'say your name' } },
  '/refresh': refresh,
  '/subscribe': ({ channel, user }) => channel === 'chat:staff' && user !== 'ada'
    ? { error: { code: 403, message: 'for staff only' } }
    : { result: { expire_at: expireAt(), info: { name: user } } },
  '/publish': ({ data, user }) => ({ result: { data: { text: data.text, from: user } } }),
  '/sub_refresh': refresh,
  '/rpc': ({ method, user }) => method === 'time'
    ? { result: { data: { time: Date.now() / 1000, you: user } } }
    : { error: { code: 404, message: 'no such method' } },
};

const server = createServer(async (request, response) => {
  try {
    const chunks = [];
    for await (const chunk of request) chunks.push(chunk);
    response.end(JSON.stringify(calls[request.url](JSON.parse(Buffer.concat(chunks)))));
  } catch (error) {
    console.error(error);
    response.writeHead(500).end();
  }
});
server.listen(Number(port), '127.0.0.1', () => console.log(`listening on 127.0.0.1:${server.address().port}`));
