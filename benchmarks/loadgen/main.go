// Command loadgen puts load on any broker or name server that speaks the RocketMQ 4.x remoting
// protocol, and prints one JSON line. It builds each request once as bytes and afterwards only
// patches the opaque, the born time and the UNIQ_KEY in place, so that its own cost per message
// stays far below the server's. Standard library only; run with no arguments for the usage.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"
)

const usage = `loadgen MODE [flags]     (one JSON line on stdout; exit status 1 when something was not answered or not right;
                          requests that the server refuses are no failure: they are counted by code)

  send    SEND_MESSAGE_V2 (310): -c connections, each with -w requests outstanding (-w 1: a synchronous sender)
  batch   SEND_BATCH_MESSAGE (320): the same with -k messages in a request
  pull    PULL_MESSAGE (11): reads every queue of -topic from offset 0 to its end, checks each message's CRC and offset
  e2e     paced producer (-rate) and long-polling consumer at once: time from send to arrival
  idle    -conns connections, each sends -rounds heartbeats (34), -interval apart
  ns      GET_ROUTEINFO_BY_TOPIC (105) at the name server -addr (-broker ADDR: create the topic there first)
  ready   asks until -probe (send, pull, route) succeeds; seconds since the start of this program, or since -since

send, batch, ns and pull stop at -n messages or after -d, whichever is first; no mode runs longer than 10 minutes.
With -pid the server's CPU seconds and resident memory over the run are in the output; the server figures include
the work the server does after its answers until the messages can be read (the "stored" check waits for that).
-rate paces send and batch too (messages per second over all connections); 0: as fast as the answers come.
One-way sends have no answer: their ops are the messages found stored afterwards, "requests" says how many were sent.

flags:
`

type options struct {
	mode, addr, broker, topic, group, header, tags, keys, probe string
	queues, c, w, size, k, m, conns, rounds, passes             int
	topics, groups                                              int
	n, tail                                                     int64
	rate, since                                                 float64
	d, warm, interval                                           time.Duration
	oneway, uniq, create, bin                                   bool
	pids                                                        []int
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "loadgen:", err)
		os.Exit(1)
	}
}

func main() {
	o := &options{}
	fs := flag.NewFlagSet("loadgen", flag.ExitOnError)
	fs.StringVar(&o.addr, "addr", "127.0.0.1:10911", "broker (name server in ns and ready -probe route); loopback only")
	fs.StringVar(&o.broker, "broker", "", "ns: the broker at which to create the topic")
	fs.StringVar(&o.topic, "topic", "LoadTopic", "topic")
	fs.IntVar(&o.queues, "queues", 8, "queues of the topic")
	fs.BoolVar(&o.create, "create", true, "create the topic first (send, batch, e2e, ns, ready -probe send)")
	fs.StringVar(&o.group, "group", "LoadGroup", "producer or consumer group")
	fs.StringVar(&o.header, "header", "json", "header encoding: json or rocketmq")
	fs.IntVar(&o.c, "c", 1, "connections")
	fs.IntVar(&o.w, "w", 1, "requests outstanding on each connection")
	fs.Int64Var(&o.n, "n", 20_000_000, "stop after so many messages")
	fs.DurationVar(&o.d, "d", 5*time.Second, "stop after so long")
	fs.DurationVar(&o.warm, "warm", 0, "send, batch, ns: unmeasured load before")
	fs.IntVar(&o.size, "size", 1024, "body bytes")
	fs.BoolVar(&o.oneway, "oneway", false, "send, batch: one-way, up to -w requests in a write")
	fs.StringVar(&o.tags, "tags", "", "TAGS property")
	fs.StringVar(&o.keys, "keys", "", "KEYS property")
	fs.BoolVar(&o.uniq, "uniq", true, "send a UNIQ_KEY property, different in each message, as the real clients do")
	fs.IntVar(&o.k, "k", 32, "batch: messages in a request")
	fs.IntVar(&o.m, "m", 32, "pull, e2e: maxMsgNums")
	fs.IntVar(&o.topics, "topics", 1, "send: spread over so many topics, -topic with a number each, which must exist")
	fs.IntVar(&o.groups, "groups", 1, "pull: spread over so many groups, -group with a number each")
	fs.Int64Var(&o.tail, "tail", 0, "pull: begin so many messages before the end of each queue (0: at the begin)")
	fs.IntVar(&o.passes, "passes", 1, "pull: read everything so many times")
	fs.Float64Var(&o.rate, "rate", 0, "messages per second (e2e: 1000 when not given)")
	fs.IntVar(&o.conns, "conns", 1000, "idle: connections")
	fs.IntVar(&o.rounds, "rounds", 3, "idle: heartbeats on each")
	fs.DurationVar(&o.interval, "interval", time.Second, "idle: pause between the rounds")
	fs.StringVar(&o.probe, "probe", "send", "ready: send, pull or route")
	fs.Float64Var(&o.since, "since", 0, "ready: count from this Unix time in seconds (date +%s.%N)")
	pids := fs.String("pid", "", "process ids of the server, comma separated")
	fs.Usage = func() { fmt.Fprint(os.Stderr, usage); fs.PrintDefaults() }
	modes := map[string]func(*options) *result{"send": runFlood, "batch": runFlood, "ns": runFlood, "pull": runPull, "e2e": runE2E, "idle": runIdle, "ready": runReady}
	if len(os.Args) < 2 || modes[os.Args[1]] == nil {
		fs.Usage()
		os.Exit(2)
	}
	o.mode = os.Args[1]
	fs.Parse(os.Args[2:])
	if fs.NArg() > 0 {
		must(fmt.Errorf("unexpected argument %q", fs.Arg(0)))
	}
	for _, p := range strings.Split(*pids, ",") {
		if p != "" {
			pid, err := strconv.Atoi(p)
			must(err)
			o.pids = append(o.pids, pid)
		}
	}
	for _, a := range []string{o.addr, o.broker} {
		if host, _, err := net.SplitHostPort(a); a != "" && (err != nil || host != "localhost" && !net.ParseIP(host).IsLoopback()) {
			must(fmt.Errorf("%q is not a loopback address with a port", a))
		}
	}
	if o.header != "json" && o.header != "rocketmq" {
		must(fmt.Errorf("unknown -header %q", o.header))
	}
	o.bin = o.header == "rocketmq"
	if o.mode == "e2e" && o.rate == 0 {
		o.rate = 1000
	}
	bound := func(name string, v, low, high float64) {
		if v < low || v > high {
			must(fmt.Errorf("-%s must be from %v to %v", name, low, high))
		}
	}
	bound("c", float64(o.c), 1, 512)
	bound("w", float64(o.w), 1, 4096)
	bound("n", float64(o.n), 1, 50_000_000)
	bound("d", o.d.Seconds(), 0.001, 600)
	bound("warm", o.warm.Seconds(), 0, 600)
	bound("size", float64(o.size), 1, 4<<20)
	bound("k", float64(o.k), 1, 1024)
	bound("m", float64(o.m), 1, 1024)
	bound("queues", float64(o.queues), 1, 256)
	bound("passes", float64(o.passes), 1, 1000)
	bound("rate", o.rate, 0, 1e6)
	bound("topics", float64(o.topics), 1, 50_000)
	bound("groups", float64(o.groups), 1, 10_000)
	bound("tail", float64(o.tail), 0, 1e9)
	bound("conns", float64(o.conns), 1, 20_000)
	bound("rounds", float64(o.rounds), 1, 10_000)
	bound("interval", o.interval.Seconds(), 0, 60)

	time.AfterFunc(10*time.Minute, func() { must(errors.New("stopped after 10 minutes")) })
	r := modes[o.mode](o)
	line, err := json.Marshal(r)
	must(err)
	if _, err := io.WriteString(os.Stdout, string(line)+"\n"); err != nil || r.Error != "" {
		os.Exit(1)
	}
}
