// Mode ready: how long until a probe succeeds.

package main

import (
	"errors"
	"fmt"
	"strconv"
	"time"
)

func routeProbe(o *options) error {
	l, err := dial(o.addr)
	if err != nil {
		return err
	}
	defer l.Close()
	r, err := l.call(o.bin, codeRoute, []kv{{"topic", o.topic}}, nil)
	if err == nil && r.code != codeSuccess {
		err = fmt.Errorf("route: code %d: %.200q", r.code, r.head)
	}
	return err
}

func sendProbe(o *options) error {
	if o.create {
		if err := createTopic(o, o.addr); err != nil {
			return err
		}
	}
	l, err := dial(o.addr)
	if err != nil {
		return err
	}
	defer l.Close()
	ext := sendFields(o, 0, properties(o), false)
	ext[6].v = strconv.FormatInt(time.Now().UnixMilli(), 10)
	r, err := l.call(o.bin, codeSend, ext, payload(o.size))
	if err == nil && r.code != codeSuccess {
		err = fmt.Errorf("send: code %d: %.200q", r.code, r.head)
	}
	return err
}

// pullProbe asks for the last message of every queue.
func pullProbe(o *options) error {
	l, err := dial(o.addr)
	if err != nil {
		return err
	}
	defer l.Close()
	ends, err := maxOffsets(o, l)
	if err != nil {
		return err
	}
	for q, end := range ends {
		l.SetDeadline(time.Now().Add(10 * time.Second))
		if _, err = l.Write(pullFrame(o, opaqueBase, q, max(end-1, 0), 0)); err != nil {
			return err
		}
		found := false
		err = l.receive(func(r reply) error {
			if r.code != codeSuccess {
				return fmt.Errorf("pull: code %d: %.200q", r.code, r.head)
			}
			return walk(r.body, func(m message) { found = found || m.crcOK })
		})
		if err == nil && !found {
			err = errors.New("pull: no good message")
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func retry(d time.Duration, f func() error) error {
	for end := time.Now().Add(d); ; time.Sleep(20 * time.Millisecond) {
		if err := f(); err == nil || time.Now().After(end) {
			return err
		}
	}
}

func runReady(o *options) *result {
	start := time.Now()
	if o.since > 0 {
		start = time.UnixMicro(int64(o.since * 1e6))
	}
	probe := map[string]func(*options) error{"send": sendProbe, "pull": pullProbe, "route": routeProbe}[o.probe]
	if probe == nil {
		must(fmt.Errorf("unknown -probe %q", o.probe))
	}
	m, t := startMeter(o), newTally()
	t.err = retry(o.d, func() error { t.reqs++; return probe(o) })
	if t.err == nil {
		t.msgs = 1
	}
	r := m.finish(t, time.Since(start).Seconds())
	if t.err == nil && o.probe == "pull" {
		sum := int64(0)
		l, err := dial(o.addr)
		must(err)
		defer l.Close()
		ends, err := maxOffsets(o, l)
		must(err)
		for _, e := range ends {
			sum += e
		}
		r.Stored = &sum
	}
	return r
}
