// Modes send, batch and ns: many connections, each with a window of outstanding requests.

package main

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

type budget struct {
	left  atomic.Int64
	start time.Time
	until time.Time
	rate  float64 // requests per second, 0: no pacing
	given atomic.Int64
}

// take says how many of want requests may be sent now, and whether the run is over.
func (b *budget) take(want int) (int, bool) {
	now := time.Now()
	if now.After(b.until) {
		return 0, true
	}
	if b.rate > 0 {
		want = min(want, int(now.Sub(b.start).Seconds()*b.rate)-int(b.given.Load()))
		if want <= 0 {
			return 0, false
		}
	}
	left := b.left.Add(int64(-want))
	if left < 0 {
		over := min(int64(want), -left)
		want -= int(over)
	}
	b.given.Add(int64(want))
	return want, want == 0
}

// flood keeps up to w requests outstanding on one connection until the budget is spent and all are answered.
func flood(l *link, o *options, ts []*template, first int, b *budget, t *tally) {
	slots := 1 // a power of two: the slot of a request is in the low bits of its opaque
	for slots < o.w {
		slots *= 2
	}
	sent, opaques, free := make([]time.Time, slots), make([]int, slots), make([]int, o.w)
	for i := range free {
		free[i] = i
	}
	var buf []byte
	generation, queue, done := 0, first, false
	l.SetDeadline(b.until.Add(15 * time.Second))
	for {
		k := 0
		if !done && len(free) > 0 {
			k, done = b.take(len(free))
		}
		if k > 0 {
			buf = buf[:0]
			now := time.Now()
			for i := 0; i < k; i++ {
				slot := free[len(free)-1]
				opaque := opaqueBase + generation*slots + slot
				generation = (generation + 1) % (1_000_000_000 / slots)
				if !o.oneway {
					free = free[:len(free)-1]
					sent[slot], opaques[slot] = now, opaque
				}
				buf = ts[queue%len(ts)].emit(buf, opaque, now.UnixMilli())
				queue++
			}
			if _, t.err = l.Write(buf); t.err != nil {
				return
			}
			t.reqs += int64(k)
		}
		switch {
		case o.oneway && done, !o.oneway && done && len(free) == o.w:
			return
		case len(free) == o.w && k == 0:
			time.Sleep(500 * time.Microsecond) // paced: nothing is due
		}
		if o.oneway || len(free) == o.w {
			continue
		}
		t.err = l.receive(func(r reply) error {
			slot := 0
			if n := r.opaque - opaqueBase; n >= 0 {
				slot = n % slots
			}
			if opaques[slot] != r.opaque || r.opaque == 0 {
				return fmt.Errorf("answer with opaque %d to no open request", r.opaque)
			}
			opaques[slot] = 0
			free = append(free, slot)
			t.took(time.Since(sent[slot]))
			t.codes[r.code]++
			if r.code == codeSuccess {
				t.msgs += int64(ts[0].msgs)
				t.bytes += int64(ts[0].bytes)
			}
			return nil
		})
		if t.err != nil {
			t.err = fmt.Errorf("%d requests open: %w", o.w-len(free), t.err)
			return
		}
	}
}

func floodAll(o *options, n int64, d time.Duration) (*tally, float64) {
	ts := floodTemplates(o)
	b := &budget{start: time.Now(), until: time.Now().Add(d), rate: o.rate / float64(ts[0].msgs)}
	b.left.Store((n + int64(ts[0].msgs) - 1) / int64(ts[0].msgs))
	return onEach(o.c, o.addr, func(i int, l *link, t *tally) { flood(l, o, ts, i*max(3, len(ts)/o.c), b, t) })
}

// onEach runs one function on each of c connections at once; the clock starts when all are connected.
func onEach(c int, addr string, run func(int, *link, *tally)) (*tally, float64) {
	total, links := newTally(), make([]*link, c)
	for i := range links {
		if links[i], total.err = dial(addr); total.err != nil {
			return total, 0
		}
		defer links[i].Close()
	}
	ts := make([]*tally, c)
	var wg sync.WaitGroup
	start := time.Now()
	for i := range links {
		ts[i] = newTally()
		wg.Add(1)
		go func() { defer wg.Done(); run(i, links[i], ts[i]) }()
	}
	wg.Wait()
	seconds := time.Since(start).Seconds()
	for _, t := range ts {
		total.add(t)
	}
	return total, seconds
}

func runFlood(o *options) *result {
	admin := o.addr
	if o.mode == "ns" {
		admin = o.broker
	}
	if o.create && admin != "" && o.topics == 1 {
		must(createTopic(o, admin))
	}
	if o.mode == "ns" && o.create {
		must(retry(40*time.Second, func() error { return routeProbe(o) }))
	}
	if o.warm > 0 {
		w := *o
		w.pids, w.oneway = nil, false
		if t, _ := floodAll(&w, 1<<40, o.warm); t.err != nil {
			must(fmt.Errorf("warm-up: %w", t.err))
		}
	}
	var before int64
	looked := o.mode != "ns" && o.topics == 1 // into the queues, for what is stored
	if looked {
		before = settledOffset(o, 0, 500*time.Millisecond)
	}
	m := startMeter(o)
	t, seconds := floodAll(o, o.n, o.d)
	if !looked {
		return m.finish(t, seconds)
	}
	per := int64(1)
	if o.mode == "batch" {
		per = int64(o.k)
	}
	want := t.msgs
	if o.oneway {
		want = t.reqs * per
	}
	if t.err != nil { // the server is gone: what it acknowledged is the result
		r := m.finish(t, seconds)
		r.Requests = t.reqs
		return r
	}
	mark := time.Now()
	stored := settledOffset(o, before+want, time.Second) - before
	settled := time.Since(mark)
	requests := t.reqs
	if o.oneway {
		t.msgs, t.bytes = stored, stored*int64(o.size)
		if stored < want { // do not count the wait that only showed that no more came
			settled -= time.Second
		}
		seconds += max(0, settled.Seconds())
	}
	r := m.finish(t, seconds)
	r.Stored, r.Requests = &stored, requests
	if stored < want {
		r.Extra["not_stored"] = want - stored
		if !o.oneway && r.Error == "" {
			r.Error = "answered with success but not found stored"
		}
	}
	return r
}
