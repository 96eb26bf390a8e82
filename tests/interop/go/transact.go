package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var states = map[string]primitive.LocalTransactionState{
	"commit":   primitive.CommitMessageState,
	"rollback": primitive.RollbackMessageState,
	"unknown":  primitive.UnknowState,
}

type transacted struct {
	Index string `json:"index"`
	MsgID string `json:"msgId"`
	State string `json:"state"`
	Check bool   `json:"check"`
}

// transactor decides each message by its number, and answers all checks alike.
type transactor struct {
	decisions []string
	answer    string
}

func (t transactor) decision(index int) string {
	return t.decisions[index%len(t.decisions)]
}

func (t transactor) ExecuteLocalTransaction(m *primitive.Message) primitive.LocalTransactionState {
	var index int
	fmt.Sscan(m.GetProperty("index"), &index)
	return states[t.decision(index)]
}

func (t transactor) CheckLocalTransaction(m *primitive.MessageExt) primitive.LocalTransactionState {
	printLine(transacted{m.GetProperty("index"), m.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex), t.answer, true})
	return states[t.answer]
}

// transact sends the numbered messages within transactions, and answers checks until its standard input is closed.
func transact(o options) error {
	t := transactor{strings.Split(o.states, ","), o.answer}
	p, err := rocketmq.NewTransactionProducer(
		t,
		producer.WithSendMsgTimeout(sendLimit),
		producer.WithNsResolver(primitive.NewPassthroughResolver([]string{o.namesrv})),
		producer.WithGroupName(o.group),
	)
	if err != nil {
		return err
	}
	if err := p.Start(); err != nil {
		return err
	}
	for i := 0; i < o.count; i++ {
		result, err := p.SendMessageInTransaction(context.Background(), message(o.topic, i))
		if err != nil {
			return fmt.Errorf("message %d: %w", i, err)
		}
		printLine(transacted{fmt.Sprint(i), result.MsgID, t.decision(i), false})
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return p.Shutdown()
}
