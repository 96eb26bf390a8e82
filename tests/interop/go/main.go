// Command interop is the interop ring's Go program: send, consume and transact with the unmodified rocketmq-client-go.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

type options struct {
	namesrv, topic, group, tag, sql string
	states, answer                  string
	accessKey, secretKey            string
	properties                      string
	count, timeout                  int
}

var printing sync.Mutex

// printLine writes one JSON object a line on standard output; any goroutine may call it.
func printLine(v any) {
	line, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	printing.Lock()
	defer printing.Unlock()
	fmt.Println(string(line))
}

func main() {
	rlog.SetLogLevel("warn") // on standard error
	if len(os.Args) < 2 {
		fail(fmt.Errorf("usage: %s send|consume|transact|converse --namesrv HOST:PORT --topic T --group G --count N ...", os.Args[0]))
	}
	var o options
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	flags.StringVar(&o.namesrv, "namesrv", "", "host:port of the name server")
	flags.StringVar(&o.topic, "topic", "", "topic")
	flags.StringVar(&o.group, "group", "", "producer or consumer group")
	flags.StringVar(&o.tag, "tag", "*", "consume: tag expression")
	flags.StringVar(&o.sql, "sql", "", "consume: SQL92 expression, in the place of tags")
	flags.StringVar(&o.accessKey, "access-key", "", "account to sign with")
	flags.StringVar(&o.secretKey, "secret-key", "", "its secret")
	flags.StringVar(&o.properties, "properties", "", "send: more properties, NAME=VALUE, separated by commas")
	flags.IntVar(&o.count, "count", 0, "messages")
	flags.IntVar(&o.timeout, "timeout", 60, "consume: seconds")
	flags.StringVar(&o.states, "states", "commit,rollback,unknown", "transact: how transactions end, in turns")
	flags.StringVar(&o.answer, "answer", "commit", "transact: what checks are answered")
	if err := flags.Parse(os.Args[2:]); err != nil {
		fail(err)
	}
	switch os.Args[1] {
	case "send":
		if err := send(o); err != nil {
			fail(err)
		}
	case "consume":
		enough, err := consume(o, time.Duration(o.timeout)*time.Second)
		if err != nil {
			fail(err)
		}
		if !enough {
			os.Exit(1)
		}
	case "converse":
		if err := converse(o, time.Duration(o.timeout)*time.Second); err != nil {
			fail(err)
		}
	case "transact":
		if err := transact(o); err != nil {
			fail(err)
		}
	default:
		fail(fmt.Errorf("unknown command %q", os.Args[1]))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(2)
}
