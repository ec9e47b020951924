package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"sync"
	"time"
)

// Commands whose sending times are remembered. A node lets 256 wait and refuses others at once.
const sentMax = 1_024

// session is a client of a node that publishes.
type session struct {
	settings *settings
	meter    *meter
	socket   *webSocket
	// Guards what follows, and sending.
	mutex sync.Mutex
	// The id of the last command. The first is that of connect.
	last uint32
	// When commands were sent, by their ids.
	sent [sentMax]time.Time
}

// reply is what a node says: an answer to a command, or, without an id, a ping.
type reply struct {
	ID    uint32 `json:"id"`
	Error *struct {
		Code    int    `json:"code"`
		Message string `json:"message"`
	} `json:"error"`
}

// openSession connects to a node, and begins to publish there.
func openSession(s *settings, number int, m *meter) error {
	socket, err := dial(s.url(number))
	if err != nil {
		return err
	}
	one := &session{settings: s, meter: m, socket: socket, last: 1}
	if err := socket.send([]byte(`{"id":1,"connect":{}}`)); err != nil {
		return err
	}
	answer, err := socket.receive()
	if err != nil {
		return err
	}
	if bytes.Contains(answer, []byte(`"error"`)) {
		return fmt.Errorf("connect is answered with %s", answer)
	}
	if s.rate > 0 {
		go must(one.readOn)
		go must(func() error { return one.publishAtRate(number) })
	} else {
		go must(one.publishAsAnswered)
	}
	return nil
}

// must ends the program when a connection fails: the figures would be of fewer connections.
func must(run func() error) {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

// publishAsAnswered keeps as many publications under way as may be: each answer lets another one go.
func (s *session) publishAsAnswered() error {
	if err := s.publish(s.settings.outstanding); err != nil {
		return err
	}
	for {
		answered, err := s.read()
		if err != nil {
			return err
		}
		if err := s.publish(answered); err != nil {
			return err
		}
	}
}

// publishAtRate publishes by the clock, whatever the answers are. Connections take turns.
func (s *session) publishAtRate(number int) error {
	turn := time.Duration(float64(time.Second) / s.settings.rate)
	time.Sleep(time.Duration(number) * turn)
	for range time.Tick(turn * time.Duration(s.settings.connections)) {
		if err := s.publish(1); err != nil {
			return err
		}
	}
	return nil
}

// readOn reads answers until the connection fails.
func (s *session) readOn() error {
	for {
		if _, err := s.read(); err != nil {
			return err
		}
	}
}

// publish sends so many publications in one frame.
func (s *session) publish(count int) error {
	if count == 0 {
		return nil
	}
	s.mutex.Lock()
	defer s.mutex.Unlock()
	now := time.Now()
	var text []byte
	for range count {
		s.last++
		s.sent[s.last%sentMax] = now
		channel := int(s.last) % s.settings.channels
		text = fmt.Appendf(text, `{"id":%d,"publish":{"channel":"c%d","data":%s}}`, s.last, channel, s.settings.payload)
		text = append(text, '\n')
	}
	// A frame ends without a line feed.
	return s.socket.send(text[:len(text)-1])
}

// read takes all frames that are there, and waits for one if there is none. It returns how many publications were answered.
func (s *session) read() (int, error) {
	answered := 0
	for {
		frame, err := s.socket.receive()
		if err != nil {
			return 0, err
		}
		for line := range bytes.SplitSeq(frame, []byte("\n")) {
			isAnswer, err := s.handle(line)
			if err != nil {
				return 0, err
			}
			if isAnswer {
				answered++
			}
		}
		if !s.socket.hasMore() {
			return answered, nil
		}
	}
}

// handle tells whether the line answers a publication. A ping wants a pong.
func (s *session) handle(line []byte) (bool, error) {
	var said reply
	if err := json.Unmarshal(line, &said); err != nil {
		return false, fmt.Errorf("the node said %q: %w", line, err)
	}
	s.mutex.Lock()
	if said.ID == 0 {
		defer s.mutex.Unlock()
		return false, s.socket.send([]byte("{}"))
	}
	sent := s.sent[said.ID%sentMax]
	s.mutex.Unlock()
	if said.Error != nil {
		s.meter.refuse(fmt.Sprintf("%d %s", said.Error.Code, said.Error.Message))
	} else {
		s.meter.acknowledge(sent)
	}
	return true, nil
}
