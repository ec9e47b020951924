// Go with gorilla/websocket: net/http, one goroutine per connection that reads, a prepared message for pushes, written
// by one goroutine for each core.
package main

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gorilla/websocket"
)

const (
	messageBytesMax = 131_072
	requestBytesMax = 4_096
	writeSecondsMax = 10
)

func env(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

// client is a connection and the lock that keeps its writers apart: the library allows one at a time.
type client struct {
	socket  *websocket.Conn
	writing sync.Mutex
}

func (c *client) write(send func(*websocket.Conn) error) error {
	c.writing.Lock()
	defer c.writing.Unlock()
	_ = c.socket.SetWriteDeadline(time.Now().Add(writeSecondsMax * time.Second))
	err := send(c.socket)
	if err != nil {
		// Its reader sees that, and takes it out of the crowd.
		_ = c.socket.Close()
	}
	return err
}

// shard is a part of the crowd, so that a push is written by as many goroutines as there are cores.
type shard struct {
	mutex sync.RWMutex
	open  map[*client]struct{}
}

func (s *shard) add(c *client) {
	s.mutex.Lock()
	s.open[c] = struct{}{}
	s.mutex.Unlock()
}

func (s *shard) remove(c *client) {
	s.mutex.Lock()
	delete(s.open, c)
	s.mutex.Unlock()
}

func (s *shard) count() int {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	return len(s.open)
}

func (s *shard) broadcast(message *websocket.PreparedMessage) int {
	s.mutex.RLock()
	defer s.mutex.RUnlock()
	handed := 0
	for c := range s.open {
		if c.write(func(socket *websocket.Conn) error { return socket.WritePreparedMessage(message) }) == nil {
			handed++
		}
	}
	return handed
}

// crowd is all open connections.
type crowd struct {
	echo   bool
	shards []*shard
	next   atomic.Uint64
	// pushing keeps the order of broadcasts the same for everybody.
	pushing sync.Mutex
}

func newCrowd(echo bool) *crowd {
	c := &crowd{echo: echo}
	for range runtime.GOMAXPROCS(0) {
		c.shards = append(c.shards, &shard{open: make(map[*client]struct{})})
	}
	return c
}

func (c *crowd) count() int {
	total := 0
	for _, shard := range c.shards {
		total += shard.count()
	}
	return total
}

func (c *crowd) broadcast(payload []byte) int {
	message, err := websocket.NewPreparedMessage(websocket.TextMessage, payload)
	if err != nil {
		return 0
	}
	c.pushing.Lock()
	defer c.pushing.Unlock()
	var handed atomic.Int64
	var done sync.WaitGroup
	for _, shard := range c.shards {
		done.Go(func() { handed.Add(int64(shard.broadcast(message))) })
	}
	done.Wait()
	return int(handed.Load())
}

// converse reads until the connection ends, which the library wants even of one that has nothing to say.
func (c *crowd) converse(socket *websocket.Conn) {
	client := &client{socket: socket}
	shard := c.shards[c.next.Add(1)%uint64(len(c.shards))]
	shard.add(client)
	defer shard.remove(client)
	defer socket.Close()
	socket.SetReadLimit(messageBytesMax)
	for {
		kind, reader, err := socket.NextReader()
		if err != nil {
			return
		}
		if !c.echo {
			continue // What is not read is skipped.
		}
		data, err := io.ReadAll(reader)
		if err != nil || client.write(func(socket *websocket.Conn) error { return socket.WriteMessage(kind, data) }) != nil {
			return
		}
	}
}

func (c *crowd) pushEvery(interval time.Duration) {
	tick := 0
	for range time.Tick(interval) {
		tick++
		c.broadcast(fmt.Appendf(nil, "tick %d", tick))
	}
}

func answerConnections(response http.ResponseWriter, connections int) {
	_ = json.NewEncoder(response).Encode(map[string]int{"connections": connections})
}

// body reads it whole, or answers that it is too long.
func body(response http.ResponseWriter, request *http.Request, bytesMax int64) ([]byte, bool) {
	data, err := io.ReadAll(http.MaxBytesReader(response, request.Body, bytesMax))
	if err == nil {
		return data, true
	}
	status := http.StatusBadRequest
	if tooLong := new(http.MaxBytesError); errors.As(err, &tooLong) {
		status = http.StatusRequestEntityTooLarge
	}
	response.WriteHeader(status)
	return nil, false
}

func (c *crowd) routes() *http.ServeMux {
	upgrader := websocket.Upgrader{
		ReadBufferSize:  1024,
		WriteBufferSize: 1024,
		// A buffer is borrowed for the time of a write.
		WriteBufferPool: &sync.Pool{},
		CheckOrigin:     func(*http.Request) bool { return true },
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(response http.ResponseWriter, request *http.Request) {
		socket, err := upgrader.Upgrade(response, request, nil)
		if err != nil {
			return
		}
		// A goroutine of its own, so that what net/http keeps of the request can be collected.
		go c.converse(socket)
	})
	mux.HandleFunc("GET /stats", func(response http.ResponseWriter, _ *http.Request) {
		answerConnections(response, c.count())
	})
	mux.HandleFunc("POST /broadcast", func(response http.ResponseWriter, request *http.Request) {
		if data, ok := body(response, request, messageBytesMax); ok {
			answerConnections(response, c.broadcast(data))
		}
	})
	mux.HandleFunc("POST /request", func(response http.ResponseWriter, request *http.Request) {
		if data, ok := body(response, request, requestBytesMax); ok {
			_, _ = response.Write(data)
		}
	})
	return mux
}

// serve speaks TLS 1.3 if there is a certificate.
func serve(server *http.Server, listener net.Listener) error {
	certificate, key := env("TLS_CERTIFICATE", ""), env("TLS_KEY", "")
	if certificate == "" {
		return server.Serve(listener)
	}
	// Without HTTP/2, whose connections carry no upgrade.
	server.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}}
	server.TLSNextProto = map[string]func(*http.Server, *tls.Conn, http.Handler){}
	return server.ServeTLS(listener, certificate, key)
}

func main() {
	crowd := newCrowd(env("MODE", "push") == "echo")
	if everyMs, _ := strconv.Atoi(env("PUSH_EVERY_MS", "0")); everyMs > 0 {
		go crowd.pushEvery(time.Duration(everyMs) * time.Millisecond)
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(env("HOST", "127.0.0.1"), env("PORT", "9000")))
	if err != nil {
		log.Fatal(err)
	}
	server := &http.Server{Handler: crowd.routes()}
	ended, _ := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	go func() {
		<-ended.Done()
		os.Exit(0)
	}()
	log.Fatal(serve(server, listener))
}
