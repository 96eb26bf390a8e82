package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

type received struct {
	Index          int               `json:"index"`
	Body           string            `json:"body"`
	Tags           string            `json:"tags"`
	Keys           string            `json:"keys"`
	Properties     map[string]string `json:"properties"`
	QueueID        int               `json:"queueId"`
	QueueOffset    int64             `json:"queueOffset"`
	ReconsumeTimes int32             `json:"reconsumeTimes"`
	StoreTimestamp int64             `json:"storeTimestamp"`
}

// consume prints every delivery and says whether all wanted messages came in time.
func consume(o options, limit time.Duration) (bool, error) {
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(primitive.NewPassthroughResolver([]string{o.namesrv})),
		consumer.WithGroupName(o.group),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithCredentials(o.credentials()),
	)
	if err != nil {
		return false, err
	}
	var lock sync.Mutex
	distinct := map[int]bool{}
	enough := make(chan struct{})
	listener := func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			r, err := receive(m)
			if err != nil {
				return consumer.ConsumeRetryLater, err
			}
			printLine(r)
			lock.Lock()
			if !distinct[r.Index] {
				distinct[r.Index] = true
				if len(distinct) == o.count {
					close(enough)
				}
			}
			lock.Unlock()
		}
		return consumer.ConsumeSuccess, nil
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: o.tag}
	if o.sql != "" {
		selector = consumer.MessageSelector{Type: consumer.SQL92, Expression: o.sql}
	}
	if err := c.Subscribe(o.topic, selector, listener); err != nil {
		return false, err
	}
	if err := c.Start(); err != nil {
		return false, err
	}
	came := false
	select {
	case <-enough:
		came = true
	case <-time.After(limit):
	}
	return came, c.Shutdown()
}

func receive(m *primitive.MessageExt) (received, error) {
	index, err := strconv.Atoi(m.GetProperty("index"))
	if err != nil {
		return received{}, fmt.Errorf("property index of %s: %w", m.MsgId, err)
	}
	return received{
		Index:          index,
		Body:           string(m.Body),
		Tags:           m.GetTags(),
		Keys:           m.GetKeys(),
		Properties:     userProperties(m),
		QueueID:        m.Queue.QueueId,
		QueueOffset:    m.QueueOffset,
		ReconsumeTimes: m.ReconsumeTimes,
		StoreTimestamp: m.StoreTimestamp,
	}, nil
}

// userProperties are those of the sender's own: all names that the system uses are in capitals.
func userProperties(m *primitive.MessageExt) map[string]string {
	user := map[string]string{}
	for name, value := range m.GetProperties() {
		if strings.ToUpper(name) != name {
			user[name] = value
		}
	}
	return user
}
