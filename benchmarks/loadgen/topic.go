// What the modes ask of the broker around a run: the topic, and how far its queues reach.

package main

import (
	"fmt"
	"strconv"
	"time"
)

func createTopic(o *options, addr string) error {
	l, err := dial(addr)
	if err != nil {
		return err
	}
	defer l.Close()
	q := strconv.Itoa(o.queues)
	r, err := l.call(o.bin, codeCreateTopic, []kv{{"topic", o.topic}, {"defaultTopic", "TBW102"}, {"readQueueNums", q},
		{"writeQueueNums", q}, {"perm", "6"}, {"topicFilterType", "SINGLE_TAG"}, {"topicSysFlag", "0"}, {"order", "false"}}, nil)
	if err == nil && r.code != codeSuccess {
		err = fmt.Errorf("create topic: code %d: %.200q", r.code, r.head)
	}
	return err
}

// maxOffsets asks for the end of every queue.
func maxOffsets(o *options, l *link) ([]int64, error) {
	ends := make([]int64, o.queues)
	for q := range ends {
		r, err := l.call(o.bin, codeMaxOffset, []kv{{"topic", o.topic}, {"queueId", strconv.Itoa(q)}}, nil)
		if err == nil && r.code != codeSuccess {
			err = fmt.Errorf("max offset: code %d: %.200q", r.code, r.head)
		}
		if err == nil {
			ends[q], err = r.ext("offset")
		}
		if err != nil {
			return nil, err
		}
	}
	return ends, nil
}

// settledOffset waits until the queues' ends sum to want, or have not moved for quiet, and returns the sum.
func settledOffset(o *options, want int64, quiet time.Duration) int64 {
	l, err := dial(o.addr)
	must(err)
	defer l.Close()
	last, moved := int64(-1), time.Now()
	for {
		ends, err := maxOffsets(o, l)
		must(err)
		sum := int64(0)
		for _, e := range ends {
			sum += e
		}
		if sum != last {
			last, moved = sum, time.Now()
		}
		if (want > 0 && sum >= want) || time.Since(moved) > quiet {
			return sum
		}
		time.Sleep(10 * time.Millisecond)
	}
}
