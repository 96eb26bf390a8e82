// Mode pull: every queue from its start to its end, each message checked.

package main

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"
)

var pullSeq atomic.Int64

// pullGroup is the group of the next pull: one after the other of -groups.
func pullGroup(o *options) string {
	if o.groups == 1 {
		return o.group
	}
	return o.group + strconv.FormatInt(pullSeq.Add(1)%int64(o.groups), 10)
}

func pullFrame(o *options, opaque, queue int, offset int64, suspend time.Duration) []byte {
	flag := 4 // the subscription is in the request
	if suspend > 0 {
		flag |= 2
	}
	return frame(o.bin, codePull, opaque, 0, []kv{{"consumerGroup", pullGroup(o)}, {"topic", o.topic}, {"queueId", strconv.Itoa(queue)},
		{"queueOffset", strconv.FormatInt(offset, 10)}, {"maxMsgNums", strconv.Itoa(o.m)}, {"sysFlag", strconv.Itoa(flag)}, {"commitOffset", "0"},
		{"suspendTimeoutMillis", strconv.FormatInt(suspend.Milliseconds(), 10)}, {"subscription", "*"}, {"subVersion", "0"}, {"expressionType", "TAG"}}, nil)
}

// pullQueues reads the given queues from 0 to their ends, with at most w pulls outstanding.
func pullQueues(l *link, o *options, queues []int, ends []int64, left *atomic.Int64, until time.Time, t *tally) {
	next, sent, todo, open := make([]int64, o.queues), make([]time.Time, o.queues), queues, 0
	l.SetDeadline(until.Add(15 * time.Second))
	ask := func(q int) error {
		sent[q] = time.Now()
		open++
		t.reqs++
		_, err := l.Write(pullFrame(o, opaqueBase+q, q, next[q], 0))
		return err
	}
	for {
		for open < o.w && len(todo) > 0 {
			q := todo[0]
			todo = todo[1:]
			if ends[q] == 0 {
				continue
			}
			if o.tail > 0 {
				next[q] = max(0, ends[q]-o.tail)
			}
			if t.err = ask(q); t.err != nil {
				return
			}
		}
		if open == 0 {
			return
		}
		t.err = l.receive(func(r reply) error {
			q := r.opaque - opaqueBase
			if q < 0 || q >= o.queues {
				return fmt.Errorf("answer with opaque %d to no open pull", r.opaque)
			}
			open--
			t.took(time.Since(sent[q]))
			t.codes[r.code]++
			begin, err := r.ext("nextBeginOffset")
			if err != nil {
				return err
			}
			if r.code == codeSuccess {
				bad := error(nil)
				n := int64(0)
				err = walk(r.body, func(m message) {
					switch {
					case !m.crcOK:
						bad = fmt.Errorf("CRC of queue %d offset %d is wrong", q, m.offset)
					case m.queue != q || m.offset != next[q]+n:
						bad = fmt.Errorf("got queue %d offset %d, want %d and %d", m.queue, m.offset, q, next[q]+n)
					}
					n++
					t.bytes += int64(len(m.body))
				})
				t.msgs += n
				left.Add(-n)
				if err = errors.Join(err, bad); err == nil && n == 0 {
					err = errors.New("success without a message")
				}
			}
			if err != nil {
				return err
			}
			stuck := begin <= next[q]
			next[q] = begin
			if stuck && r.code != codePullRetry {
				return fmt.Errorf("queue %d stays at %d of %d, code %d", q, begin, ends[q], r.code)
			}
			if begin < ends[q] && left.Load() > 0 && time.Now().Before(until) {
				return ask(q)
			}
			return nil
		})
		if t.err != nil {
			return
		}
	}
}

func runPull(o *options) *result {
	l, err := dial(o.addr)
	must(err)
	ends, err := maxOffsets(o, l)
	must(err)
	l.Close()
	own := make([][]int, min(o.c, o.queues))
	expect := int64(0)
	for q := 0; q < o.queues; q++ {
		own[q%len(own)] = append(own[q%len(own)], q)
		expect += ends[q]
	}
	var left atomic.Int64
	left.Store(o.n)
	m, until := startMeter(o), time.Now().Add(o.d)
	total, seconds := newTally(), 0.0
	for pass := 0; pass < o.passes && total.err == nil && left.Load() > 0; pass++ {
		if pass > 0 && !time.Now().Before(until) {
			break // a pass begun after the end would ask each queue once and say so of its whole time
		}
		t, s := onEach(len(own), o.addr, func(i int, l *link, t *tally) { pullQueues(l, o, own[i], ends, &left, until, t) })
		total.add(t)
		seconds += s
	}
	r := m.finish(total, seconds)
	r.Extra["messages_in_topic"], r.Extra["passes"] = expect, o.passes
	if total.reqs > 0 {
		r.Extra["messages_per_pull"] = float64(total.msgs) / float64(total.reqs)
	}
	return r
}
