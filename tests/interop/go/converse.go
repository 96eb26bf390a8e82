package main

import (
	"context"
	"fmt"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

const requestLimit = 5 * time.Second

type conversation struct {
	Request string `json:"request"`
	Reply   string `json:"reply"`
}

// converse sends count requests, which a consumer of this process replies to, and prints each with its reply. The
// broker learns of the asking producer by its heartbeat: a request whose reply found nobody is repeated.
func converse(o options, limit time.Duration) error {
	servers := primitive.NewPassthroughResolver([]string{o.namesrv})
	replier, err := startProducer(servers, o.group+"-reply", "replier")
	if err != nil {
		return err
	}
	c, err := rocketmq.NewPushConsumer(
		consumer.WithNsResolver(servers),
		consumer.WithGroupName(o.group),
		consumer.WithInstance("listener"),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
	)
	if err != nil {
		return err
	}
	listener := func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		for _, m := range messages {
			reply, err := consumer.CreateReplyMessage(m, nil)
			if err != nil {
				return consumer.ConsumeRetryLater, err
			}
			reply.Body = []byte("re: " + string(m.Body))
			_, _ = replier.SendSync(ctx, reply) // who gets no reply asks again
		}
		return consumer.ConsumeSuccess, nil
	}
	if err := c.Subscribe(o.topic, consumer.MessageSelector{}, listener); err != nil {
		return err
	}
	if err := c.Start(); err != nil {
		return err
	}
	asker, err := startProducer(servers, o.group+"-ask", "asker")
	if err != nil {
		return err
	}
	end := time.Now().Add(limit)
	for i := 0; i < o.count; i++ {
		body := fmt.Sprintf("request %d", i)
		for {
			message := primitive.NewMessage(o.topic, []byte(body))
			reply, err := asker.Request(context.Background(), requestLimit, message)
			if err == nil {
				printLine(conversation{body, string(reply.Body)})
				break
			}
			if time.Now().After(end) {
				return fmt.Errorf("%s: %w", body, err)
			}
		}
	}
	return nil
}

func startProducer(servers primitive.NsResolver, group, instance string) (rocketmq.Producer, error) {
	p, err := rocketmq.NewProducer(
		producer.WithNsResolver(servers),
		producer.WithGroupName(group),
		producer.WithInstanceName(instance),
	)
	if err != nil {
		return nil, err
	}
	return p, p.Start()
}
