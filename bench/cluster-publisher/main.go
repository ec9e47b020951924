// Command cluster-publisher publishes as fast as it gets acknowledgements, or at a rate, and says how many came.
//
// It measures plain JetStream and nodes of Myriad with the same payloads, the same channels in turn, the same number of connections,
// and on each of them the same number of publications that wait for their acknowledgements. To plain JetStream it speaks by nats.go
// (PublishAsync), to nodes the Centrifuge protocol in JSON over WebSocket. On both many publications may be under way on one
// connection. HTTP would need a connection for each.
//
// A publication counts when it is acknowledged: by the stream, or by the node, which answers when the stream has it and the node has
// read it. The figures are of the time behind the warm-up. They are written to standard output as one JSON object.
package main

import (
	"encoding/json"
	"flag"
	"log"
	"os"
	"strings"
	"time"
)

// settings are what the command line says.
type settings struct {
	way         string
	urls        []string
	connections int
	// Publications that may wait for their acknowledgements on each connection. A node lets 256 wait.
	outstanding int
	channels    int
	// JSON that nodes and JetStream get alike.
	payload []byte
	// Publications a second of all connections together; 0 for as many as are acknowledged.
	rate float64
	// Only to JetStream: what stands in front of a channel's name, whether messages have ids, and who reads all messages meanwhile.
	subject string
	hasIDs  bool
	readers int
	warmUp  time.Duration
	// Of the measurement, behind the warm-up.
	duration time.Duration
}

// url is the server of a connection or of a reader: they take turns.
func (s *settings) url(number int) string {
	return s.urls[number%len(s.urls)]
}

func read() *settings {
	s := &settings{}
	flag.StringVar(&s.way, "way", "websocket", "websocket (to nodes) or jetstream (to NATS servers)")
	urls := flag.String("urls", "", "of nodes or NATS servers, with commas between them")
	flag.IntVar(&s.connections, "connections", 4, "in turn to the servers")
	flag.IntVar(&s.outstanding, "outstanding", 64, "publications under way on each connection")
	flag.IntVar(&s.channels, "channels", 50, "which get publications in turn")
	payload := flag.Int("payload-bytes", 100, "of each publication")
	flag.Float64Var(&s.rate, "rate", 0, "publications a second, to nodes; 0 for as many as are acknowledged")
	flag.StringVar(&s.subject, "subject", "myriad.h.~.", "in front of a channel's name in NATS")
	flag.BoolVar(&s.hasIDs, "ids", false, "messages to JetStream have ids, as those of nodes")
	flag.IntVar(&s.readers, "readers", 0, "ordered consumers that read all messages, as nodes do")
	flag.DurationVar(&s.warmUp, "warm-up", 2*time.Second, "before the measurement")
	flag.DurationVar(&s.duration, "duration", 8*time.Second, "of the measurement")
	flag.Parse()
	s.urls = strings.Split(*urls, ",")
	// The quotes belong to the payload.
	s.payload = []byte(`"` + strings.Repeat("x", max(*payload-2, 0)) + `"`)
	return s
}

func main() {
	s := read()
	m := &meter{}
	open := openSession
	if s.way == "jetstream" {
		open = openJetStream
		for number := range s.readers {
			if err := openReader(s, number); err != nil {
				log.Fatalf("reader %d: %v", number, err)
			}
		}
	}
	for number := range s.connections {
		if err := open(s, number, m); err != nil {
			log.Fatalf("connection %d to %s: %v", number, s.url(number), err)
		}
	}
	time.Sleep(s.warmUp)
	m.begin()
	time.Sleep(s.duration)
	if err := json.NewEncoder(os.Stdout).Encode(m.end()); err != nil {
		log.Fatal(err)
	}
}
