// Mode e2e: the time from a paced send to the arrival at a long-polling consumer.

package main

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

func runE2E(o *options) *result {
	if o.create {
		must(createTopic(o, o.addr))
	}
	l, err := dial(o.addr)
	must(err)
	defer l.Close()
	next, err := maxOffsets(o, l)
	must(err)
	base, run := time.Now(), uint64(time.Now().UnixNano())
	m := startMeter(o)
	total := int64(o.rate * o.d.Seconds())
	var accepted, received atomic.Int64
	produced := make(chan struct{})
	sends, arrivals := newTally(), newTally()

	// the consumer: one long poll open for each queue
	seen := make([]bool, total)
	duplicates, last := int64(0), base
	must(l.SetDeadline(base.Add(o.d + 20*time.Second)))
	for q := range next {
		_, err := l.Write(pullFrame(o, opaqueBase+q, q, next[q], 15*time.Second))
		must(err)
	}
	consumed := make(chan struct{})
	go func() {
		defer close(consumed)
		for {
			arrivals.err = l.receive(func(r reply) error {
				q := r.opaque - opaqueBase
				if q < 0 || q >= len(next) {
					return fmt.Errorf("answer with opaque %d to no open pull", r.opaque)
				}
				last = time.Now()
				arrivals.reqs++
				arrivals.codes[r.code]++
				begin, err := r.ext("nextBeginOffset")
				if err != nil {
					return err
				}
				next[q] = begin
				if r.code == codeSuccess {
					bad := error(nil)
					err = walk(r.body, func(m message) {
						if !m.crcOK {
							bad = errors.New("wrong CRC")
						}
						if len(m.body) < 24 || be.Uint64(m.body) != run {
							return // from another run
						}
						if n := be.Uint64(m.body[16:]); n < uint64(total) && !seen[n] {
							seen[n] = true
							received.Add(1)
							arrivals.bytes += int64(len(m.body))
							arrivals.took(last.Sub(base) - time.Duration(be.Uint64(m.body[8:])))
						} else {
							duplicates++
						}
					})
					if err = errors.Join(err, bad); err != nil {
						return err
					}
				}
				_, err = l.Write(pullFrame(o, opaqueBase+q, q, next[q], 15*time.Second))
				return err
			})
			if arrivals.err != nil {
				return
			}
		}
	}()

	// the producer: sends what is due, does not wait for the answers; a second goroutine reads them
	p, err := dial(o.addr)
	must(err)
	defer p.Close()
	p.SetDeadline(base.Add(o.d + 20*time.Second))
	at := make([]atomic.Int64, total)
	go func() {
		defer close(produced)
		for sends.reqs < total && sends.err == nil {
			sends.err = p.receive(func(r reply) error {
				if n := r.opaque - opaqueBase; n >= 0 && n < len(at) {
					sends.took(time.Since(base) - time.Duration(at[n].Load()))
				}
				sends.reqs++
				sends.codes[r.code]++
				if r.code == codeSuccess {
					accepted.Add(1)
				}
				return nil
			})
		}
	}()
	body, late := payload(max(o.size, 24)), time.Duration(0)
	be.PutUint64(body, run)
	start := time.Since(base)
	for n := int64(0); n < total; n++ {
		due := start + time.Duration(float64(n)/o.rate*1e9)
		for now := time.Since(base); now < due; now = time.Since(base) {
			time.Sleep(due - now)
		}
		now := time.Since(base)
		late = max(late, now-due)
		be.PutUint64(body[8:], uint64(now))
		be.PutUint64(body[16:], uint64(n))
		at[n].Store(int64(now))
		ext := sendFields(o, int(n)%o.queues, strings.ReplaceAll(properties(o), uniqRun+"0000000000000000", fmt.Sprintf("%s%016X", uniqRun, n)), false)
		ext[6].v = strconv.FormatInt(time.Now().UnixMilli(), 10)
		if _, err := p.Write(frame(o.bin, codeSend, opaqueBase+int(n), 0, ext, body)); err != nil {
			must(err)
		}
	}
	<-produced
	for end := time.Now().Add(5 * time.Second); received.Load() < accepted.Load() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	l.Close() // ends the consumer
	<-consumed
	if errors.Is(arrivals.err, net.ErrClosed) {
		arrivals.err = nil
	}
	arrivals.msgs = received.Load()
	lost := accepted.Load() - arrivals.msgs
	r := m.finish(arrivals, (last.Sub(base) - start).Seconds())
	p50, p99, p999, most := percentiles(sends.micros)
	r.Extra = map[string]any{"sent": total, "accepted": accepted.Load(), "lost": lost, "duplicates": duplicates, "send_p50_us": p50, "send_p99_us": p99,
		"send_p999_us": p999, "send_max_us": most, "send_codes": sends.codes, "producer_late_max_us": late.Microseconds()}
	if r.Error == "" && sends.err != nil {
		r.Error = "producer: " + sends.err.Error()
	}
	if r.Error == "" && (lost > 0 || duplicates > 0) {
		r.Error = "lost or duplicate messages"
	}
	return r
}
