package main

import (
	"fmt"
	"log"
	"time"

	"github.com/nats-io/nats.go"
)

// underWay is a publication that JetStream has not acknowledged yet.
type underWay struct {
	future nats.PubAckFuture
	sent   time.Time
}

// connect makes a connection of its own.
func connect(s *settings, number int) (nats.JetStreamContext, error) {
	connection, err := nats.Connect(s.url(number))
	if err != nil {
		return nil, err
	}
	return connection.JetStream()
}

// openJetStream connects to a NATS server, and begins to publish there.
func openJetStream(s *settings, number int, m *meter) error {
	stream, err := connect(s, number)
	if err != nil {
		return err
	}
	// Two more are under way: one that was published before it waits for its place here, and one that has left and is waited for.
	queue := make(chan underWay, max(s.outstanding-2, 0))
	go publishAsync(s, number, stream, queue)
	go awaitInOrder(queue, m)
	return nil
}

// publishAsync publishes whenever the queue has a place.
func publishAsync(s *settings, number int, stream nats.JetStreamContext, queue chan<- underWay) {
	var options []nats.PubOpt
	for serial := 0; ; serial++ {
		if s.hasIDs {
			options = []nats.PubOpt{nats.MsgId(fmt.Sprintf("%d:%d", number, serial))}
		}
		subject := fmt.Sprintf("%sc%d", s.subject, serial%s.channels)
		sent := time.Now()
		future, err := stream.PublishAsync(subject, s.payload, options...)
		if err != nil {
			log.Fatalf("publishing to %s: %v", subject, err)
		}
		queue <- underWay{future, sent}
	}
}

// awaitInOrder waits for one acknowledgement after the other. A stream gives them to a connection in the order of its messages.
func awaitInOrder(queue <-chan underWay, m *meter) {
	for one := range queue {
		select {
		case <-one.future.Ok():
			m.acknowledge(one.sent)
		case err := <-one.future.Err():
			m.refuse(err.Error())
		}
	}
}

// openReader begins to read all messages, over a connection of its own, and does nothing with them.
func openReader(s *settings, number int) error {
	stream, err := connect(s, number)
	if err != nil {
		return err
	}
	_, err = stream.Subscribe(s.subject+">", func(*nats.Msg) {}, nats.OrderedConsumer())
	return err
}
