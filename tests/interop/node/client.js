'use strict';
// The interop ring's Node program: send and consume with the unmodified ali-ons client.

const { parseArgs } = require('node:util');
const { Consumer, Message, Producer } = require('ali-ons');

const toStderr = (...words) => console.error(...words);
const logger = { debug() {}, info() {}, warn: toStderr, error: toStderr };

/** The client insists on one, though it asks nothing of it when it is told a name server. */
const httpclient = {
  async request(url) {
    throw new Error(`unexpected HTTP request to ${url}`);
  },
};

const print = object => process.stdout.write(JSON.stringify(object) + '\n');

function message(topic, index) {
  const body = `message ${index}: žluťoučký kůň, 消息, 🚀`;
  const built = new Message(topic, index % 2 ? 'TagB' : 'TagA', body);
  built.keys = [ `key-${index}` ];
  built.properties.index = String(index);
  built.properties.from = 'node';
  return built;
}

async function send({ namesrv, topic, group, count }) {
  const producer = new Producer({ httpclient, logger, nameSrv: namesrv, producerGroup: group });
  await producer.ready();
  for (let index = 0; index < count; index++) {
    const result = await producer.send(message(topic, index));
    print({
      index,
      msgId: result.msgId,
      queueId: Number(result.messageQueue.queueId),
      queueOffset: result.queueOffset,
      status: result.sendStatus,
    });
  }
  await producer.close();
  return 0;
}

/** The properties of the sender's own: all names that the system uses are in capitals. */
function userProperties(properties) {
  return Object.fromEntries(Object.entries(properties).filter(([ name ]) => name !== name.toUpperCase()));
}

async function consume({ namesrv, topic, group, count, timeout, tag }) {
  const consumer = new Consumer({
    httpclient,
    logger,
    nameSrv: namesrv,
    consumerGroup: group,
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
  });
  consumer.on('error', toStderr);
  const distinct = new Set();
  const status = await new Promise(resolve => {
    setTimeout(resolve, timeout * 1000, 1).unref();
    consumer.subscribe(topic, tag, async received => {
      const index = Number(received.properties.index);
      print({
        index,
        body: received.body.toString(),
        tags: received.tags,
        keys: received.keys,
        properties: userProperties(received.properties),
        queueId: received.queueId,
        queueOffset: Number(received.queueOffset),
        reconsumeTimes: received.reconsumeTimes,
      });
      distinct.add(index);
      if (distinct.size === count) {
        resolve(0);
      }
    });
  });
  await consumer.close();
  return status;
}

async function main() {
  const text = { type: 'string' };
  const { values, positionals } = parseArgs({
    allowPositionals: true,
    options: {
      namesrv: text,
      topic: text,
      group: text,
      count: text,
      timeout: { type: 'string', default: '60' },
      tag: { type: 'string', default: '*' },
    },
  });
  const command = { send, consume }[positionals[0]];
  if (!command) {
    throw new Error('usage: client.js send|consume --namesrv HOST:PORT --topic T --group G --count N ...');
  }
  return command({ ...values, count: Number(values.count), timeout: Number(values.timeout) });
}

main().then(
  // Once everything is written: the client leaves timers behind.
  status => process.stdout.write('', () => process.exit(status)),
  error => {
    console.error(error);
    process.exit(2);
  }
);
