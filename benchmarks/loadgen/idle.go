// Mode idle: many connections which send only heartbeats.

package main

import (
	"errors"
	"fmt"
	"os"
	"time"
)

func runIdle(o *options) *result {
	var links []*link
	defer func() {
		for _, l := range links {
			l.Close()
		}
	}()
	t, connecting := newTally(), startMeter(o)
	for i := 0; i < o.conns; i++ {
		l, err := dial(o.addr)
		if err != nil {
			t.err = fmt.Errorf("connection %d: %w", i, err)
			break
		}
		l.buf = make([]byte, 1024)
		links = append(links, l)
	}
	opened := time.Since(connecting.start).Seconds()
	m := startMeter(o) // connecting is not in the cost of a heartbeat
	silent := 0
	for round := 0; round < o.rounds; round++ {
		if round > 0 {
			time.Sleep(o.interval)
		}
		sent := make([]time.Time, len(links))
		for i, l := range links {
			l.SetDeadline(time.Now().Add(15 * time.Second))
			body := fmt.Sprintf(`{"clientID":"127.0.0.1@loadgen-%d-%d","consumerDataSet":[],"producerDataSet":[{"groupName":"%s"}]}`, os.Getpid(), i, o.group)
			sent[i] = time.Now()
			if _, err := l.Write(frame(o.bin, codeHeartbeat, opaqueBase+round, 0, nil, []byte(body))); err == nil {
				t.reqs++
			}
		}
		for i, l := range links { // read in the order of sending: a latency is an upper bound
			err := l.receive(func(r reply) error {
				if r.opaque != opaqueBase+round {
					return errors.New("answer to no open heartbeat")
				}
				t.took(time.Since(sent[i]))
				t.codes[r.code]++
				if r.code == codeSuccess {
					t.msgs++
				}
				return nil
			})
			if err != nil {
				silent++
				t.err = fmt.Errorf("%d heartbeats not answered, one of them: %w", silent, err)
			}
		}
	}
	r := m.finish(t, time.Since(m.start).Seconds())
	cpu := m.user + m.sys - connecting.user - connecting.sys
	r.Extra = map[string]any{"connections": len(links), "connect_s": opened, "rss_after_connect_MB": m.rss,
		"connect_server_us": cpu * 1e6 / float64(max(1, len(links))), "rss_before_connect_MB": connecting.rss,
		"all_answered": t.msgs == int64(o.conns)*int64(o.rounds)}
	return r
}
