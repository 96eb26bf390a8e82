package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

// For one send: machines are slow at times.
const sendLimit = 30 * time.Second

type sent struct {
	Index       int    `json:"index"`
	MsgID       string `json:"msgId"`
	OffsetMsgID string `json:"offsetMsgId"`
	QueueID     int    `json:"queueId"`
	QueueOffset int64  `json:"queueOffset"`
	Status      string `json:"status"`
}

// send sends the numbered messages one after the other.
func send(o options) error {
	p, err := rocketmq.NewProducer(
		producer.WithSendMsgTimeout(sendLimit),
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{o.namesrv})),
		producer.WithGroupName(o.group),
		producer.WithCredentials(o.credentials()),
	)
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	for i := 0; i < o.count; i++ {
		m := message(o.topic, i)
		for _, property := range strings.Split(o.properties, ",") {
			if name, value, found := strings.Cut(property, "="); found {
				m.WithProperty(name, value)
			}
		}
		result, err := p.SendSync(context.Background(), m)
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		status := fmt.Sprintf("status %d", result.Status)
		if result.Status == primitive.SendOK {
			status = "SEND_OK"
		}
		printLine(sent{i, result.MsgID, result.OffsetMsgID, result.MessageQueue.QueueId, result.QueueOffset, status})
	}
	return p.Shutdown()
}

func message(topic string, index int) *primitive.Message {
	m := primitive.NewMessage(topic, []byte(fmt.Sprintf("message %d: žluťoučký kůň, 消息, 🚀", index)))
	m.WithTag([]string{"TagA", "TagB"}[index%2])
	m.WithKeys([]string{"key-" + strconv.Itoa(index)})
	m.WithProperty("index", strconv.Itoa(index))
	m.WithProperty("from", "go")
	return m
}
