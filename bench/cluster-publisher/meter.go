package main

import (
	"sync"
	"time"
)

// meter counts acknowledgements of all connections.
type meter struct {
	mutex sync.Mutex
	began time.Time
	// When the last acknowledgement came; at first the beginning.
	last    time.Time
	acked   int
	pause   time.Duration
	slowest time.Duration
	// From the program's start on: a refusal in the warm-up spoils the measurement, too.
	refused int
	reason  string
}

// figures are what the program writes.
type figures struct {
	Acked   int     `json:"acked"`
	Rate    float64 `json:"acked_per_s"`
	Refused int     `json:"refused"`
	// Of the first refusal.
	Reason string `json:"reason"`
	// The longest time without any acknowledgement.
	PauseMs float64 `json:"longest_pause_ms"`
	// The longest time from a publication to its acknowledgement.
	SlowestMs float64 `json:"slowest_ms"`
}

// acknowledge counts a publication that was sent at that time.
func (m *meter) acknowledge(sent time.Time) {
	now := time.Now()
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.acked++
	m.pause = max(m.pause, now.Sub(m.last))
	m.slowest = max(m.slowest, now.Sub(sent))
	m.last = now
}

// refuse counts a publication that was answered with an error.
func (m *meter) refuse(reason string) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	if m.refused == 0 {
		m.reason = reason
	}
	m.refused++
}

// begin forgets the warm-up.
func (m *meter) begin() {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.began = time.Now()
	m.last = m.began
	m.acked, m.pause, m.slowest = 0, 0, 0
}

// end returns the figures since begin.
func (m *meter) end() figures {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	now := time.Now()
	pause := max(m.pause, now.Sub(m.last))
	return figures{
		Acked:     m.acked,
		Rate:      float64(m.acked) / now.Sub(m.began).Seconds(),
		Refused:   m.refused,
		Reason:    m.reason,
		PauseMs:   milliseconds(pause),
		SlowestMs: milliseconds(m.slowest),
	}
}

func milliseconds(duration time.Duration) float64 {
	return float64(duration) / float64(time.Millisecond)
}
